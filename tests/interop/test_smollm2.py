# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct, as `plexrl model import` makes it of the GGUF file on PyPI: log-probabilities of real prompts
through plexrld against NumPy in double precision, and greedy decoding token by token.
"""
import json
import pathlib
import subprocess
import sys

import numpy
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import reference
from plexrl_c import Model
from service import Service

PROMPTS = ["The capital of France is Paris, and the capital of Italy is",
           "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
           "Write an expression that equals 98. Use each of the numbers 44, 19 and 35 exactly once."]
ALLOWED = 1e-3  # of a log-probability in float32
NEW_TOKENS = 8


def main():
    build = pathlib.Path(sys.argv[1])
    subprocess.run([pathlib.Path(__file__).parents[2] / "scripts/models", build], check=True)
    folder = (build / "models/smollm2-135m").resolve()
    config = json.loads((folder / "config.json").read_text())
    weights = {n: a.astype(numpy.float64) for n, a in load_file(folder / "model.safetensors").items()}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = [tokenizer.encode(text).ids for text in PROMPTS]
    service = Service(build, config, folder)
    try:
        model = Model(build, *service.open_job(1, "none"), name="m", train_mode="none")
        worst = 0.0
        for tokens, got in zip(rows, model.logprobs(0, rows)):
            table = reference.log_probabilities(tokens[:-1], weights, config)
            expected = table[numpy.arange(len(tokens) - 1), tokens[1:]]
            worst = max(worst, float(numpy.max(numpy.abs(numpy.asarray(got) - expected))))
        print(f"  logprobs of {sum(map(len, rows))} tokens: largest difference {worst:.2e}, allowed {ALLOWED:.0e}")
        assert worst <= ALLOWED
        tokens, _ = model.generate(0, rows[:1], 1, NEW_TOKENS, 0.0, 3)[0]
        context = list(rows[0])
        for token in tokens:
            table = reference.log_probabilities(context, weights, config)[-1]
            assert table[token] >= table.max() - ALLOWED, "greedy decoding took a token that is not the best"
            context.append(token)
        print(f"  greedy: {tokenizer.decode(context)!r}")
    finally:
        service.stop()


if __name__ == "__main__":
    main()
