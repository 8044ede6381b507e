# SPDX-License-Identifier: Apache-2.0
"""Event files against the reader of the `tensorboard` package: a run, and one that was resumed from its step 30."""
import math
import pathlib
import subprocess
import sys
import tempfile
import time

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(folder, tag):
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    assert sorted(reader.Tags()["scalars"]) == ["grpo/loss", "grpo/reward"], reader.Tags()
    return {event.step: event.value for event in reader.Scalars(tag)}


def main():
    program = pathlib.Path(sys.argv[1]) / "tests/interop/event_file"
    with tempfile.TemporaryDirectory(prefix="plexrl-interop-") as folder:
        subprocess.run([program, folder, "new"], check=True)
        first = scalars(folder, "grpo/reward")
        assert list(first) == list(range(1, 41))
        assert all(abs(value - math.sqrt(step)) < 1e-5 for step, value in first.items())
        time.sleep(1.1)  # the reader takes files in the order of their names, which have the second
        subprocess.run([program, folder, "resumed"], check=True)
        both = scalars(folder, "grpo/reward")
        expected = {step: math.sqrt(step) + (100 if step > 30 else 0) for step in range(1, 71)}
        assert both.keys() == expected.keys()
        assert all(abs(both[step] - expected[step]) < 1e-4 for step in expected)
    print("  40 steps, and 40 more of a resumed run in place of the last 10")


if __name__ == "__main__":
    main()
