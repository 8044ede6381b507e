# SPDX-License-Identifier: Apache-2.0
# A plexrld of the build in a folder of its own, without Slurm: `plexrl job open` plays the hooks.

# Skips (or fails, where the runner says PLEXRL_REQUIRE_ROOT) without root.
require_daemon() {
  [ "$(id -u)" = 0 ] || skip "opening jobs needs root"
  build=$(realpath "${PLEXRL_BUILD:-$BATS_TEST_DIRNAME/../../build}")
  local program
  for program in plexrld plexrl plexrl-engine; do
    [ -x "$build/$program" ] || {
      echo "$build/$program is not built"
      return 1
    }
  done
  export OMP_NUM_THREADS=1
}

# make_node [SIZE]: a folder with a small random model and a configuration; with SIZE the state
# directory is a file system of so many bytes.
make_node() {
  node=$(mktemp -d "${TMPDIR:-/tmp}/plexrl-node-XXXXXX")
  chmod 755 "$node"
  mkdir -m 755 "$node/run" "$node/state"
  [ $# = 0 ] || mount -t tmpfs -o "size=$1" plexrl-test "$node/state"
  cat >"$node/shape.json" <<-END
	{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
	 "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
	 "head_dim": 8, "vocab_size": 32, "max_position_embeddings": 48, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
	 "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false, "torch_dtype": "float32"}
	END
  "$build/plexrl-engine" --init-model "$node/model" --config "$node/shape.json" --seed 7
  cat >"$node/plexrl.yaml" <<-END
	cluster: faults
	pools:
	  - {name: rl, partition: plexrl, nodes: n1, models: [tiny], host_memory_mib: 512,
	     device_memory_mib: 256, activation_memory_mib: 64}
	models:
	  - {name: tiny, path: $node/model, parameters: 30000, hidden_size: 32, layers: 2, intermediate_size: 80,
	     kv_size: 16}
	daemon:
	  user: root
	  run_dir: $node/run
	  state_dir: $node/state
	  engine_program: $build/plexrl-engine
	  yield_timeout_ms: 1500
	  retention_s: 0
	END
}

# In chunks of 4 MiB: a model has 4 committed and 5 on the device; host memory has 16, the device 6.
make_small_node() {
  make_node
  sed -i -e 's/host_memory_mib: 512/host_memory_mib: 64/' -e 's/device_memory_mib: 256/device_memory_mib: 88/' \
    -e "s|activation_memory_mib: 64|activation_memory_mib: 64, kv_host_mib: 8, quantum_ms: 50, disk_tier_dir: $node/blobs, disk_tier_mib: 400|" \
    -e 's/retention_s: 0/retention_s: 0\n  chunk_kib: 4096/' "$node/plexrl.yaml"
}

# start_daemon [LAUNCHER...]: a launcher ends with exec.
start_daemon() {
  "$@" "$build/plexrld" --config "$node/plexrl.yaml" --node n1 >>"$node/log" 2>&1 3>&- &
  daemon=$!
  local try
  for ((try = 0; try < 400; try++)); do
    ask status >"$node/last" 2>&1 && return 0
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.05
  done
  cat "$node/log" "$node/last"
  return 1
}

ask() { timeout 20 "$build/plexrl" "$@" --socket "$node/run/plexrld.sock"; }

# open_job ID MODE [USER]: with `memory` MiB of host memory (64); prints the environment of its tasks as words for env(1).
open_job() {
  local rank=0
  [ "$2" = lora ] && rank=8
  ask job open --job-id "$1" --user "${3:-root}" \
    --grant "v1:pool=rl:share=100:mem=${memory:-64}:mode=$2:rank=$rank:slowdown=0:models=tiny" --json |
    jq -r 'to_entries[] | "\(.key)=\(.value)"'
}
close_job() { ask job close --job-id "$1"; }

# train JOB: a short deterministic full-parameter training that saves its state in JOB.state. A random model is never
# right: without the penalty no answer would differ in reward, and nothing would be learnt.
train() {
  local pairs
  mapfile -t pairs < <(open_job "$1" full)
  timeout 100 env "${pairs[@]}" "$build/plexrl" train --env sort --seed 5 --steps "${steps:-20}" --prompts 16 --samples 4 \
    --length-penalty 1 --eval-prompts 0 --log "$node/$1.log" --save "$node/$1.state" >"$node/$1.out" 2>&1 3>&-
}
state_of() { sha256sum <"$node/$1.state"; }

# The state that an undisturbed run ends with; the model is random but always the same.
reference() {
  if [ ! -s "$BATS_FILE_TMPDIR/reference" ]; then
    train 1
    jq -es '[.[].grad_norm // 0] | max > 0' "$node/1.log" || return 1  # else every state is the same
    state_of 1 >"$BATS_FILE_TMPDIR/reference"
    close_job 1
  fi
}
same_as_reference() {
  [ "$(state_of "$1")" = "$(cat "$BATS_FILE_TMPDIR/reference")" ] || {
    cat "$node/log" "$node/$1.out"
    return 1
  }
}

# wait_for_step JOB STEPS
wait_for_step() {
  local try
  for ((try = 0; try < 600; try++)); do
    [ -s "$node/$1.log" ] && [ "$(grep -c '"phase":"grpo"' "$node/$1.log")" -ge "$2" ] && return 0
    sleep 0.05
  done
  cat "$node/$1.out" "$node/log"
  return 1
}

# The pid of the newest engine.
engine() {
  local file
  file=$(find "$node/run/engines" -name '*.pid' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
  cat "$file"
}

drop_node() {
  local file
  [ -n "${node:-}" ] || return 0
  # the daemon, and trainers of a test that failed
  jobs -p | xargs -r kill -9 2>/dev/null
  for file in "$node"/run/engines/*.pid; do
    [ -s "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null
  done
  mountpoint -q "$node/state" && umount -l "$node/state"
  rm -rf "$node"
  unset node daemon
}
