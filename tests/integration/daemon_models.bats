#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Models with a tokenizer.json, trained by `plexrl train` with the real programs and without Slurm.

load daemon_helpers
build='' node='' daemon='' # the helpers set them

setup() { require_daemon; }
teardown() { drop_node; }

# make_bpe_node [POSITIONS]: a node whose model has a byte-level BPE, in a folder that only the service can read.
make_bpe_node() {
  make_node
  rm -r "$node/model"
  sed -i -e 's/"vocab_size": 32/"vocab_size": 300/' \
    -e "s/\"max_position_embeddings\": 48/\"max_position_embeddings\": ${1:-48}/" "$node/shape.json"
  "$build/plexrl-engine" --init-model "$node/model" --config "$node/shape.json" --seed 7
  rm "$node/model/plexrl_tokenizer.json"
  python3 "$BATS_TEST_DIRNAME/small_bpe.py" "$node/model"
  sed -i -e 's/parameters: 30000/parameters: 31264/' "$node/plexrl.yaml"
  chmod 700 "$node/model"
}

# train_as_user USER JOB MODE [OPTION...]: in a folder of the user's.
train_as_user() {
  local pairs
  mapfile -t pairs < <(open_job "$2" "$3" "$1")
  cp "$build/plexrl" "$node/plexrl"
  (cd "$node/mine" && timeout 100 runuser -u "$1" -- env "${pairs[@]}" "$node/plexrl" train "${@:4}" 3>&-)
}

@test "a user trains a model by its tokenizer.json, without a right to its folder" {
  make_bpe_node
  start_daemon
  install -d -o nobody "$node/mine"
  "$build/plexrl" model verify --config "$node/plexrl.yaml"
  local i
  for ((i = 0; i < 60; i++)); do
    printf '{"prompt":"%d: is<|im_end|>","answer":"yes"}\n' "$i"
  done >"$node/mine/problems"
  cat >"$node/mine/verify" <<-'END'
	#!/bin/bash
	read -r line
	echo "$line" >>seen
	[[ $line == *'"completion":"yes"'*'"stopped":true'* ]]
	END
  chmod 755 "$node/mine/verify"
  train_as_user nobody 70 full --env jsonl:problems --verifier ./verify --sft-steps 60 --sft-batch 16 --steps 2 \
    --prompts 4 --samples 2 --max-new-tokens 6 --eval-prompts 8 --summary summary.json
  # It was taught to say "yes" and then the end token, which nothing but an end token can be.
  jq -e '.held_out.greedy == 1' "$node/mine/summary.json"
  jq -es 'length > 0 and all(.prompt | endswith("is<|im_end|>"))' "$node/mine/seen"
}

@test "a tokenizer.json that does not fit the model is told by verify and by train" {
  make_bpe_node
  jq '.added_tokens[0].id = 300' "$node/model/tokenizer.json" >"$node/more"
  mv "$node/more" "$node/model/tokenizer.json"
  run "$build/plexrl" model verify --config "$node/plexrl.yaml"
  [ "$status" = 1 ]
  [[ $output == *"tokenizer.json has 301 tokens, the model 300"* ]]
  start_daemon
  install -d -o nobody "$node/mine"
  run train_as_user nobody 71 full --env sort --steps 1
  [ "$status" = 1 ]
  [[ $output == *"tokenizer.json has 301 tokens, the model 300"* ]]
}

@test "a task with a tool is trained in turns, in a chat, and the same way each time" {
  make_bpe_node 320
  start_daemon
  install -d -o nobody "$node/mine"
  cp -r "$BATS_TEST_DIRNAME/../../doc/examples" "$node/examples"
  chmod -R a+rX "$node/examples"
  local job
  for job in 72 73; do
    train_as_user nobody "$job" lora --env-cmd "exec python3 $node/examples/calculator/calculator_env.py" \
      --env-workers 3 --max-turns 2 --chat --system 'You have a calculator.' --steps 2 --prompts 2 --samples 2 \
      --max-new-tokens 8 --eval-prompts 3 --log "log.$job" --summary "summary.$job"
    jq -e '.steps == 2 and .held_out.prompts == 3' "$node/mine/summary.$job"
    # Two turns of at most 8 tokens, and all workers did what they should.
    jq -es 'map(select(.phase == "grpo")) | length == 2 and
      all(.failed_episodes == 0 and .env_s > 0 and .new_tokens > 4 and .new_tokens <= 64)' "$node/mine/log.$job"
  done
  [ "$(jq .state_sha256 "$node/mine/summary.72")" = "$(jq .state_sha256 "$node/mine/summary.73")" ]
  run pgrep -f "$node/examples"
  [ "$status" = 1 ]
}

@test "a command that is no environment is told before a step" {
  make_bpe_node
  start_daemon
  install -d -o nobody "$node/mine"
  run train_as_user nobody 74 lora --env-cmd 'echo hello; echo why >&2' --steps 1
  [ "$status" = 1 ]
  [[ $output == *"'hello', which is not a JSON object"* ]]
  [[ $output == *why* ]]
}

# The device has room for one of the two models.
@test "a model in bfloat16 gets the same weights alone, in turns with another, and over the death of its engine" {
  make_small_node
  sed -i 's/intermediate_size: 80,/intermediate_size: 80, dtype: bfloat16,/' "$node/plexrl.yaml"
  start_daemon
  local steps=8 memory=48 job pids=()
  reference
  for job in 2 3; do
    train "$job" &
    pids+=("$!")
  done
  wait_for_step 2 3
  pgrep -f "plexrl-engine .*--base-dir $node/model .*--dtype bfloat16"
  kill -9 "$(engine)"
  for job in 2 3; do
    wait "${pids[job - 2]}"
    same_as_reference "$job"
  done
}

@test "a full-parameter model is kept near its base, from which it has not gone in its first step" {
  make_bpe_node
  start_daemon
  install -d -o nobody "$node/mine"
  local job=80 coefficient
  for coefficient in 0.0001 10; do
    train_as_user nobody "$job" full --env sort --steps 8 --prompts 8 --samples 4 --length-penalty 1 --lr 0.01 \
      --eval-prompts 0 --kl-coef "$coefficient" --log "log.$job"
    jq -es 'map(select(.phase == "grpo").kl) | length == 8 and (.[0] | fabs) < 1e-5 and .[-1] > 1e-4' \
      "$node/mine/log.$job"
    ((++job))
  done
  # The penalty holds it back.
  jq -es 'map(select(.phase == "grpo" and .step == 8).kl) | .[0] > 2 * .[1]' "$node/mine/log.80" "$node/mine/log.81"
}

@test "bench http: its rows are whole, and its plexrld leaves nothing behind" {
  before=$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'plexrl-bench-*' | wc -l)
  "$build/plexrl" bench http --clients 1 --clients 3 --seconds 0.3 --repeats 1 --json >"$BATS_TEST_TMPDIR/rows" 3>&-
  jq -e '[.[] | [.route, .clients]] == [["/v1/completions", 1], ["/health", 1], ["/v1/completions", 3], ["/health", 3]]' \
    "$BATS_TEST_TMPDIR/rows"
  jq -e 'all(.[]; .p50_us > 0 and .p99_us >= .p50_us and .requests_per_s > 0)' "$BATS_TEST_TMPDIR/rows"
  jq -e '.[0, 2] | .op_p50_us > 0 and .op_p99_us > 0 and (.overhead_p50_us, .overhead_p99_us | type == "number")' "$BATS_TEST_TMPDIR/rows"
  [ "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'plexrl-bench-*' | wc -l)" = "$before" ]
}

@test "bench tenants: its rows are whole, rewards are those of tasks alone, and its plexrlds leave nothing behind" {
  before=$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'plexrl-bench-*' | wc -l)
  "$build/plexrl" bench tenants -n 3 --alone 2 --steps 3 --duty 0.5 --json >"$BATS_TEST_TMPDIR/rows" 3>&-
  jq -e 'length == 1 and .[0].tenants == 3 and .[0].duty == 0.5 and .[0].wait_s > 0' "$BATS_TEST_TMPDIR/rows"
  jq -e '.[0] | .reward_mean_alone > 0 and .reward_mean_alone == .reward_mean_together' "$BATS_TEST_TMPDIR/rows"
  jq -e '.[0] | all(.utilisation_alone, .utilisation_overlapped, .utilisation_together; . > 0 and . <= 1)
    and .bound >= 1 and .busy_together_s > 0 and .wall_together_s > 0' "$BATS_TEST_TMPDIR/rows"
  [ "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'plexrl-bench-*' | wc -l)" = "$before" ]
  if pgrep -f "plexrl-engine.*plexrl-bench-"; then return 1; fi
}
