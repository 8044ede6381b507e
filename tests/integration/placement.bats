#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Where Slurm puts jobs of which earlier runs are known: apart from their like, with the unlike, and
# never refused for it. The health check of the nodes keeps the features, as at a site.

load helpers

setup_file() {
  require_slurm
  require_build spank_plexrl.so job_submit_plexrl.so plexrld
  make_lab_folder
  lab up --nodes 3 --config "$BATS_TEST_DIRNAME/site.yaml"
  {
    profile sampler 35 3
    profile trainer 3 35
  } | jq -s '{profiles: .}' | as_admin profiles export --from -
}
teardown_file() { drop_lab; }
teardown() {
  as plx-alice scancel -u plx-alice || true
  poll 40 no_jobs
}

as_admin() { root_ctl env PLEXRL_CONFIG="$PLEXRL_LAB/etc/plexrl.yaml" "$PLEXRL_LAB/bin/plexrl" "$@"; }
no_jobs() { [ -z "$(root_ctl squeue -h)" ]; }

# profile NAME ROLLOUT TRAINING: two such jobs fit on a node, three do not.
profile() {
  jq -n --argjson uid "$(id -u plx-alice)" --arg name "$1" --argjson rollout "$2" --argjson training "$3" \
    '{uid: $uid, pool: "rl", name: $name, train_mode: "lora", models: ["tiny"], runs: 4,
      busy_percent: 40, rollout_percent: $rollout, training_percent: $training}'
}

# place NAME ARGS...: sets job, and node to where it runs.
place() {
  job=$(submit plx-alice -J "$1" --plexrl-pool=rl --plexrl-model=tiny --mem=100M "${@:2}" --wrap 'sleep 600')
  poll 40 job_is "$job" RUNNING
  node=$(job_field "$job" NodeList)
}
# A preference that Slurm follows it shows as Features.
prefers() { contains "$(root_ctl scontrol show job -o "$job")" "Features=plexrl_rl_for_$1"; }
prefers_nothing() { must_fail grep plexrl_rl_for <<<"$(root_ctl scontrol show job -o "$job")"; }
active() { root_ctl sinfo -h -n "$1" -p plexrl -o %b; }
# takes NODE KIND...: its features say just that.
takes() {
  local kind wanted=''
  for kind in "${@:2}"; do wanted+="plexrl_rl_for_$kind"$'\n'; done
  [ "$(active "$1" | tr , '\n' | grep . | grep -v null | sort)" = "${wanted%$'\n'}" ]
}
features_are() { poll 40 takes "$@" || { active "$1" >&2; return 1; }; }
all_free() { local n; for n in node1 node2 node3; do features_are "$n" rollout training; done; }

@test "like profiles land apart, unlike ones together, and the next of a kind anywhere" {
  all_free
  place sampler
  first=$node
  contains "$(root_ctl scontrol show job "$job")" "AdminComment=plexrl: mostly rollout"
  prefers rollout
  features_are "$first" training
  place sampler
  second=$node
  [ "$second" != "$first" ]
  features_are "$second" training
  # One node is empty: the trainers go where the samplers are, each to one of its own.
  place trainer
  third=$node
  [ "$third" = "$first" ] || [ "$third" = "$second" ]
  features_are "$third"
  place trainer
  [ "$node" = "$first" ] || [ "$node" = "$second" ]
  [ "$node" != "$third" ]
  features_are "$node"
  place sampler
  [ "$node" != "$first" ]
  [ "$node" != "$second" ]
  features_are "$node" training
  # No node takes a sampler now: one that has room for it gets it all the same.
  last=$node
  place sampler
  [ "$node" = "$last" ]
  prefers_nothing
}

@test "a node that a user names is the node, and what a user prefers stays" {
  all_free
  place sampler -w node2
  features_are node2 training
  place sampler -w node2
  [ "$node" = node2 ]
  place sampler --prefer=plexrl_rl_for_training -x node2
  prefers training
}

@test "nothing is preferred of jobs without earlier runs, nor in a cluster without the features" {
  all_free
  place other
  prefers_nothing
  takes "$node" rollout training
  root_ctl scontrol update NodeName=node[1-3] AvailableFeatures= ActiveFeatures=
  place sampler
  prefers_nothing
}
