#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The disk tier with the real programs and without Slurm: a device that holds one model, host memory that
# holds fewer than all.

load daemon_helpers
build='' node='' daemon='' # the helpers set them

setup() { require_daemon; }
teardown() { drop_node; }

# In chunks of 4 MiB: a model has 4 committed and 5 on the device; host memory has 16, the device 6.
make_small_node() {
  make_node
  sed -i -e 's/host_memory_mib: 512/host_memory_mib: 64/' -e 's/device_memory_mib: 256/device_memory_mib: 88/' \
    -e "s|activation_memory_mib: 64|activation_memory_mib: 64, kv_host_mib: 8, quantum_ms: 50, disk_tier_dir: $node/blobs, disk_tier_mib: 400|" \
    -e 's/retention_s: 0/retention_s: 0\n  chunk_kib: 4096/' "$node/plexrl.yaml"
}

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
