# SPDX-License-Identifier: Apache-2.0
"""Greedy decoding against llama.cpp, on the GGUF file of SmolLM2-135M-Instruct. llama.cpp reads a copy whose tensors
the `gguf` package has dequantised to F32, so that both compute with the same numbers. Its cache is F32, too.
"""
import pathlib
import sys
import time

import gguf
import numpy

from peers import PROMPTS, Subject, row, skip

try:
    import xllamacpp
except ImportError as e:
    skip(f"xllamacpp cannot be loaded here: {e}")

NEW_TOKENS = 64
ALLOWED = 1e-3  # of a log-probability


def dequantise(source, target):
    """A copy with every tensor in F32 and all of the metadata."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        writer.add_tensor(tensor.name, values, raw_dtype=gguf.GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def start(path):
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = 1  # more spin against each other where cores are shared
    params.cpuparams_batch.n_threads = 1
    params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.warmup = False
    params.verbosity = 1  # errors only
    return xllamacpp.Server(params)


def greedy(server, tokens):
    """The continuation up to an end token, its log-probabilities and how long it took."""
    begin = time.monotonic()
    answer = server.handle_completions({"prompt": tokens, "n_predict": NEW_TOKENS, "temperature": 0.0, "n_probs": 2,
                                        "cache_prompt": False})
    steps = answer["choices"][0]["logprobs"]["content"]
    # How much better the token was than the next best: what a difference in rounding would have to overcome.
    margins = [s["logprob"] - s["top_logprobs"][1]["logprob"] for s in steps]
    return [s["id"] for s in steps], [s["logprob"] for s in steps], margins, time.monotonic() - begin


def compare(name, tokens, subject, server):
    """Whether all tokens are equal; prints a row."""
    mine, logprobs, seconds = subject.greedy(tokens, NEW_TOKENS)
    theirs, their_logprobs, margins, their_seconds = greedy(server, tokens)
    equal = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b), len(theirs))
    # llama.cpp ends at an end token; here that is a token like any other.
    ended = equal < NEW_TOKENS and any(token in subject.end_tokens for token in mine[equal - 1:equal + 1])
    whole = equal == len(theirs) and (equal == NEW_TOKENS or ended)
    worst = max(abs(a - b) for a, b in zip(logprobs[:equal], their_logprobs[:equal]))
    row("llama.cpp", prompt=name, compared=len(theirs), equal=equal, all_equal=whole, logprob_difference=round(worst, 6),
        least_margin=round(min(margins), 4), seconds=round(seconds, 2), peer_seconds=round(their_seconds, 2))
    return whole and worst <= ALLOWED


def main():
    build = pathlib.Path(sys.argv[1])
    source, target = (build / "models" / f"smollm2-135m{end}.gguf" for end in ("", "-f32"))
    if not target.exists():
        part = target.with_suffix(".part")
        dequantise(source, part)
        part.rename(target)
    server = start(target)
    with Subject(build) as subject:
        good = [compare(text[:30], tokens, subject, server) for text, tokens in zip(PROMPTS, subject.prompts)]
    row("llama.cpp", version=xllamacpp.__version__, prompts=len(good), agree=sum(good))
    assert all(good), "another continuation than llama.cpp's"


if __name__ == "__main__":
    main()
