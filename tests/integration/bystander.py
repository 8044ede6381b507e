# SPDX-License-Identifier: Apache-2.0
"""bystander.py BUILD FILE: samples without a pause until FILE exists; prints the longest time, in
milliseconds, between two answers."""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import plexrl_c  # noqa: E402


def main():
    build, end = sys.argv[1:]
    model = plexrl_c.Model(build, os.environ["PLEXRL_SOCKET"], os.environ["PLEXRL_TOKEN"], name="sampler",
                           base="tiny", train_mode="none")
    first = model.generate(0, [[1, 2, 3]], 1, 4, 1.0, 5)
    longest, last = 0.0, time.monotonic()
    while not os.path.exists(end):
        assert model.generate(0, [[1, 2, 3]], 1, 4, 1.0, 5) == first
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    print(round(longest * 1000))


main()
