#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# plexrld and its engines in a hostile or unlucky world, with the real programs and without Slurm.
# PLEXRL_SOAK multiplies the number of kills.

load daemon_helpers
build='' node='' daemon='' # the helpers set them

setup() { require_daemon; }
teardown() { drop_node; }

# One generate call of the job whose environment is in `pairs`.
sample() { env "${pairs[@]}" python3 "$BATS_TEST_DIRNAME/sample_once.py" "$build"; }

@test "random kills of the engine, of plexrld, of both: the same state bit for bit" {
  make_node
  start_daemon
  reference
  # Its engine is left alone and keeps the node's memory when plexrld and the other engine die.
  local pairs
  mapfile -t pairs < <(open_job 2 lora)
  sample
  local kills=$((10 * ${PLEXRL_SOAK:-1})) kill seed=${PLEXRL_SEED:-$RANDOM}
  RANDOM=$seed
  for ((kill = 0; kill < kills; kill++)); do
    local job=$((kill + 10)) what=$((kill % 3)) pause
    pause=$(printf '0.%03d' $((RANDOM % 700)))
    echo "kill $kill of $kills: what $what after $pause s, PLEXRL_SEED=$seed"
    train "$job" &
    local trainer=$!
    wait_for_step "$job" 1
    sleep "$pause"
    [ "$what" = 1 ] || kill -9 "$(engine)"
    if [ "$what" != 0 ]; then
      kill -9 "$daemon"
      wait "$daemon" || true
      start_daemon
    fi
    wait "$trainer" || cat "$node/$job.out" "$node/log"
    same_as_reference "$job"
    close_job "$job"
  done
}

@test "plexrld and every engine die: the job is told that its state is lost" {
  make_node
  start_daemon
  train 60 &
  local trainer=$!
  wait_for_step 60 2
  kill -9 "$daemon" "$(engine)"
  wait "$daemon" || true
  start_daemon
  if wait "$trainer"; then return 1; fi
  cat "$node/60.out"
  grep "^plexrl: LOST: .*the state of model '.*' is gone: it was in memory that ended with plexrld and its engines; it starts from its base again: load a checkpoint" "$node/60.out"
}

# The longest pause of each is printed, as a measurement: of one whose base is shared with the engine that
# dies, and of one with an engine of its own.
@test "an engine shared by two jobs dies: both go on, and the other engine is never started again" {
  make_node
  start_daemon
  local pairs shared_out="$node/shared.out" own_out="$node/own.out" kill
  mapfile -t pairs < <(open_job 71 full)
  env "${pairs[@]}" python3 "$BATS_TEST_DIRNAME/random_tenant.py" "$build" 3 100000 "$node/own.state" >"$own_out" 3>&- &
  local own=$!
  until [ -s "$own_out" ]; do sleep 0.05; done
  local untouched
  untouched=$(engine)
  mapfile -t pairs < <(open_job 72 lora)
  env "${pairs[@]}" python3 "$BATS_TEST_DIRNAME/bystander.py" "$build" "$node/end" >"$shared_out" 3>&- &
  local bystander=$!
  for kill in 73 74 75; do
    mapfile -t pairs < <(open_job "$kill" lora)
    env "${pairs[@]}" timeout 60 "$build/plexrl" train --env sort --seed 5 --steps 3 --prompts 4 --samples 2 \
      --eval-prompts 0 --log "$node/$kill.log" >"$node/$kill.out" 2>&1 3>&- &
    local trainer=$!
    wait_for_step "$kill" 1
    [ "$(engine)" != "$untouched" ]
    kill -9 "$(engine)"
    wait "$trainer" || cat "$node/$kill.out" "$node/log"
    [ "$(grep -c '"phase":"grpo"' "$node/$kill.log")" = 3 ]
    close_job "$kill"
  done
  touch "$node/end"
  wait "$bystander"
  echo "# the bystander on the shared base waited $(cat "$shared_out") ms at most" >&3
  kill -0 "$untouched"
  kill "$own"
}

@test "an engine that stands still is ended, and the job reaches the same state" {
  make_node
  start_daemon
  reference
  train 20 &
  local trainer=$!
  wait_for_step 20 2
  kill -STOP "$(engine)"
  wait "$trainer"
  same_as_reference 20
  grep 'engine .* ended: it did not' "$node/log"
}

@test "an engine whose job is gone is ended when plexrld starts again; a pid file is not believed" {
  make_node
  start_daemon
  local pairs other stray
  mapfile -t pairs < <(open_job 25 lora)
  sample
  stray=$(engine)
  kill -9 "$daemon"
  wait "$daemon" || true
  rm -rf "$node"/state/* # what plexrld knew
  sleep 1000 3>&- &
  other=$!
  echo "$other" >"$node/run/engines/99.sock.pid"
  start_daemon
  if readlink "/proc/$stray/exe"; then return 1; fi # a zombie has none
  kill -0 "$other"
  [ -z "$(ls "$node/run/engines")" ]
  mapfile -t pairs < <(open_job 26 lora)
  sample
}

@test "a full disk: training waits, sampling goes on, and both end well when there is room" {
  make_node
  start_daemon
  reference
  drop_node
  make_node 6m # the store's log alone grows to 4 MiB
  start_daemon
  local pairs
  mapfile -t pairs < <(open_job 31 lora)
  sample
  train 30 &
  local trainer=$!
  wait_for_step 30 2
  dd if=/dev/zero of="$node/state/ballast" bs=4k 2>/dev/null || true
  sleep 1
  sample
  kill -0 "$trainer"
  ask status
  rm "$node/state/ballast"
  wait "$trainer"
  same_as_reference 30
}

@test "a full disk and kills of engine and plexrld: nothing acknowledged is lost" {
  make_node
  start_daemon
  reference
  drop_node
  make_node 6m # the store's log alone grows to 4 MiB
  start_daemon
  train 30 &
  local trainer=$!
  wait_for_step 30 2
  dd if=/dev/zero of="$node/state/ballast" bs=4k 2>/dev/null || true
  sleep 1
  kill -9 "$(engine)"
  sleep 1
  rm "$node/state/ballast"
  wait "$trainer"
  same_as_reference 30
}

@test "users have no access to each other's jobs, models and documents" {
  make_node
  start_daemon
  local alice bob client="$node/plexrl"
  cp "$build/plexrl" "$client"
  mapfile -t alice < <(open_job 41 lora nobody)
  mapfile -t bob < <(open_job 42 lora daemon)
  as() { runuser -u "$1" -- env "${@:2}"; }
  train_as() { as "$1" "${@:2}" "$client" train --env sort --steps 0 --eval-prompts 0; }
  train_as nobody "${alice[@]}"
  run train_as daemon "${alice[@]}"
  [ "$status" != 0 ]
  [[ $output == *"token not accepted"* ]]
  run train_as daemon "${bob[@]/%/0}"
  [ "$status" != 0 ]
  jobs_of() { as "$1" "$client" jobs --json --socket "$node/run/plexrld.sock" | jq -c '[.jobs[].job_id]'; }
  [ "$(jobs_of nobody)" = '[41]' ]
  [ "$(jobs_of daemon)" = '[42]' ]
  run as daemon "$client" report 41 --socket "$node/run/plexrld.sock"
  [ "$status" != 0 ]
  run as daemon "$client" job close --job-id 41 --socket "$node/run/plexrld.sock"
  [ "$status" != 0 ]
  run as daemon ls "$node/state/store" "$node/run/engines"
  [ "$status" != 0 ]
  ask job close --job-id 41
  run train_as nobody "${alice[@]}"
  [ "$status" != 0 ]
  [[ $output == *"token not accepted"* ]]
}

@test "an administrator is found in a group of thousands" {
  make_node
  echo '  admin_groups: [plexrl-many]' >>"$node/plexrl.yaml"
  {
    cat /etc/group
    echo "plexrl-many:x:64987:$(seq -s, -f 'somebody%g' 9000),nobody"
  } >"$node/group"
  # shellcheck disable=SC2016
  start_daemon unshare --mount bash -c 'mount --bind "$0" /etc/group && exec "$@"' "$node/group"
  open_job 43 lora daemon
  cp "$build/plexrl" "$node/plexrl"
  [ "$(runuser -u nobody -- "$node/plexrl" jobs --json --socket "$node/run/plexrld.sock" | jq -c '[.jobs[].job_id]')" = '[43]' ]
}

@test "broken, slow, greedy and dying clients disturb nobody" {
  make_node
  start_daemon
  local pairs
  mapfile -t pairs < <(open_job 51 lora)
  env "${pairs[@]}" python3 "$BATS_TEST_DIRNAME/hostile_clients.py" "$build" "$daemon"
  sample
}

@test "requests that are larger than the model, the memory or a frame are refused; others go on" {
  make_node
  sed -i 's/device_memory_mib: 256/device_memory_mib: 88/' "$node/plexrl.yaml"
  start_daemon
  local pairs huge
  mapfile -t pairs < <(open_job 61 lora)
  mapfile -t huge < <(open_job 62 lora)
  sample
  local before
  before=$(engine)
  env "${huge[@]}" python3 "$BATS_TEST_DIRNAME/huge_requests.py" "$build" &
  local attacker=$! rounds=0
  while kill -0 "$attacker" 2>/dev/null; do
    sample
    rounds=$((rounds + 1))
  done
  wait "$attacker"
  [ "$rounds" -gt 0 ]
  [ "$(engine)" = "$before" ]
  if grep -E 'is down|ended' "$node/log"; then return 1; fi
}
