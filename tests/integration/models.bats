#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# plexrl model: import with interruptions and a full disk, verify, rm beside a running plexrld, export
# and merge of what a job trained.

load daemon_helpers

setup() {
  require_daemon
  make_node
  plexrl=$build/plexrl
}
teardown() {
  drop_node
  [ ! -d "${disk:-}" ] || { umount "$disk" && rmdir "$disk"; }
}

# A Hugging Face directory whose copy takes a while to write: the small model and a large vocabulary.
make_source() {
  cp -r "$node/model" "$node/source"
  head -c "$1" /dev/urandom | base64 >"$node/source/vocab.json"
}

@test "an import that is killed at any moment goes on, and ends with what the source has" {
  make_source 60000000
  local pid try round
  for round in 1 2 3; do
    "$plexrl" model import "$node/source" "$node/new" 3>&- &
    pid=$!
    for ((try = 0; try < 500; try++)); do
      [ ! -e "$node/new.partial/vocab.json.part" ] || break
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.01
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" || true
    [ ! -e "$node/new" ] || break
  done
  [ -d "$node/new" ] || "$plexrl" model import "$node/source" "$node/new"
  [ ! -e "$node/new.partial" ]
  (cd "$node/new" && sha256sum --quiet -c SHA256SUMS)
  local file
  for file in "$node"/source/*; do cmp "$file" "$node/new/${file##*/}"; done
  run "$plexrl" model verify "$node/new"
  [ "$status" = 0 ]
  [[ $output == *": ok, as its checksums"* ]]
  printf x | dd of="$node/new/vocab.json" bs=1 seek=5000 conv=notrunc status=none
  run "$plexrl" model verify "$node/new"
  [ "$status" = 1 ]
  [[ $output == *"vocab.json: its checksum is not that of SHA256SUMS"* ]]
  run "$plexrl" model verify --headers-only "$node/new"
  [ "$status" = 0 ]
}

@test "an import that a full disk stops says so in a sentence and goes on later" {
  make_source 4000000
  disk=$(mktemp -d "${TMPDIR:-/tmp}/plexrl-disk-XXXXXX")
  mount -t tmpfs -o size=3m plexrl-test "$disk"
  run "$plexrl" model import "$node/source" "$disk/new"
  [ "$status" = 1 ]
  [[ $output == *"too full"*"bytes are needed"* ]]
  [ ! -e "$disk/new" ]
  # The room goes while it runs: a hole in the source is no room on the disk before it is written.
  rm "$node/source/vocab.json"
  head -c 2900000 /dev/urandom >"$node/source/vocab.json"
  head -c 500000 /dev/zero >"$disk/other"
  run "$plexrl" model import "$node/source" "$disk/new"
  [ "$status" = 1 ]
  [ ! -e "$disk/new" ]
  rm "$disk/other"
  mount -o remount,size=20m "$disk"
  "$plexrl" model import "$node/source" "$disk/new" --json >"$node/answer"
  cmp "$node/source/vocab.json" "$disk/new/vocab.json"
}

@test "what is not a model is refused in a sentence, and leaves nothing" {
  run "$plexrl" model import "$node/run" "$node/new"
  [ "$status" = 1 ]
  cp -r "$node/model" "$node/bad"
  truncate -s -10 "$node/bad/model.safetensors"
  run "$plexrl" model import "$node/bad" "$node/new"
  [ "$status" = 1 ]
  [[ $output == *"truncated"* ]]
  echo '{"model_type": "mamba"}' >"$node/bad/config.json"
  run "$plexrl" model import "$node/bad" "$node/new"
  [ "$status" = 1 ]
  [[ $output == *"mamba"* ]]
  [ ! -e "$node/new" ] && [ ! -e "$node/new.partial" ]
}

@test "rm refuses a model that a pool names, that plexrld still has, and what is no model" {
  "$plexrl" model import "$node/model" "$node/spare" >"$node/entry"
  parameters=$(grep -o 'parameters: [0-9]*' "$node/entry")
  sed -i -e "s|^daemon:|  - {name: spare, path: $node/spare, $parameters, hidden_size: 32, layers: 2, intermediate_size: 80, kv_size: 16}\ndaemon:|" \
    -e 's/models: \[tiny\]/models: [tiny, spare]/' "$node/plexrl.yaml"
  start_daemon
  run "$plexrl" model list --config "$node/plexrl.yaml"
  [[ $output == *"spare"*"rl"*"yes"* ]]
  run "$plexrl" model rm spare --config "$node/plexrl.yaml"
  [ "$status" = 1 ]
  [[ $output == *"is used by pool rl"* ]]
  # By its directory it is the same model.
  run "$plexrl" model rm "$node/spare/" --config "$node/plexrl.yaml"
  [[ $output == *"is used by pool rl"* ]]
  sed -i -e 's/models: \[tiny, spare\]/models: [tiny]/' "$node/plexrl.yaml"
  run "$plexrl" model rm spare --config "$node/plexrl.yaml"
  [ "$status" = 1 ]
  [[ $output == *"is used by the running plexrld of pool rl"* ]]
  [ -e "$node/spare/config.json" ]
  kill "$daemon"
  wait "$daemon" || true
  start_daemon
  mkdir "$node/spare/folder"
  run "$plexrl" model rm spare --config "$node/plexrl.yaml"
  [ "$status" = 1 ]
  [[ $output == *"is not a file"* ]]
  rmdir "$node/spare/folder"
  "$plexrl" model rm spare --config "$node/plexrl.yaml"
  [ ! -e "$node/spare" ]
  run "$plexrl" model list --config "$node/plexrl.yaml" --json
  [ "$(jq -r '.models[] | select(.name == "spare") | .here' <<<"$output")" = no ]
  run "$plexrl" model rm "$node/run/" --config "$node/plexrl.yaml"
  [[ $output == *"is not a model"* ]]
}

@test "an adapter that a job trained is exported, merged, and the merged model is one" {
  start_daemon
  local pairs
  mapfile -t pairs < <(open_job 5 lora)
  timeout 100 env "${pairs[@]}" "$plexrl" train --env sort --steps 1 --prompts 4 --samples 4 --eval-prompts 0 \
    --save "$node/lora.safetensors" --format weights 3>&-
  "$plexrl" model export "$node/lora.safetensors" "$node/peft" --base tiny --config "$node/plexrl.yaml"
  [ "$(jq -r '.r, .lora_alpha, .base_model_name_or_path' "$node/peft/adapter_config.json" | tr '\n' ' ')" = "8 32 $node/model " ]
  merged=$("$plexrl" model merge tiny "$node/peft" "$node/merged" --dtype bfloat16 --config "$node/plexrl.yaml")
  grep -F "{name: NAME, path: $(realpath "$node/merged")," <<<"$merged"
  "$plexrl" model verify "$node/merged"
  [ "$(jq -r .torch_dtype "$node/merged/config.json")" = bfloat16 ]
  run "$plexrl" model export "$node/model/model.safetensors" "$node/other" --base tiny --config "$node/plexrl.yaml"
  [ "$status" = 1 ]
  [[ $output == *"is not the file of a save"* ]]
}
