#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# scripts/sim-validate on two recorded runs of the demo. Nothing is measured here: the same records give
# the same figures.

load helpers

setup() {
  [ -x /usr/bin/python3 ] || skip "needs python3: run scripts/install-deps test"
  build=$(realpath "${PLEXRL_BUILD:-$BATS_TEST_DIRNAME/../../build}")
  record=$(mktemp -d)
}
teardown() { rm -rf "$record"; }

# record_of RUN: as `make demo` leaves it.
record_of() {
  local node
  for node in node1 node2; do
    cp "$top/tests/sim/journals/$1-$node.journal" "$record/$node-000000000001.journal"
  done
  cp "$top/tests/sim/journals/$1-jobs.json" "$record/jobs.json"
}

# Real and simulated makespan of the last row of the table whose head has $1.
makespans() {
  awk -F'|' -v head="$1" 'index($0, head) { seen = 1 } seen && $2 ~ /[0-9]/ { print $4 + 0, $5 + 0; exit }' <<<"$output"
}

@test "a run on a machine of even speed is simulated from its jobs alone" {
  record_of least-slowdown
  run "$top/scripts/sim-validate" "$build" "$record"
  echo "$output"
  [ "$status" = 0 ]
  [[ $output == *"| 1 | least-slowdown | 49 s | 43.8 s"* ]]
}

@test "with the shared run's own times the makespan is within 5 %, whatever else the machine did" {
  local name real simulated
  for name in least-slowdown round-robin; do
    record_of "$name"
    run "$top/scripts/sim-validate" "$build" "$record"
    echo "$output"
    read -r real simulated < <(makespans "device time, shared")
    awk -v a="$real" -v b="$simulated" 'BEGIN { exit !(a > 40 && b > 0.95 * a && b < 1.05 * a) }'
  done
}

@test "more than 15 % off is told, and so is a record that is not whole" {
  record_of round-robin
  run "$top/scripts/sim-validate" "$build" "$record"
  [ "$status" = 1 ]
  [[ $output == *"more than 15 % off"* ]]
  rm "$record/node2-000000000001.journal"
  run "$top/scripts/sim-validate" "$build" "$record"
  [ "$status" = 1 ]
  [[ $output == *"0 journals of node2"* ]]
}
