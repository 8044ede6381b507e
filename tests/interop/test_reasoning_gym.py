# SPDX-License-Identifier: Apache-2.0
"""doc/examples/reasoning_gym_env.py with the package reasoning-gym: the right answer of a task is worth 1, another less,
and the same seed gives the same task in another process. With --plain the question is the data set's own, and all of the
answer is scored."""
import json
import pathlib
import subprocess
import sys

import reasoning_gym

EXAMPLE = pathlib.Path(__file__).parents[2] / "doc/examples/reasoning_gym_env.py"
SETS = [("chain_sum", []), ("basic_arithmetic", []), ("countdown", []), ("leg_counting", [])]
SEEDS = (0, 2, 3, 2 ** 53 - 2)


class Worker:
    def __init__(self, name, options):
        self.process = subprocess.Popen([sys.executable, EXAMPLE, name, *options], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.sent = 0
        assert self.ask(op="hello", protocol=1)["protocol"] == 1

    def ask(self, **request):
        self.sent += 1
        self.process.stdin.write(json.dumps({**request, "id": self.sent}) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        assert reply["id"] == self.sent
        return reply

    def close(self):
        self.process.stdin.write('{"op":"close"}\n')
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def check_plain():
    worker = Worker("--plain", ["chain_sum"])
    for seed in SEEDS:
        entry = reasoning_gym.create_dataset("chain_sum", seed=seed % 2 ** 32, size=1)[0]
        rewards = []
        for answer in entry["answer"], f"It is {entry['answer']}.", f"<answer>{entry['answer']}</answer>":
            assert worker.ask(op="reset", seed=seed, split="train")["observation"] == entry["question"]
            rewards.append(worker.ask(op="step", action=answer, stopped=True)["reward"])
        assert rewards[0] == 1.0 and all(0 < reward < 1 for reward in rewards[1:]), (entry, rewards)
    worker.close()


def main():
    asked = 0
    for name, options in SETS:
        first, second = Worker(name, options), Worker(name, options)
        for seed in SEEDS:
            question = first.ask(op="reset", seed=seed, split="train")["observation"]
            assert question == second.ask(op="reset", seed=seed, split="train")["observation"]
            entry = reasoning_gym.create_dataset(name, seed=seed % 2 ** 32, size=1)[0]
            assert question.startswith(entry["question"])
            right = entry["answer"] if entry["answer"] is not None else entry["metadata"]["expression"]
            reply = first.ask(op="step", action=f"<answer>{right}</answer>", stopped=True)
            assert reply["reward"] == 1.0 and reply["done"] is True, (name, entry, reply)
            assert second.ask(op="step", action="<answer>no</answer>", stopped=True)["reward"] < 1.0
            asked += 1
        first.close()
        second.close()
    check_plain()
    print(f"  {asked} tasks of {len(SETS)} data sets, right and wrong")


if __name__ == "__main__":
    main()
