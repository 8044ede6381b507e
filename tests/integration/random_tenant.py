# SPDX-License-Identifier: Apache-2.0
"""random_tenant.py BUILD SEED OPS STATE: a full-parameter model that does OPS random ops.

Which ops, and on what data, follows from SEED alone; the pauses between them do not, so that two runs meet
other jobs at other times. Prints one line per op with everything that came back (floats in hexadecimal,
as they are compared bit for bit) and writes the checkpoint to STATE.
"""
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import plexrl_c  # noqa: E402

VOCABULARY, CONTEXT = 32, 48


class Tenant:
    def __init__(self, build, seed):
        self.random = random.Random(seed)
        self.model = plexrl_c.Model(build, os.environ["PLEXRL_SOCKET"], os.environ["PLEXRL_TOKEN"],
                                    name="random", base="tiny", train_mode="full", seed=seed)
        self.version = self.model.publish()

    def sequence(self, least, most):
        return [self.random.randrange(VOCABULARY) for _ in range(self.random.randint(least, most))]

    def generate(self):
        prompts = [self.sequence(1, 16) for _ in range(self.random.randint(1, 6))]
        rows = self.model.generate(self.version, prompts, self.random.randint(1, 4), self.random.randint(1, 24),
                                   self.random.choice([0.0, 0.7, 1.0]), self.random.getrandbits(32))
        return [(tokens, shown(logprobs)) for tokens, logprobs in rows]

    def logprobs(self):
        sequences = [self.sequence(2, CONTEXT) for _ in range(self.random.randint(1, 6))]
        return [shown(row) for row in self.model.logprobs(self.version, sequences)]

    def forward_backward(self):
        data = []
        for _ in range(self.random.randint(1, 6)):
            tokens = self.sequence(2, CONTEXT)
            data.append({"tokens": tokens[:-1], "target_tokens": tokens[1:],
                         "weights": [self.random.random() for _ in tokens[1:]]})
        result, rows = self.model.forward_backward(plexrl_c.CROSS_ENTROPY, data)
        return float.hex(result.loss_sum), [shown(row) for row in rows]

    def optim_step(self):
        self.forward_backward()
        self.model.optim_step(learning_rate=self.random.choice([1e-3, 1e-2]), beta1=0.9, beta2=0.95, eps=1e-8,
                              weight_decay=self.random.choice([0.0, 0.1]), grad_clip_norm=1.0)

    def publish(self):
        self.version = self.model.publish()
        return self.version

    def op(self):
        name = self.random.choices(["generate", "logprobs", "forward_backward", "optim_step", "publish"],
                                   [4, 2, 2, 4, 2])[0]
        return name, getattr(self, name)()


def shown(values):
    return [float.hex(value) for value in values]


def main():
    build, seed, ops, state = sys.argv[1:]
    tenant = Tenant(build, int(seed))
    for i in range(int(ops)):
        print(i, *tenant.op(), flush=True)
        time.sleep(random.random() * 0.02)
    tenant.model.save(state, plexrl_c.CHECKPOINT)


main()
