# SPDX-License-Identifier: Apache-2.0
"""What `plexrl model export` and `merge` write, loaded by `peft` and `transformers` on torch: SmolLM2-135M-Instruct with
an adapter of random numbers has the same logits as the two merged, and others than without it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import save_file

from peers import row, skip

try:
    import peft
    import torch
    import transformers
except ImportError as e:
    skip(f"torch, transformers or peft cannot be loaded here: {e}")

RANK, ALPHA = 8, 32  # alpha is the engine's, whatever the rank
ALLOWED = 1e-3       # of a logit in float32


def run_plexrl(build, *words):
    subprocess.run([build / "plexrl", "model", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def write_adapter(path, config):
    """As `plexrl train --save FILE --format weights` writes it; test_export.py has one that the engine trained."""
    random = numpy.random.default_rng(3)
    width, inner = config["hidden_size"], config["intermediate_size"]
    query = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"self_attn.q_proj": (query, width), "self_attn.k_proj": (kv, width), "self_attn.v_proj": (kv, width),
              "self_attn.o_proj": (width, query), "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
              "mlp.down_proj": (width, inner)}
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (rows, cols) in shapes.items():
            module = f"base_model.model.model.layers.{layer}.{name}"
            tensors[module + ".lora_A.weight"] = random.normal(scale=cols**-0.5, size=(RANK, cols)).astype(numpy.float32)
            tensors[module + ".lora_B.weight"] = random.normal(scale=0.003, size=(rows, RANK)).astype(numpy.float32)
    save_file(tensors, path, {"format": "pt", "plexrl_mode": "lora", "plexrl_rank": str(RANK), "plexrl_alpha": str(ALPHA)})


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, local_files_only=True).eval()


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits.double()


def main():
    torch.set_num_threads(1)
    build = pathlib.Path(sys.argv[1]).resolve()
    base = build / "models" / "smollm2-135m"
    with tempfile.TemporaryDirectory(prefix="plexrl-peers-") as name:
        work = pathlib.Path(name)
        write_adapter(work / "lora.safetensors", json.loads((base / "config.json").read_text()))
        run_plexrl(build, "export", work / "lora.safetensors", work / "peft", "--base", base)
        run_plexrl(build, "merge", base, work / "peft", work / "merged")
        tokens = torch.tensor([transformers.AutoTokenizer.from_pretrained(work / "merged").encode("Two and two are four, and")])
        plain = logits(load(base), tokens)
        both = logits(peft.PeftModel.from_pretrained(load(base), work / "peft").eval(), tokens)
        merged = logits(load(work / "merged"), tokens)
    difference, moved = (merged - both).abs().max().item(), (both - plain).abs().max().item()
    row("export", tokens=tokens.shape[1], difference=round(difference, 7), moved_by_adapter=round(moved, 3))
    return 0 if difference <= ALLOWED < 0.1 < moved else 1


if __name__ == "__main__":
    sys.exit(main())
