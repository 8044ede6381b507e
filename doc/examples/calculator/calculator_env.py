# SPDX-License-Identifier: Apache-2.0
"""A task with a tool, for `plexrl train --env-cmd`. The model is asked for the value of an expression. It may write
calc(EXPRESSION) and is told the value; "answer: NUMBER" ends the episode. Reward: 1 for the right number, 0.1 for another
number, 0 for none; a call of the tool that has a value adds 0.05, once."""
import ast
import operator
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import plexrl_env  # noqa: E402

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
LARGEST = 10 ** 12
MAX_CHARACTERS = 200
QUESTION = "Question: {}\nWrite calc(expression) to have it computed, then answer: number\n"


def value_of(node):
    """The model writes the expression: only numbers, + - * and small results."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        value = OPERATIONS[type(node.op)](value_of(node.left), value_of(node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = -value_of(node.operand)
    else:
        raise ValueError("only whole numbers, + - * and parentheses")
    if abs(value) > LARGEST:
        raise ValueError("too large")
    return value


def compute(text):
    if len(text) > MAX_CHARACTERS:
        raise ValueError("too long")
    return value_of(ast.parse(text.strip(), mode="eval").body)


class Calculator:
    def reset(self, seed, split):
        # The seeds of the splits differ, and so do the tasks: the last number is odd in one and even in the other.
        source = random.Random(seed)
        a, b, c = (source.randrange(2, 50) for _ in range(3))
        c = c * 2 + (split == "held_out")
        self.expression = f"{a}*{b}+{c}"
        self.right = a * b + c
        self.called = False
        return QUESTION.format(self.expression)

    def step(self, action, stopped):
        answer = re.search(r"answer:\s*(-?\d{1,15})", action)
        if answer is not None:
            return "", 1.0 if int(answer.group(1)) == self.right else 0.1, True
        call = re.search(r"calc\((.{0,200})\)", action)
        if call is None:
            return "Write calc(expression) or answer: number\n", 0.0, False
        try:
            result = str(compute(call.group(1)))
        except (ValueError, SyntaxError, RecursionError, MemoryError) as problem:
            return f"error: {type(problem).__name__}\n", 0.0, False
        first, self.called = not self.called, True
        return f"= {result}\n", 0.05 if first else 0.0, False


if __name__ == "__main__":
    plexrl_env.serve(Calculator())
