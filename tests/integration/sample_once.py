# SPDX-License-Identifier: Apache-2.0
"""sample_once.py BUILD: one generate call of the job in the environment; fails when it takes 20 s."""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import plexrl_c  # noqa: E402

signal.alarm(20)
model = plexrl_c.Model(sys.argv[1], os.environ["PLEXRL_SOCKET"], os.environ["PLEXRL_TOKEN"],
                       name="sampler", base="tiny", train_mode="none")
rows = model.generate(0, [[1, 2, 3]], 2, 4, 1.0, 5)
assert len(rows) == 2 and all(tokens for tokens, _ in rows), rows
