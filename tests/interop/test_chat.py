# SPDX-License-Identifier: Apache-2.0
"""Chat templates against the package jinja2: the golden cases anew, and templates put together at random of
pieces of the subset, on messages of odd text. Both must write the same or both fail;
a few random ones may be refused as unsupported, but then by that name.
"""
import json
import random
import subprocess
import sys

import chat_cases

SEED = 20261130
TEMPLATES = 3000
SPACES = ["", " ", "\n", "  \n", "\n  ", "\t", "\n\n"]
VALUES = ["messages[0].content", "message.content", "message['role']", "loop.index0", "messages|length", "'a b'", "3",
          "-2", "1.5", "none", "true", "x", "['a', 1]", "{'k': 'v'}", "message.content.split('\\n')", "messages[::-1]",
          "message.content[1:-1]", "messages[-1]", "bos_token", "n.a", "message.nothing"]
FILTERS = ["trim", "length", "tojson", "string", "upper", "default('d')", "first", "last", "list", "join('-')"]
SIGNS = ["+", "-", "~", "==", "!=", "<", "in", "not in", "and", "or", "//"]
TESTS = ["defined", "none", "string", "not none", "mapping", "iterable", "number", "true", "boolean"]
WORDS = ["Hi", " there ", "\n", "\u00e9", "\U0001f680", "<think>", "</think>", "<|im_end|>", "\t", "'", "\"", "\\", "{{ x }}"]


def expression(source, depth=0):
    kind = source.randrange(9) if depth < 3 else 0
    value = source.choice(VALUES)
    if kind == 1:
        return f"({expression(source, depth + 1)}) {source.choice(SIGNS)} ({expression(source, depth + 1)})"
    if kind == 2:
        return f"({expression(source, depth + 1)})|{source.choice(FILTERS)}"
    if kind == 3:
        return f"({expression(source, depth + 1)} is {source.choice(TESTS)})"
    if kind == 4:
        return f"({expression(source, depth + 1)} if {expression(source, depth + 1)} else {value})"
    if kind == 5:
        return f"(not {expression(source, depth + 1)})"
    return value


def tag(source, text):
    left, right = source.choice(["", "-", "+"]), source.choice(["", "-"])
    return "{%" + left + " " + text + " " + right + "%}" + source.choice(SPACES)


def piece(source, depth=0):
    kind = source.randrange(7) if depth < 3 else source.randrange(2)
    inner = "".join(piece(source, depth + 1) for _ in range(source.randrange(3))) if kind >= 2 else ""
    if kind == 0:
        return source.choice(SPACES) + "t" + source.choice(SPACES)
    if kind == 1:
        return "{{" + source.choice([" ", "- "]) + expression(source) + source.choice([" ", " -"]) + "}}"
    if kind in (2, 3):
        return tag(source, f"for message in {source.choice(['messages', 'messages[1:]', 'messages[::-1]', 'range(2)'])}") \
            + inner + tag(source, "endfor")
    if kind == 4:
        return tag(source, f"if {expression(source)}") + inner + tag(source, "else") + "e" + tag(source, "endif")
    if kind == 5:
        return tag(source, f"set {source.choice(['x', 'n.a'])} = {expression(source)}") + inner
    return source.choice(SPACES) + "{#" + source.choice(["", "-"]) + " c " + source.choice(["", "-"]) + "#}" + inner


def random_cases():
    source = random.Random(SEED)
    for number in range(TEMPLATES):
        template = "{% set n = namespace(a='s') %}" + "".join(piece(source) for _ in range(1 + source.randrange(6)))
        messages = [{"role": source.choice(["user", "assistant", "system"]),
                     "content": "".join(source.choice(WORDS) for _ in range(source.randrange(5)))}
                    for _ in range(1 + source.randrange(3))]
        yield f"random {number}", template, {"messages": messages}


def main():
    rows = list(chat_cases.cases()) + list(random_cases())
    lines = "".join(json.dumps({"template": template, "tokens": chat_cases.TOKENS, "input": given}) + "\n"
                    for _, template, given in rows)
    run = subprocess.run([f"{sys.argv[1]}/tests/interop/render"], input=lines, capture_output=True, text=True, check=True)
    ours = [json.loads(line) for line in run.stdout.split("\n")[:-1]]
    assert len(ours) == len(rows)
    failed = unsupported = 0
    for (name, template, given), text in zip(rows, ours):
        expected = chat_cases.render(template, given)
        if isinstance(text, dict):
            assert text["unsupported"]
            if name.startswith("random") and expected is not None:
                unsupported += 1
                continue
            text = None
        failed += expected is None
        assert text == expected, (name, template, given, text, expected)
    assert unsupported < TEMPLATES // 50, unsupported
    print(f"  {len(rows) - unsupported} renderings are equal, of which {failed} fail in both; {unsupported} are not supported")


main()
