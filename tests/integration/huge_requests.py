# SPDX-License-Identifier: Apache-2.0
"""huge_requests.py BUILD: requests of the job in the environment that are larger than they may be.

Each is refused with a text that names what is too large, and the next small one is served. The model
has 48 positions and a vocabulary of 32; the node's device memory is 24 MiB beside the activations.
"""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import plexrl_c  # noqa: E402

MILLION = 1 << 20
signal.alarm(100)
model = plexrl_c.Model(sys.argv[1], os.environ["PLEXRL_SOCKET"], os.environ["PLEXRL_TOKEN"], name="huge", base="tiny",
                       train_mode="lora", lora_rank=8)


def datum(count):
    return {"tokens": [1] * count, "target_tokens": [2] * count, "weights": [1.0] * count}


def generate(rows, length, new_tokens=1, copies=1):
    return model.generate(0, [[1] * length] * rows, copies, new_tokens, 1.0, 5)


def refused(words, call, *args):
    try:
        call(*args)
    except RuntimeError as error:
        text = str(error)
    else:
        raise AssertionError(f"{call.__name__} was not refused")
    assert all(word in text for word in words), text
    print("refused:", text)
    rows = generate(2, 3, 4)
    assert len(rows) == 2 and all(tokens for tokens, _ in rows), rows


def main():
    refused(("48", "positions"), generate, 1, 48)
    refused(("48", "positions"), generate, 1, 1, 4294967295)
    refused(("rows",), generate, 1, 8, 8, 4294967295)
    refused(("48", "positions"), generate, 1, 10 * MILLION // 4)
    refused(("rows",), generate, 5000, 1)
    refused(("device memory", "fewer rows"), generate, 4096, 40, 8)
    refused(("bytes", "the service takes"), generate, 1, 17 * MILLION)
    refused(("48", "positions"), model.logprobs, 0, [[1] * 49])
    refused(("48", "positions"), model.logprobs, 0, [[1] * (10 * MILLION // 4)])
    refused(("48", "positions"), model.forward_backward, plexrl_c.CROSS_ENTROPY, [datum(49)])
    refused(("48", "positions"), model.forward_backward, plexrl_c.CROSS_ENTROPY, [datum(10 * MILLION // 4)])
    refused(("data",), model.forward_backward, plexrl_c.CROSS_ENTROPY, [datum(1)] * 5000)


main()
