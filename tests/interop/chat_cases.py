#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat templates and messages, worded for these tests in the constructs that the templates of SmolLM2, Qwen2.5,
Qwen3 and Llama 3 use, and what jinja2 makes of them, set up as `transformers` does.

chat_cases.py > tests/unit/chat/golden.json writes the golden values of test_chat (needs the package jinja2).
"""
import json

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOKENS = {"bos_token": "<s>", "eos_token": "<|im_end|>"}

# The first message decides about a default system message; concatenation with +.
PLAIN = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
Be of use.<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

# Tools, attributes, tojson, indices of the loop, white space control everywhere.
TOOLS = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0]["content"] }}
    {%- else %}
        {{- 'No system text.' }}
    {%- endif %}
    {{- "\n\n# Functions\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}
                {%- set call = call.function %}
            {%- endif %}
            {{- '\n<call>{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
            {%- if call.arguments is string %}
                {{- call.arguments }}
            {%- else %}
                {{- call.arguments | tojson }}
            {%- endif %}
            {{- '}</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<response>\n' }}{{- message.content }}{{- '\n</response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

# A namespace, the messages backwards, thoughts that are cut out of earlier answers, a variable of the caller.
THOUGHTS = r"""{%- set state = namespace(looking=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if state.looking and message.role == "user" and message.content is string and not(message.content.startswith('<response>') and message.content.endswith('</response>')) %}
        {%- set state.looking = false %}
        {%- set state.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > state.last and (loop.last or (not loop.last and thoughts)) %}
            {{- '<|im_start|>' ~ message.role ~ '\n<think>\n' ~ thoughts.strip('\n') ~ '\n</think>\n\n' ~ content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

# A begin token, trim, a choice, an exception, a list that begins later.
HEADERS = r"""{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] | trim %}{% else %}{% set rest = messages %}{% set system = 'none' if not tools else 'tools' %}{% endif %}
{{ '<|header|>system\n' ~ system }}
{% for message in rest %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('user and assistant take turns') }}
{% endif %}
{# nothing of this is written #}
  {{ '<|header|>' + message['role'] | upper }}: {{ message['content'] | trim }}{{ eos_token if not loop.last }}
    {%- if loop.last %} (last of {{ loop.length }}){% endif %}

{% else %}
nobody said anything
{% endfor %}
"""

TEMPLATES = {"plain": PLAIN, "tools": TOOLS, "thoughts": THOUGHTS, "headers": HEADERS}

WEATHER = [{"type": "function", "function": {"name": "weather", "description": "Of a \"place\" \u2603",
                                             "parameters": {"type": "object", "properties": {"at": {"type": "string"}},
                                                            "required": ["at"], "none": None, "size": 1.5}}}]
TALKS = {
    "user": [{"role": "user", "content": "What is 2 + 2?"}],
    "system": [{"role": "system", "content": "  Answer in one word. \n"}, {"role": "user", "content": "\n Hi <|im_end|>"}],
    "turns": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n\n</think>\n\nb"},
              {"role": "user", "content": "c \u00e9\U0001f680"}, {"role": "assistant", "content": "<think>so</think>d",
                                                                "reasoning_content": None}],
    "calls": [{"role": "user", "content": "Weather in Bern?"},
              {"role": "assistant", "content": "", "reasoning_content": "I ask.", "tool_calls": [
                  {"type": "function", "function": {"name": "weather", "arguments": {"at": "Bern", "days": [1, 2.0, True]}}},
                  {"name": "weather", "arguments": "{\"at\": \"Thun\"}"}]},
              {"role": "tool", "content": "12 \u00b0C"}, {"role": "tool", "content": "<b>13</b>"},
              {"role": "user", "content": "<response>seen</response>"}],
    "wrong": [{"role": "assistant", "content": "first"}],
    "empty": [],
}

# Small ones, each with its own messages where it needs them.
PIECES = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a  {%- if true -%}  b  {%- endif -%}  c", "x {#- gone -#} y\n",
    "  {%+ if true %} kept{% endif +%}\nz", "{{ 'a' }}\n{{ 'b' }}\n\n", "{% set a %}in {{ 1 + 1 }}{% endset %}[{{ a }}]",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 * 3 - 1 }} {{ 1.0 }} {{ 2.50 }}",
    "{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ none }} {{ [1, 'a', none, true] }} {{ {'k': 'v'} }}",
    "{{ 'abc'[1] }}{{ 'abc'[-1] }}{{ 'abcdef'[1:4] }}{{ 'abcdef'[::-1] }}{{ 'h\u00e9llo'[1:3] }}{{ 'abc'[9:] }}",
    "{{ [1, 2, 3, 4][1:] }}{{ [1, 2, 3, 4][-2:] }}{{ [1, 2, 3][::-1] }}{{ [1, 2, 3, 4, 5][4:0:-2] }}{{ [1][5] }}",
    "{{ ' a b  c '.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'xxaxx'.strip('x') }}",
    "{{ 'a-b'.replace('-', '+') }}{{ 'Ab'.lower() }}{{ 'Ab'.upper() }}{{ 'aB c'.capitalize() }}{{ 'aab'|replace('a', 'b') }}",
    "{{ x is defined }}{{ x }}{{ x | default('d') }}{{ '' | default('d', true) }}{{ none is none }}{{ 1 is number }}",
    "{{ 'a' is string }}{{ [] is iterable }}{{ {} is mapping }}{{ 'a' is sequence }}{{ true is boolean }}{{ 1 is integer }}",
    "{{ [1, 2] | join(', ') }}{{ ['a', 'b'] | first }}{{ ['a', 'b'] | last }}{{ 'abc' | length }}{{ [1, [2]] | tojson }}",
    "{{ {'b': 1, 'a': [true, none, 1.5, 'x\\n\"']} | tojson }}", "{{ {'b': {'c': []}, 'a': [1]} | tojson(indent=2) }}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}",
    "{% for i in range(5) if i % 2 == 0 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}",
    "{% for i in range(2, 8, 3) %}{{ i }}{% if not loop.last %},{% endif %}{% endfor %}{% for i in [] %}x{% else %}none{% endfor %}",
    "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set a = 1 %}{% for i in [1, 2] %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}",
    "{% set n = namespace(a=1) %}{% for i in [1, 2] %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}",
    "{% for a in [1, 2] %}{% for b in [1, 2] %}{{ loop.index }}{{ loop.revindex0 }}{% endfor %}{{ loop.previtem }}{% endfor %}",
    "{{ 'a' ~ 1 ~ none ~ true }}{{ 'a' in 'cat' }}{{ 'a' not in ['a'] }}{{ 1 in [1.0] }}{{ 'k' in {'k': 1} }}",
    "{{ not false and (true or false) }}{{ 1 if 0 else 2 }}{{ 'x' if false }}{{ '' or 'b' }}{{ 'a' and 'b' }}{{ - 3 + 1 }}",
    "{{ 'it''s' }}{{ \"\\u00e9\\x41\\t|\\q\" }}{{ 'a' 'b' }}{{ '%}' }}{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ messages[0].content[:3] }}{{ messages[-1]['role'] }}{{ messages | length }}{{ messages[0].nothing }}",
    "{{ messages[0].get('role') }}{{ messages[0].get('no', 'other') }}{{ messages[0].keys() | list }}",
    "{{ {'a': 1, 'b': 3, 'a': 2} | tojson }}{{ {'a': 1, 'a': 2}.a }}", "{{ 'a' | trim(nothing=1) }}", "{{ 'a'.upper(1) }}",
    "{{ [1, 2] < [1, 3] }}{{ [1] < [1, 2] }}{{ [2] <= [1, 2] }}{{ [[1]] >= [[1]] }}{{ [1, none] < [1, 2] }}",
    "{{ [1, 2] < [1, 3] }}{{ [1] < [1, 2] }}{{ [2] <= [1, 2] }}{{ [[1]] >= [[1]] }}",
    "{{ -5.5 % 2 }} {{ -5.5 // 2 }} {{ 5.5 % -2 }} {{ 7.5 // 2 }} {{ -0.0 }} {{ -(1.5) }}",
    "{% if true %}a{% 'endif' %}", "{{ messages[0].nothing.more }}", "{{ nothing.more }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ [1] < ['a'] }}",
    "{{ none + 1 }}", "{{ messages[0]() }}", "{{ none.x }}", "{{ 5.x }}",
    "{{ ['ab', 'c'] | join }}{{ ' q ' | trim }}{{ 5 | string + 'x' }}{{ '12' | int + 1 }}{{ 'zz' | int }}",
    "{{ (1) }}{% set t = 1, 2 %}{{ t | length }}{{ () | length }}", "{{ 'a'.startswith(('b', 'a')) }}{{ 'ab'.endswith('b') }}",
]


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def tojson(value, indent=None):
        return json.dumps(value, ensure_ascii=False, indent=indent)

    def raise_exception(message):
        raise ValueError(message)
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    return made


def render(template, given):
    """The text, or None where the template fails."""
    try:
        return environment().from_string(template).render(
            messages=given["messages"], tools=given.get("tools"), **TOKENS, **given.get("variables", {}),
            add_generation_prompt=given.get("add_generation_prompt", True))
    except Exception:  # whatever it is: ours must fail too  # pylint: disable=broad-except
        return None


def cases():
    for name, template in TEMPLATES.items():
        for talk, messages in TALKS.items():
            for more in ({}, {"tools": WEATHER}, {"variables": {"enable_thinking": False}}, {"add_generation_prompt": False}):
                yield f"{name}, {talk}, {', '.join(more) or 'plain'}", template, {"messages": messages, **more}
    for piece in PIECES:
        yield piece, piece, {"messages": TALKS["system"]}


def main():
    rows = []
    for name, template, given in cases():
        rows.append({"name": name, "template": template, "input": given, "text": render(template, given)})
    print(json.dumps({"tokens": TOKENS, "cases": rows}, indent=1))


if __name__ == "__main__":
    main()
