#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Processes die under load: engine, plexrld, slurmstepd; plexrld stays away; 20 queued jobs survive.

load helpers

setup_file() {
  require_slurm
  require_build spank_plexrl.so job_submit_plexrl.so plexrld plexrl plexrl-engine
  make_lab_folder
  lab up --nodes 1 --config "$BATS_TEST_DIRNAME/site.yaml"
}
teardown_file() { drop_lab; }
teardown() {
  local job
  for job in $(root_ctl squeue -h -o %A); do root_ctl scancel "$job"; done
  poll 30 queue_empty
}
queue_empty() { [ -z "$(root_ctl squeue -h)" ]; }

pool_options=(--plexrl-pool=rl --plexrl-model=tiny)

# train NAME OPTIONS...: submits a full-parameter job that saves its final state in NAME.state.
train() {
  local user=$1 name=$2
  shift 2
  submit "$user" "${pool_options[@]}" --plexrl-train=full -o "$name.out" --wrap \
    "plexrl train --env sort --seed 5 --steps 8 --prompts 16 --samples 4 --length-penalty 1 --log $name.log --save $name.state"
}
state_of() { sha256sum "$PLEXRL_LAB/home/$1/$2.state" | cut -d' ' -f1; }
steps_done() { [ "$(grep -c '"phase":"grpo"' "$PLEXRL_LAB/home/$1/$2.log" 2>/dev/null)" -ge "$3" ]; }
# The pid of the newest engine of that mode: those of closed jobs stay for a while.
engine_of_mode() {
  on node1 plexrl status --json | jq -e -r "[.engines[] | select(.mode == \"$1\" and .state == \"up\")] | max_by(.engine) | .pid"
}
daemon_pid() { lab daemon node1 pid; }

# The state of an undisturbed run, which the disturbed ones must reach bit for bit.
reference() {
  if [ ! -s "$BATS_FILE_TMPDIR/reference" ]; then
    finished "$(train plx-alice reference)" COMPLETED 120
    jq -es '[.[].grad_norm // 0] | max > 0' "$PLEXRL_LAB/home/plx-alice/reference.log" >&2 || return 1  # it learns
    state_of plx-alice reference >"$BATS_FILE_TMPDIR/reference"
  fi
  cat "$BATS_FILE_TMPDIR/reference"
}

@test "kill -9 of an engine: the job reaches the same state, another engine's tenant goes on" {
  expected=$(reference)
  other=$(submit plx-bob "${pool_options[@]}" -o other.out \
    --wrap 'plexrl train --env sort --steps 12 --prompts 8 --samples 4 --log other.log')
  job=$(train plx-alice engine)
  poll 60 steps_done plx-alice engine 2
  victim=$(engine_of_mode full)
  other_engine=$(engine_of_mode lora)
  kill -9 "$victim"
  finished "$job" COMPLETED 120
  finished "$other" COMPLETED 120
  [ "$(state_of plx-alice engine)" = "$expected" ]
  [ "$(engine_of_mode lora)" = "$other_engine" ]
}

@test "kill -9 of plexrld: engines live on, the job reaches the same state" {
  expected=$(reference)
  job=$(train plx-alice daemon)
  poll 60 steps_done plx-alice daemon 2
  engine=$(engine_of_mode full)
  old=$(daemon_pid)
  kill -9 "$old"
  finished "$job" COMPLETED 120
  [ "$(daemon_pid)" != "$old" ]
  [ "$(engine_of_mode full)" = "$engine" ]
  [ "$(state_of plx-alice daemon)" = "$expected" ]
}

@test "restart of plexrld under load of two users: both jobs complete, the state is the same" {
  expected=$(reference)
  one=$(train plx-alice restart)
  two=$(train plx-bob restart)
  poll 60 steps_done plx-alice restart 1
  poll 60 steps_done plx-bob restart 1
  lab daemon node1 restart
  finished "$one" COMPLETED 120
  finished "$two" COMPLETED 120
  [ "$(state_of plx-alice restart)" = "$expected" ]
  [ "$(state_of plx-bob restart)" = "$expected" ]
}

@test "kill -9 of slurmstepd: scancel closes the tenant and the next job runs" {
  job=$(submit plx-alice "${pool_options[@]}" -o stepd.out \
    --wrap 'plexrl train --env sort --steps 100000 --prompts 4 --samples 2 --log stepd.log')
  poll 60 steps_done plx-alice stepd 1
  # The step daemon is the parent of the batch script.
  script=$(processes_of_job "$job" | sort -n | head -n 1)
  stepd=$(awk '{ print $4 }' "/proc/$script/stat")
  grep -q slurmstepd "/proc/$stepd/cmdline"
  kill -9 "$stepd"
  root_ctl scancel "$job"
  poll 30 job_ended "$job"
  closed() { [ "$(on node1 plexrl jobs --json | jq -r ".jobs[] | select(.job_id == $job) | .state")" = closed ]; }
  poll 30 closed
  for pid in $(processes_of_job "$job"); do kill -9 "$pid" || true; done
  finished "$(submit plx-alice "${pool_options[@]}" -o after.out --wrap 'plexrl train --env sort --steps 1 --prompts 2 --samples 2')" COMPLETED
  no_drain
}

@test "plexrld away: a started job waits, then fails in its own output; 20 queued ones survive" {
  lab daemon node1 stop
  first=$(submit plx-alice "${pool_options[@]}" -o away.out --wrap 'touch never-to-be')
  drained() { node_states | grep -i drain; }
  poll 60 drained
  queued=()
  for i in $(seq 20); do
    queued+=("$(submit plx-bob "${pool_options[@]}" -o "queued-$i.out" --wrap true)")
  done
  finished "$first" FAILED 90
  [ ! -e "$PLEXRL_LAB/home/plx-alice/never-to-be" ]
  contains "$(cat "$PLEXRL_LAB/home/plx-alice/away.out")" "plexrl"
  contains "$(node_states)" "plexrl"
  for job in "${queued[@]}"; do job_is "$job" PENDING; done
  lab daemon node1 start
  for job in "${queued[@]}"; do finished "$job" COMPLETED 120; done
}

@test "a short absence of plexrld is not noticed by a job that starts meanwhile" {
  lab daemon node1 stop
  job=$(submit plx-alice "${pool_options[@]}" -o short.out --wrap 'plexrl train --env sort --steps 1 --prompts 2 --samples 2')
  running() { job_is "$job" RUNNING; }
  poll 20 running || true
  lab daemon node1 start
  finished "$job" COMPLETED 60
}

@test "no node ends drained" {
  poll 60 no_drain
}
