#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# `plexrl train --max-staleness 1` with the real programs and without Slurm: what dies in its middle, whichever of the
# training and the rollout beside it was under way, the model is the same.

load daemon_helpers
build='' node='' # the helpers set them

setup() { require_daemon; }
teardown() { drop_node; }

# ahead JOB [FILES]: a run of the job JOB, whose environment is in `pairs`; its checkpoint is FILES.ckpt, written at a
# stop and at the end. The model is random and never right: it learns to be brief. What kills it at step 3 has two seconds.
ahead() {
  local files=${2:-$1}
  exec timeout 100 env "${pairs[@]}" "$build/plexrl" train --env sort --seed 5 --steps 12 --prompts 16 --samples 4 \
    --eval-prompts 0 --length-penalty 1 --max-staleness "${staleness:-1}" --tool-latency 0.2 \
    --checkpoint "$node/$files.ckpt" --checkpoint-every 0 --resume \
    --log "$node/$1.log" --save "$node/$1.state" >"$node/$1.out" 2>&1 3>&-
}

same_as_first() {
  [ "$(state_of "$1")" = "$(state_of 1)" ] || {
    cat "$node/log" "$node/$1.out"
    return 1
  }
}

@test "rollouts that run ahead: after the death of the engine or the controller, or a stop, the same state" {
  make_node
  start_daemon
  local pairs trainer
  mapfile -t pairs < <(open_job 1 full)
  (ahead 1)
  mapfile -t pairs < <(open_job 6 full)
  (staleness=0 ahead 6)
  [ "$(state_of 6)" != "$(state_of 1)" ] # so that another rollout would show below
  [ "$(jq -s 'map(select(.phase == "grpo").staleness) | add' "$node/1.log")" = 11 ]

  mapfile -t pairs < <(open_job 2 full)
  ahead 2 &
  trainer=$!
  wait_for_step 2 3
  kill -9 "$(engine)"
  wait "$trainer"
  same_as_first 2

  # On the same node, from the model that the service has kept and the journal.
  mapfile -t pairs < <(open_job 3 full)
  ahead 3 &
  trainer=$!
  wait_for_step 3 3
  pkill -9 -P "$trainer"
  if wait "$trainer"; then return 1; fi
  (ahead 3)
  grep "going on with model" "$node/3.out"
  same_as_first 3

  # As another job, from the checkpoint.
  mapfile -t pairs < <(open_job 4 full)
  ahead 4 &
  trainer=$!
  wait_for_step 4 3
  pkill -TERM -P "$trainer"
  if wait "$trainer"; then return 1; fi
  grep "stopped by a signal" "$node/4.out"
  close_job 4
  mapfile -t pairs < <(open_job 5 full)
  (ahead 5 4)
  grep "resumed from" "$node/5.out"
  same_as_first 5
}
