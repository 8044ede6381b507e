# SPDX-License-Identifier: Apache-2.0
"""The tokenizer against the `tokenizers` package, id by id: tokenizers with the steps of the supported
families, trained here on Python's own library, and 5,000 strings for each: source text, every plane of
Unicode, white space, combining marks, special tokens, and what looks like them.
"""
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
STRINGS = 5000
SEED = 20261130


def split_at(digits):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS.replace("DIGITS", digits)), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def families():
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "gpt2", None, byte_level, {}
    yield "prefix", None, pre_tokenizers.ByteLevel(add_prefix_space=True), {}
    yield "smollm2", None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]), {}
    yield "qwen", normalizers.NFC(), split_at(r"\p{N}"), {}
    yield "llama3", None, split_at(r"\p{N}{1,3}"), {"ignore_merges": True}


def corpus():
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return [file.read_text(errors="ignore") for file in files[:120]]


def trained(normalizer, pre_tokenizer, options, texts):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=6000, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=True),
                          AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True, normalized=False),
                          AddedToken("word", single_word=True, normalized=False)])
    if options:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|im_start|> $A <|im_end|>", special_tokens=[
                ("<|im_start|>", tokenizer.token_to_id("<|im_start|>")),
                ("<|im_end|>", tokenizer.token_to_id("<|im_end|>"))])])
    return tokenizer


def character(source):
    while True:
        code = source.choice([source.randrange(0x80), source.randrange(0x3000), source.randrange(0x10000),
                              source.randrange(0x110000)])
        # Letters of the newest Unicode are letters to one library and not yet to the other; planes 4 to 13
        # will stay empty. U+180E: PCRE2 counts it as white space, Unicode has not since version 6.3.
        category = unicodedata.category(chr(code))
        if category != "Cs" and (category != "Cn" or 0x40000 <= code < 0xE0000) and code != 0x180E:
            return chr(code)


def strings(texts):
    source = random.Random(SEED)
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    odd = SPECIAL + ["<tool_call>", "</tool_call>", "[L]", "[R]", "word", "words", "<|im_", "|>", "'LL", "'s", "I'm",
                     "e\u0301", "\u1112\u1161\u11ab", "\u0130", "\u00a0", "\u3000", "\u2028", "\x85", "\r\n", "\t",
                     "   ", "1234567", "\u0663\u0664", "\u00bd", "\u2460", "\U0001f469\u200d\U0001f680", "\x00"]
    for _ in range(STRINGS):
        parts = []
        for _ in range(source.randrange(12)):
            kind = source.randrange(4)
            if kind == 0:
                parts.append(source.choice(lines))
            elif kind == 1:
                parts.append(source.choice(odd))
            elif kind == 2:
                parts.append("".join(character(source) for _ in range(source.randrange(6))))
            else:
                parts.append(source.choice(" \n\t") * source.randrange(5))
        yield "".join(parts)


def answers(build, path, texts):
    given = "".join(json.dumps(text) + "\n" for text in texts)
    run = subprocess.run([f"{build}/tests/interop/tokenize", path], input=given, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.split("\n")[:-1]]


def compare(build, name, tokenizer, texts):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tokenizer.json"
        tokenizer.save(path)
        ours = answers(build, path, texts)
    ids = [tokenizer.encode(text).ids for text in texts]
    tokenizer.encode_special_tokens = True
    plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    assert len(ours) == len(texts)
    for text, answer, expected, as_text in zip(texts, ours, ids, plain):
        assert answer["ids"] == expected, (name, text, answer["ids"], expected)
        assert answer["plain"] == as_text, (name, text, answer["plain"], as_text)
        decoded = tokenizer.decode(expected, skip_special_tokens=False)
        assert answer["text"] == decoded, (name, text, answer["text"], decoded)
        assert answer["stream"] == decoded, (name, text)
    print(f"  {name}: {len(texts)} strings, {sum(map(len, ids))} ids are equal")


def main():
    texts = corpus()
    samples = list(strings(texts))
    for name, normalizer, pre_tokenizer, options in families():
        compare(sys.argv[1], name, trained(normalizer, pre_tokenizer, options, texts), samples)


main()
