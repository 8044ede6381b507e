#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The engine or plexrld dies exactly where it hurts: as a suspend, resume, commit or publish is
# asked for, in the middle of it, and when it is done and nobody knows. Two full-parameter jobs whose
# models do not fit together take turns, so that every step moves them; both must end with the
# state of an undisturbed run. tests/fault/fault_point.cc lists the points.

load daemon_helpers
build='' node='' daemon=''

setup() {
  require_daemon
  make_turns
}
teardown() { drop_node; }

# A node that holds one of the two models at a time.
make_turns() {
  local memory=80
  preload="$build/tests/fault/fault_point.so"
  [ -f "$preload" ] || {
    echo "$preload is not built"
    return 1
  }
  make_node
  cat >"$node/plexrl-engine" <<-END
	#!/bin/bash
	[ ! -e "$node/largest_range" ] || export PLEXRL_FAULT_LARGEST_RANGE=\$(<"$node/largest_range")
	export LD_PRELOAD=$preload PLEXRL_FAULT_FILE=$node/engine.fault
	exec -a plexrl-engine $build/plexrl-engine "\$@"
	END
  chmod 755 "$node/plexrl-engine"
  sed -i "s|engine_program: .*|engine_program: $node/plexrl-engine|
    s|device_memory_mib: 256|device_memory_mib: $memory|" "$node/plexrl.yaml"
  export PLEXRL_FAULT_FILE="$node/plexrld.fault"
  start_faulty
}
start_faulty() {
  export LD_PRELOAD=$preload
  start_daemon
  unset LD_PRELOAD
}

# arm ROLE POINT: whoever has that role dies when it gets there.
arm() {
  echo "$2" >"$node/$1.fault.new"
  mv "$node/$1.fault.new" "$node/$1.fault"
}
# died ROLE: waits until it did.
died() {
  local try
  for ((try = 0; try < 1200; try++)); do
    [ -e "$node/$1.fault" ] || return 0
    kill -0 "$trainer" 2>/dev/null || break
    sleep 0.05
  done
  echo "$1 did not reach '$(cat "$node/$1.fault")'"
  cat "$node/log"
  return 1
}

# Waits until both models have an engine that holds the pools.
two_engines() {
  local try
  for ((try = 0; try < 1200; try++)); do
    [ "$(ask status --json | jq '[.engines[] | select(.state == "up")] | length')" != 2 ] || return 0
    kill -0 "$trainer" 2>/dev/null || break
    sleep 0.05
  done
  echo "no two engines after a restart"
  cat "$node/log"
  return 1
}

# both_survive ROLE POINT...: two jobs train, and at each point in turn the process dies. ROLE
# "both" with POINT = KIND: plexrld as it has asked for it, and the engine as it gets it.
both_survive() {
  local role=$1 point trainer other first=$((job + 1)) second=$((job + 2))
  job=$((job + 2))
  shift
  train "$first" &
  trainer=$!
  train "$second" &
  other=$!
  wait_for_step "$first" 1
  wait_for_step "$second" 1
  for point in "$@"; do
    case $role in
      both) arm engine "received $point" && arm plexrld "asked $point" && died engine && died plexrld ;;
      *) arm "$role" "$point" && died "$role" ;;
    esac
    [ "$role" = engine ] && continue
    wait "$daemon" || true
    start_faulty
    # Whoever dies next must leave somebody who holds the memory of the node.
    [ "$role" = plexrld ] || two_engines
  done
  wait "$trainer" || cat "$node/$first.out" "$node/log"
  wait "$other" || cat "$node/$second.out" "$node/log"
  same_as_reference "$first"
  same_as_reference "$second"
  close_job "$first"
  close_job "$second"
}
# So many that both jobs still train, and take turns, when the last death is due.
job=10 steps=200

@test "the engine dies at a suspend" {
  reference
  both_survive engine "received suspend" "mapped 2 suspend" "answering suspend"
}

@test "the engine dies at a resume" {
  reference
  both_survive engine "received resume" "mapped 2 resume" "answering resume"
}

@test "the engine dies while the moments are coming in, and when they are there" {
  reference
  both_survive engine "received fill" "answering fill"
}

@test "the engine dies at a commit" {
  reference
  # Half of the host pool: the next engine maps the chunks of a commit only, whatever pages there are.
  echo $((256 << 20)) >"$node/largest_range"
  both_survive engine "received commit" "mapped 2 commit" "answering commit"
}

@test "the engine dies as it publishes sampler weights, and at an optimizer step" {
  reference
  both_survive engine "received publish" "answering publish" "received optim_step" "answering optim_step"
}

@test "plexrld dies at a suspend" {
  reference
  both_survive plexrld "asking suspend" "asked suspend" "answered suspend"
}

@test "plexrld dies at a resume" {
  reference
  both_survive plexrld "asking resume" "asked resume" "answered resume"
}

@test "plexrld dies while the moments are coming in, and when they are there" {
  reference
  both_survive plexrld "asking fill" "asked fill" "answered fill"
}

@test "plexrld dies at a commit" {
  reference
  both_survive plexrld "asking commit" "asked commit" "answered commit"
}

@test "plexrld dies as sampler weights are published, and at an optimizer step" {
  reference
  both_survive plexrld "asked publish" "answered publish" "asked optim_step" "answered optim_step"
}

# The other job's engine keeps the memory of the node.
@test "plexrld and the engine that it has just asked die together" {
  reference
  both_survive both suspend resume publish
}
