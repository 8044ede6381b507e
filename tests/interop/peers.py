# SPDX-License-Identifier: Apache-2.0
"""What the comparisons with other engines share: the model, real prompts, a service, rows of JSON."""
import json
import pathlib
import signal
import sys
import time

from tokenizers import Tokenizer

from plexrl_c import Model
from service import Service

PROMPTS = ["The capital of France is Paris, and the capital of Italy is",
           "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
           "<|im_start|>user\nWrite an expression that equals 98. Use each of the numbers 44, 19 and 35 exactly once.<|im_end|>\n"
           "<|im_start|>assistant\n",
           "<|im_start|>user\nName three rivers of Europe.<|im_end|>\n<|im_start|>assistant\n",
           "Water boils at 100 degrees Celsius at sea level. On a high mountain it boils at",
           "SELECT name, COUNT(*) FROM orders GROUP BY name HAVING",
           "Q: If a train travels 60 miles in 45 minutes, what is its speed in miles per hour?\nA:",
           "Der Rhein entspringt in den Schweizer Alpen und mündet in die"]


def row(peer, **values):
    print(json.dumps({"peer": peer, **values}), flush=True)


def skip(reason):
    """scripts/bench-peers counts it and prints the reason."""
    print(f"skip: {reason}")
    sys.exit(77)


class Subject:
    """SmolLM2-135M-Instruct below a plexrld of the build, for sampling only."""

    def __init__(self, build):
        # At its limit of time scripts/bench-peers asks to end; the service must not stay.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        build = pathlib.Path(build)
        self.folder = (build / "models/smollm2-135m").resolve()
        tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        self.prompts = [tokenizer.encode(text).ids for text in PROMPTS]
        self.end_tokens = [tokenizer.token_to_id(text) for text in ("<|im_end|>", "<|endoftext|>")]
        self.service = Service(build, json.loads((self.folder / "config.json").read_text()), self.folder)
        try:
            self.model = Model(build, *self.service.open_job(1, "none"), name="m", train_mode="none")
        except BaseException:
            self.service.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.service.stop()

    def greedy(self, tokens, count):
        """The continuation, its log-probabilities and how long it took."""
        begin = time.monotonic()
        new, logprobs = self.model.generate(0, [tokens], 1, count, 0.0, 1)[0]
        return new, logprobs, time.monotonic() - begin
