# SPDX-License-Identifier: Apache-2.0
"""Tasks of the package reasoning-gym (PyPI) for `plexrl train --env-cmd`:

    plexrl train --env-cmd 'exec python3 reasoning_gym_env.py chain_sum num_terms=2' --chat ...

The first argument names the data set, the others are options of it as NAME=JSON. What stands in the last
<answer></answer> is scored by the data set, and all that the model wrote if there is none. With --plain before the
name the question asks for no <answer> and all that the model wrote is scored: very small models answer worse when they
are asked for a form, and the data sets give part of the reward to an answer that holds the right one, more to a shorter
one."""
import json
import pathlib
import re
import sys

import reasoning_gym

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import plexrl_env  # noqa: E402

SUFFIX = "\nPut your final answer between <answer> and </answer>."


class ReasoningGym:
    def __init__(self, name, options, plain):
        self.name = name
        self.plain = plain
        self.options = options

    def reset(self, seed, split):
        # A data set of one task each: its seeds are 32 bits wide. Those of plexrl are even for training and odd for
        # held-out tasks; the remainder keeps that.
        self.data = reasoning_gym.create_dataset(self.name, seed=seed % 2 ** 32, size=1, **self.options)
        self.entry = self.data[0]
        return self.entry["question"] + ("" if self.plain else SUFFIX)

    def step(self, action, stopped):
        found = [] if self.plain else re.findall(r"<answer>(.*?)</answer>", action, re.DOTALL)
        answer = found[-1].strip() if found else action.strip()
        return "", self.data.score_answer(answer=answer, entry=self.entry), True


def main():
    plain = sys.argv[1:2] == ["--plain"]
    arguments = sys.argv[2:] if plain else sys.argv[1:]
    if not arguments:
        sys.exit("usage: reasoning_gym_env.py [--plain] DATA_SET [NAME=JSON ...]")
    options = dict(argument.split("=", 1) for argument in arguments[1:])
    task = ReasoningGym(arguments[0], {name: json.loads(text) for name, text in options.items()}, plain)
    task.reset(0, "train")  # an unknown name or option is told at the start
    plexrl_env.serve(task)


if __name__ == "__main__":
    main()
