# SPDX-License-Identifier: Apache-2.0
"""The sbatch scripts of doc/examples under Slurm (examples.bats), with the packages that they use."""
import os
import pathlib
import re
import subprocess
import sys

from test_tinker import VERSIONS

HERE = pathlib.Path(__file__).parent
SKIPPED = 77


def main():
    openai = re.search(r"^openai==(\S+)$", (HERE / "requirements.txt").read_text(), re.M)[1]
    variables = {**os.environ, "PLEXRL_BUILD": str(pathlib.Path(sys.argv[1]).resolve()), "OPENAI_VERSION": openai,
                 "TINKER_VERSION": VERSIONS[0]}
    run = subprocess.run(["bats", "--tap", HERE / "examples.bats"], env=variables, stdout=subprocess.PIPE, text=True,
                         check=False)
    print(run.stdout, end="")
    if run.returncode != 0:
        return 1
    return SKIPPED if "# skip" in run.stdout else 0


if __name__ == "__main__":
    sys.exit(main())
