#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The disk tier with the real programs and without Slurm: a device that holds one model, host memory that
# holds fewer than all.

load daemon_helpers
build='' node='' daemon='' # the helpers set them

setup() { require_daemon; }
teardown() { drop_node; }

# Four jobs that train at once; fills `trainers`.
train_four() {
  trainers=()
  local job
  for job in 11 12 13 14; do
    train "$job" &
    trainers+=($!)
  done
}

# Blobs were in use at some time since the last call.
wait_for_blobs() {
  local try
  for ((try = 0; try < 1200; try++)); do
    compgen -G "$node/blobs/blob-*" >/dev/null && return 0
    sleep 0.05
  done
  ask status --state || true
  return 1
}

@test "four jobs whose state does not fit in host memory, plexrld killed: each as alone" {
  make_small_node
  start_daemon
  reference
  train_four
  local kill seed=${PLEXRL_SEED:-$RANDOM}
  RANDOM=$seed
  for ((kill = 0; kill < 3 * ${PLEXRL_SOAK:-1}; kill++)); do
    wait_for_blobs
    sleep "$(printf '0.%03d' $((RANDOM % 900)))"
    echo "kill $kill, PLEXRL_SEED=$seed"
    kill -9 "$daemon"
    wait "$daemon" || true
    start_daemon
  done
  local i
  for i in 0 1 2 3; do
    wait "${trainers[$i]}" || cat "$node/$((i + 11)).out" "$node/log"
    same_as_reference $((i + 11))
  done
  ask status --state --json >"$node/state.json"
  jq -e '.disk.chunks == 100 and (.disk.method | length > 0)' "$node/state.json"
  ask status --state | grep -E "weights .*(host|disk)"
  for i in 11 12 13 14; do close_job "$i"; done
}

# random_tenant JOB SEED RUN: what the model's ops gave is in RUN-SEED.out, its last state in RUN-SEED.state.
random_tenant() {
  local pairs
  mapfile -t pairs < <(open_job "$1" full)
  timeout 300 env "${pairs[@]}" python3 "$BATS_TEST_DIRNAME/random_tenant.py" "$build" "$2" 40 "$node/$3-$2.state" \
    >"$node/$3-$2.out" 3>&-
  close_job "$1"
}

# one_schedule SEED: two to four models, each alone and then all at once. A job that came back under its
# number would find its state, so numbers are not used twice.
one_schedule() {
  local first=$(($1 * 10)) models=$(($1 % 3 + 2)) seed tenant tenants=() unused
  for ((seed = first; seed < first + models; seed++)); do random_tenant $((2 * seed + 2)) "$seed" alone; done
  # The folder changes with every blob that is made or removed; to see one of them is a matter of luck.
  unused=$(stat -c %y "$node/blobs")
  for ((seed = first; seed < first + models; seed++)); do
    random_tenant $((2 * seed + 3)) "$seed" shared &
    tenants+=($!)
  done
  for tenant in "${tenants[@]}"; do wait "$tenant"; done
  [ "$models" -lt 4 ] || [ "$(stat -c %y "$node/blobs")" != "$unused" ]
  for ((seed = first; seed < first + models; seed++)); do
    [ "$(wc -l <"$node/alone-$seed.out")" = 40 ]
    diff "$node"/{alone,shared}-"$seed.out" | cut -c 1-300 | head -n 6
    cmp "$node"/{alone,shared}-"$seed.out"
    cmp "$node"/{alone,shared}-"$seed.state"
  done
  rm "$node"/{alone,shared}-*
}

@test "random schedules of two to four full-parameter models: every bit as alone" {
  make_small_node
  sed -i "s|host_memory_mib: 64|host_memory_mib: 48|" "$node/plexrl.yaml"
  start_daemon
  local memory=48
  local first=${PLEXRL_SEED:-$RANDOM} rounds=$((3 * ${PLEXRL_SOAK:-1})) i
  for ((i = 0; i < rounds; i++)); do
    echo "schedule $i of $rounds, PLEXRL_SEED=$((first + i))"
    one_schedule $((first + i))
  done
}
