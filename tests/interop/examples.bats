#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The sbatch scripts of doc/examples with the packages of PyPI that they use, in a throw-away cluster.
# Run by test_examples.py.

load ../integration/helpers

setup_file() {
  require_slurm
  require_build spank_plexrl.so job_submit_plexrl.so plexrld plexrl plexrl-engine
  make_lab_folder
  lab up --nodes 1 --config "$top/tests/integration/site.yaml"
}
teardown_file() { drop_lab; }

# An environment of the system's python3, which the cluster's users can reach.
with_package() {
  /usr/bin/python3 -m venv "$PLEXRL_LAB/$1"
  "$PLEXRL_LAB/$1/bin/pip" install --quiet --disable-pip-version-check "$2"
}
# example FOLDER SCRIPT ARGS...: submits it as a user who has a copy of the folder.
example() {
  local folder=$1
  shift
  cp "$top/doc/examples/$folder"/* "$PLEXRL_LAB/home/plx-alice/"
  as plx-alice env "PATH=$PLEXRL_LAB/$folder/bin:$PATH" TINKER_TELEMETRY=0 sbatch --parsable -o "$folder.out" "$@"
}

@test "the OpenAI client answers in a job" {
  with_package openai "openai==$OPENAI_VERSION"
  job=$(example openai answers.sbatch)
  finished "$job" COMPLETED 120
  out=$PLEXRL_LAB/home/plx-alice/openai.out
  [ "$(head -n 1 "$out")" = "tiny, contexts of 64 tokens" ] || { cat "$out"; false; }
  [ "$(grep -c 'log-probability -' "$out")" = 4 ]
}

@test "the Tinker client trains in a job" {
  with_package tinker "tinker==$TINKER_VERSION"
  job=$(example tinker sort.sbatch 24)
  finished "$job" COMPLETED 500
  out=$PLEXRL_LAB/home/plx-alice/tinker.out
  cat "$out"
  awk '/^step/ { if (n++ < 6) first += $4; last[n % 6] = $4 }
       END { for (i in last) sum += last[i]; exit !(n == 24 && sum / 6 > first / 6 + 0.03) }' "$out"
}
