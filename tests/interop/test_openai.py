# SPDX-License-Identifier: Apache-2.0
"""The real `openai` client over plexrld's HTTP socket, against a small model with a tokenizer.json of
bytes and a chat template: completions, chat, streams, log-probabilities, errors, many at once.
"""
import asyncio
import json
import pathlib
import sys
import time

import httpx2
import jinja2
import openai

from plexrl_c import Model
from service import CONFIG, Service

END = 256
WIDE = {**CONFIG, "vocab_size": 264, "max_position_embeddings": 96, "eos_token_id": END}
TEMPLATE = ("{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}{{ eos_token }}{% endfor %}"
            "{% if add_generation_prompt %}a:{% endif %}")
ALLOWED = 1e-4  # of a log-probability; both are float32 of one engine, in batches of other widths
MANY = 200


def byte_letters():
    """The letters that byte-level tokenizers write bytes with, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(rest)}}


class ByteService(Service):
    """A token is a byte; 256 ends an answer."""

    def _make_model(self):
        super()._make_model()
        (self.model / "plexrl_tokenizer.json").unlink()
        vocab = {letter: byte for byte, letter in byte_letters().items()}
        (self.model / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "normalizer": None, "post_processor": None, "decoder": {"type": "ByteLevel"},
            "added_tokens": [{"id": END, "content": "<|end|>", "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
        (self.model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE}))


def text_of(tokens):
    return bytes(t for t in tokens if t < 256).decode(errors="replace")


def same_text(ours, tokens):
    """Tokens above 256 have no text, and what is no character is replaced: other libraries count these differently."""
    strip = lambda text: text.replace("\ufffd", "")
    return strip(ours) == strip(text_of(tokens))


def check_models(client):
    listed = client.models.list().data
    assert [m.id for m in listed] == ["tiny"], listed
    assert listed[0].max_model_len == WIDE["max_position_embeddings"]
    assert client.models.retrieve("tiny").id == "tiny"


def check_completions(client, model):
    arguments = {"model": "tiny", "prompt": "2+2=", "max_tokens": 12, "seed": 3, "n": 2, "logprobs": 0,
                 "extra_body": {"return_token_ids": True}}
    reply = client.completions.create(**arguments)
    assert [c.index for c in reply.choices] == [0, 1] and reply.usage.prompt_tokens == 4
    for choice in reply.choices:
        assert choice.prompt_token_ids == list(b"2+2="), choice
        assert same_text(choice.text, choice.token_ids), choice
        row = choice.prompt_token_ids + choice.token_ids
        expected = model.logprobs(0, [row])[0][3:]
        worst = max(abs(a - b) for a, b in zip(choice.logprobs.token_logprobs, expected))
        assert len(expected) == len(choice.token_ids) and worst <= ALLOWED, worst
    again = client.completions.create(**arguments)
    assert [c.token_ids for c in again.choices] == [c.token_ids for c in reply.choices]
    ids = client.completions.create(**{**arguments, "prompt": list(b"2+2=")})
    assert [c.token_ids for c in ids.choices] == [c.token_ids for c in reply.choices]
    check_stop(client, arguments)
    echoed = client.completions.create(model="tiny", prompt=["ab", "c"], max_tokens=1, echo=True)
    assert echoed.choices[0].text.startswith("ab") and echoed.choices[1].text.startswith("c")


def check_stop(client, arguments):
    """An answer with an ASCII character in it, and the same one stopped there."""
    for seed in range(50):
        whole = client.completions.create(**{**arguments, "seed": seed}).choices[0]
        letters = [c for c in whole.text if c.isascii() and c.isprintable()]
        if not letters:
            continue
        stopped = client.completions.create(**{**arguments, "seed": seed, "stop": letters[-1]}).choices[0]
        assert stopped.text == whole.text.split(letters[-1])[0], (stopped, whole)
        assert stopped.finish_reason == "stop" and stopped.stop_reason == letters[-1]
        assert stopped.token_ids == whole.token_ids[:len(stopped.token_ids)] and stopped.token_ids[-1] == ord(letters[-1])
        return
    raise AssertionError("no answer with an ASCII character")


def check_chat(client):
    messages = [{"role": "user", "content": "hi <|end|>"}]
    arguments = {"model": "tiny", "messages": messages, "max_tokens": 10, "seed": 9, "logprobs": True,
                 "extra_body": {"return_token_ids": True}}
    reply = client.chat.completions.create(**arguments)
    choice = reply.choices[0]
    written = jinja2.Template(TEMPLATE).render(messages=messages, eos_token="\0", add_generation_prompt=True)
    assert reply.prompt_token_ids == [END if byte == 0 else byte for byte in written.encode()], reply
    assert choice.message.role == "assistant" and same_text(choice.message.content, choice.token_ids)
    assert len(choice.logprobs.content) == len(choice.token_ids) == reply.usage.completion_tokens
    del arguments["logprobs"]
    chunks = list(client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert streamed == choice.message.content
    assert chunks[-1].usage.total_tokens == reply.usage.total_tokens and not chunks[-1].choices
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == choice.finish_reason


def refusal(kind, call):
    try:
        call()
    except kind as failure:
        return failure
    raise AssertionError(f"no {kind.__name__}")


def check_errors(client, stranger):
    create = client.completions.create
    wrong = refusal(openai.BadRequestError, lambda: create(model="tiny", prompt="a", temperature=-1))
    assert wrong.param == "temperature" and wrong.body["code"] == "INVALID_ARGUMENT", wrong
    refusal(openai.BadRequestError, lambda: create(model="tiny", prompt="a", max_tokens=1000))
    refusal(openai.BadRequestError, lambda: create(model="tiny", prompt="a", presence_penalty=1))
    missing = refusal(openai.NotFoundError, lambda: create(model="gpt", prompt="a"))
    assert "does not exist" in missing.body["message"]
    refusal(openai.AuthenticationError, stranger.models.list)
    large = refusal(openai.APIStatusError, lambda: create(model="tiny", prompt="a" * (1 << 20)))
    assert large.status_code == 413, large


async def many(path, token, prompts):
    transport = httpx2.AsyncHTTPTransport(uds=path, limits=httpx2.Limits(max_connections=MANY))
    async with openai.AsyncOpenAI(base_url="http://localhost/v1", api_key=token, max_retries=0,
                                  http_client=httpx2.AsyncClient(transport=transport, timeout=120)) as client:
        return await asyncio.gather(*(client.completions.create(
            model="tiny", prompt=prompt, max_tokens=8, seed=5, extra_body={"return_token_ids": True})
            for prompt in prompts))


def check_many(client, path, token):
    prompts = [f"{i}+{i}=" for i in range(MANY)]
    start = time.monotonic()
    replies = asyncio.run(many(path, token, prompts))
    print(f"  {MANY} completions at once: {time.monotonic() - start:.2f} s")
    for i in range(0, MANY, 40):  # the bits of a row do not depend on the others
        alone = client.completions.create(model="tiny", prompt=prompts[i], max_tokens=8, seed=5,
                                          extra_body={"return_token_ids": True})
        assert replies[i].choices[0].token_ids == alone.choices[0].token_ids, i


def check_metrics(path):
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=path)) as client:
        text = client.get("http://localhost/metrics").text
    answers = [line for line in text.splitlines() if line.startswith('plexrl_http_answers_total{status="200"}')]
    assert len(answers) == 1 and int(answers[0].split()[-1]) >= MANY, answers


def main():
    service = ByteService(pathlib.Path(sys.argv[1]), WIDE)
    try:
        plexrl_socket, token = service.open_job(1, "none")
        path = str(pathlib.Path(plexrl_socket).with_name("http.sock"))

        def connect(key):
            http = httpx2.Client(transport=httpx2.HTTPTransport(uds=path), timeout=120)
            return openai.OpenAI(base_url="http://localhost/v1", api_key=key, http_client=http, max_retries=0)

        client = connect(token)
        check_models(client)
        check_completions(client, Model(service.build, plexrl_socket, token, name="m", train_mode="none"))
        check_chat(client)
        check_errors(client, connect("nonsense"))
        check_many(client, path, token)
        check_metrics(path)
    finally:
        service.stop()


if __name__ == "__main__":
    main()
