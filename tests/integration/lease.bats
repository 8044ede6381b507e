#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Leases with the real programs and without Slurm: jobs with an engine of their own take turns on the
# device with each other and with ordinary tenants. A shell with the title of a slurmstepd stands for
# Slurm, so that plexrl-reap finds whose process is whose.

load daemon_helpers
build='' node='' daemon='' # the helpers set them
user=nobody

setup() {
  require_daemon
  [ -x "$build/plexrl-reap" ] || skip "plexrl-reap is not built"
  make_node
  sed -i 's/activation_memory_mib: 64/activation_memory_mib: 64, lease_slice_s: 1, lease_limit_s: 30/' "$node/plexrl.yaml"
  # Its user has to reach the library.
  mkdir -p "$node/lib/.libs"
  cp -L "$build/.libs/libplexrl.so" "$node/lib/.libs/"
  cp "$BATS_TEST_DIRNAME/lease_holder.py" "$build/plexrl" "$node/lib/"
  [ -x "$build/.libs/plexrl" ] && cp "$build/.libs/plexrl" "$node/lib/plexrl"
  chmod -R a+rX "$node/lib"
  start_daemon
}
teardown() {
  [ -z "${supervisor:-}" ] || { kill "$supervisor"; wait "$supervisor" || true; }
  drop_node
}

start_reaper() {
  "$BATS_TEST_DIRNAME/../../scripts/lab.d/supervise" --on-demand --user root --runtime-dir "$node/reap" \
    --socket "plexrl-reap.socket=$node/run/plexrl-reap.sock:0600" --child-pid-file "$node/reap.child" -- \
    "$build/plexrl-reap" --user root >>"$node/reap.log" 2>&1 3>&- &
  supervisor=$!
  local try
  for ((try = 0; try < 200; try++)); do
    [ -S "$node/run/plexrl-reap.sock" ] && return 0
    sleep 0.05
  done
  cat "$node/reap.log"
  return 1
}

# in_job ID COMMAND...: a step of the job, below a slurmstepd, as its user.
in_job() {
  local id=$1 pairs
  shift
  mapfile -t pairs < <(open_job "$id" none "$user")
  # shellcheck disable=SC2016
  (exec -a "slurmstepd: [$id.0]" bash -c 'setpriv --reuid "$0" --clear-groups "$@" & wait $!' \
    "$user" timeout 100 env "${pairs[@]}" "$@") 3>&-
}
holder() { python3 "$node/lib/lease_holder.py" "$node/lib" "$@"; }
holder_in() {
  local id=$1
  shift
  in_job "$id" python3 "$node/lib/lease_holder.py" "$node/lib" "$@" >"$node/$id.out" 2>&1
}
says() {
  local try
  for ((try = 0; try < 600; try++)); do
    grep -q "$2" "$node/$1.out" 2>/dev/null && return 0
    sleep 0.05
  done
  cat "$node/$1.out" "$node/log"
  return 1
}
pid_of_holder() { pgrep -f "^python3 $node/lib/lease_holder.py $node/lib $1"; }

# alternate_with MODE TURNS: jobs 71, in this mode, and 72 take turns and keep their data.
alternate_with() {
  holder_in 71 "$1" 1 "$2" 8 &
  local one=$!
  holder_in 72 alternate 2 "$2" 8 &
  local two=$!
  wait "$one" || cat "$node/71.out" "$node/log"
  wait "$two" || cat "$node/72.out" "$node/log"
  tail -n 1 "$node/71.out" | grep -x 'done'
  tail -n 1 "$node/72.out" | grep -x 'done'
}

@test "two jobs alternate on the device and keep their data bit for bit" {
  alternate_with alternate 4
  ask report 71 --json | jq -e '.ops_by_kind.lease.count == 1'
}

@test "a suspended region cannot be touched; one beyond the grant is refused" {
  holder_in 71 fault || { cat "$node/71.out"; return 1; }
  holder_in 72 too-large $((65 << 20)) || { cat "$node/72.out"; return 1; }
  grep 'NO_CAPACITY\|host memory' "$node/72.out"
}

@test "regions on a CUDA device alternate with host regions and keep their data" {
  cp -L "$build/tests/fakes/.libs/libcuda_stub.so" "$node/lib/"
  chmod a+r "$node/lib/libcuda_stub.so"
  export PLEXRL_CUDA_LIBRARY=$node/lib/libcuda_stub.so
  alternate_with alternate-cuda 3
  holder_in 73 fault-cuda || { cat "$node/73.out"; return 1; }
  export PLEXRL_CUDA_LIBRARY=$node/lib/none.so
  if holder_in 74 alternate-cuda 1 1 1; then return 1; fi
  grep 'no CUDA driver' "$node/74.out"
}

@test "one that refuses to yield is stopped through plexrl-reap; the next and other tenants go on" {
  start_reaper
  local pairs
  mapfile -t pairs < <(open_job 5 lora)
  env "${pairs[@]}" python3 "$BATS_TEST_DIRNAME/sample_once.py" "$build" >"$node/before"
  holder_in 71 refuse &
  local refuser=$!
  says 71 held
  ask status --json | jq -e '.lease.job_id == 71 and .lease.state == "held"'
  holder_in 72 once &
  local next=$!
  local try
  for ((try = 0; try < 400; try++)); do
    ask ops --json | jq -e 'any(.ops[]; .job_id == 72 and .kind == "lease" and (.why | test("waiting for job 71")))' && break
    sleep 0.05
  done
  [ "$try" -lt 400 ]
  wait "$next"
  grep -x 'done' "$node/72.out"
  if wait "$refuser"; then return 1; fi
  grep 'did not yield lease' "$node/log"
  grep '1 processes stopped\|2 processes stopped' "$node/reap.log"
  env "${pairs[@]}" python3 "$BATS_TEST_DIRNAME/sample_once.py" "$build" >"$node/after"
  cmp "$node/before" "$node/after"
  ask status --json | jq -e '.lease == null and .leases_stopped == 1'
}

@test "one that a signal has stopped counts as not yielding" {
  start_reaper
  holder_in 71 refuse &
  local refuser=$!
  says 71 held
  pid_of_holder refuse | xargs kill -STOP
  holder_in 72 once || { cat "$node/72.out" "$node/log" "$node/reap.log"; return 1; }
  if wait "$refuser"; then return 1; fi
}

@test "one that dies holding frees the device at once" {
  holder_in 71 refuse &
  local refuser=$!
  says 71 held
  holder_in 72 once &
  local next=$!
  sleep 0.2
  pid_of_holder refuse | xargs kill -KILL
  wait "$next"
  wait "$refuser" || true
  if grep 'did not yield' "$node/log"; then return 1; fi
}

@test "a lease is held over a kill of plexrld" {
  holder_in 71 alternate 1 3 4 &
  local one=$!
  says 71 'turn 0'
  kill -9 "$daemon"
  wait "$daemon" || true
  start_daemon
  ask status --json | jq -e '.lease.job_id == 71'
  holder_in 72 alternate 2 3 4 &
  local two=$!
  wait "$one" || { cat "$node/71.out" "$node/log"; return 1; }
  wait "$two" || { cat "$node/72.out" "$node/log"; return 1; }
}

# shellcheck disable=SC2016 # the inner shell expands
@test "lease run: exit status, signals, limit, a command that makes way" {
  start_reaper
  run in_job 71 "$node/lib/plexrl" lease run -- sh -c 'echo inside; exit 7'
  echo "$output"
  [ "$status" = 7 ]
  [[ $output == *inside* ]]
  run in_job 72 "$node/lib/plexrl" lease run -- sh -c 'kill -USR1 $PPID; sleep 20'
  [ "$status" = $((128 + 10)) ]
  run in_job 73 "$node/lib/plexrl" lease run --limit 1 -- sleep 60
  [ "$status" = $((128 + 15)) ]
  run in_job 77 "$node/lib/plexrl" lease run --limit 100 -- true
  [ "$status" = 0 ]
  [[ $output == *"--limit 100 is above the site's limit"*"after 30 s"* ]]
  run in_job 78 "$node/lib/plexrl" lease run --limit 30 -- true
  [ "$status" = 0 ]
  [[ $output != *limit* ]]
  # Counts its turns: the signal makes it stop itself, which gives the device up.
  cat >"$node/lib/turns.sh" <<-'END'
	n=0
	trap 'n=$((n + 1)); kill -STOP $$' USR1
	while [ $n -lt 2 ]; do sleep 0.05; done
	echo "turns $n"
	END
  in_job 74 "$node/lib/plexrl" lease run --yield-signal USR1 -- bash "$node/lib/turns.sh" >"$node/74.out" 2>&1 &
  local turns=$!
  local try
  for ((try = 0; try < 200; try++)); do
    [ "$(ask status --json | jq .lease.job_id)" = 74 ] && break
    sleep 0.05
  done
  holder_in 75 once
  holder_in 76 once
  wait "$turns" || { cat "$node/74.out" "$node/log"; return 1; }
  grep -x 'turns 2' "$node/74.out"
}

@test "a lease parks ordinary models, which come back and train to the same bits" {
  train 1
  state_of 1 >"$node/reference"
  close_job 1
  train 20 &
  local trainer=$!
  wait_for_step 20 2
  holder_in 71 alternate 3 2 4 || { cat "$node/71.out" "$node/log"; return 1; }
  holder_in 72 once || { cat "$node/72.out" "$node/log"; return 1; }
  wait "$trainer" || { cat "$node/20.out" "$node/log"; return 1; }
  [ "$(state_of 20)" = "$(cat "$node/reference")" ]
}
