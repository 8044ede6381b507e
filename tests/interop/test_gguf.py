# SPDX-License-Identifier: Apache-2.0
"""`plexrl model import` against the `gguf` package: files that it writes, with blocks of random bits of every
type that we read, and what it makes of them; and the tokenizer of the result against `tokenizers`.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy
from safetensors.numpy import load_file
from tokenizers import Tokenizer

WIDTH, INNER, HEADS, KV_HEADS, LAYERS = 256, 512, 4, 2, 2
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Bytes of a block that are binary16 numbers: random bits there would be infinities.
SCALES = {"F16": [0], "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208]}
TOKENS = ["<s>", "a", "b", "ab", "\u0120", "1"]


def random_blocks(random, kind, shape):
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    if kind == "F32":
        return random.standard_normal(shape, dtype=numpy.float32)
    if kind == "BF16":
        bits = random.standard_normal(shape, dtype=numpy.float32).view(numpy.uint32) >> 16
        return bits.astype(numpy.uint16).view(numpy.uint8)
    rows = random.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), dtype=numpy.uint8)
    for at in SCALES[kind]:
        numbers = random.standard_normal(rows.shape[:-1]).astype(numpy.float16)
        rows[..., at:at + 2] = numbers[..., None].view(numpy.uint8)
    rows = rows.reshape(*shape[:-1], -1)
    return rows.view(numpy.float16) if kind == "F16" else rows


def tensors():
    yield "token_embd.weight", "model.embed_tokens.weight", (len(TOKENS), WIDTH), 0
    yield "output_norm.weight", "model.norm.weight", (WIDTH,), 0
    head = WIDTH // HEADS
    for layer in range(LAYERS):
        theirs, ours = f"blk.{layer}.", f"model.layers.{layer}."
        for a, b, shape, heads in [
                ("attn_norm", "input_layernorm", (WIDTH,), 0), ("attn_q", "self_attn.q_proj", (WIDTH, WIDTH), HEADS),
                ("attn_k", "self_attn.k_proj", (KV_HEADS * head, WIDTH), KV_HEADS),
                ("attn_v", "self_attn.v_proj", (KV_HEADS * head, WIDTH), 0),
                ("attn_output", "self_attn.o_proj", (WIDTH, WIDTH), 0), ("ffn_norm", "post_attention_layernorm", (WIDTH,), 0),
                ("ffn_gate", "mlp.gate_proj", (INNER, WIDTH), 0), ("ffn_up", "mlp.up_proj", (INNER, WIDTH), 0),
                ("ffn_down", "mlp.down_proj", (WIDTH, INNER), 0)]:
            yield theirs + a + ".weight", ours + b + ".weight", shape, heads


def write_file(path, kind, random):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(True)
    expected = {}
    for theirs, ours, shape, heads in tensors():
        data = random_blocks(random, kind if len(shape) == 2 else "F32", shape)
        used = gguf.GGMLQuantizationType[kind if len(shape) == 2 else "F32"]
        writer.add_tensor(theirs, data, raw_dtype=used)
        values = gguf.quants.dequantize(data, used).astype(numpy.float32)
        if heads:  # rows of a head lie in pairs in the file, in halves in the model
            values = values.reshape(heads, -1, 2, WIDTH).swapaxes(1, 2).reshape(shape)
        expected[ours] = values
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def check(build, folder, kind, random):
    model = folder / kind
    expected = write_file(str(folder / "in.gguf"), kind, random)
    run = subprocess.run([f"{build}/plexrl", "model", "import", folder / "in.gguf", model, "--json"],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    got = load_file(model / "model.safetensors")
    assert got.keys() == expected.keys()
    worst = 0.0
    for name, values in expected.items():
        assert got[name].shape == values.shape, name
        scale = float(numpy.max(numpy.abs(values)))
        worst = max(worst, float(numpy.max(numpy.abs(got[name] - values))) / scale)
    # The orders of the same float32 operations may differ.
    assert worst <= 1e-6, (kind, worst)
    assert json.loads(run.stdout)["parameters"] == sum(value.size for value in expected.values())
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode("ab 11").ids
    assert ids == [0, 3, 4, 5, 5], ids
    print(f"  {kind}: {len(expected)} tensors, largest difference {worst:.1e} of the largest value")


def main():
    random = numpy.random.default_rng(20261130)
    with tempfile.TemporaryDirectory() as folder:
        for kind in TYPES:
            check(sys.argv[1], pathlib.Path(folder), kind, random)


main()
