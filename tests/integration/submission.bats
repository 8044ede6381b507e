#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What the options and the job_submit hook make of a submission. Jobs are held: nothing needs to run.

load helpers

setup_file() {
  require_slurm
  require_build spank_plexrl.so job_submit_plexrl.so
  make_lab_folder
  lab up --nodes 2 --no-daemon --config "$BATS_TEST_DIRNAME/site.yaml"
}
teardown_file() { drop_lab; }
teardown() { as plx-alice scancel -u plx-alice || true; }

pool_options=(--plexrl-pool=rl --plexrl-model=tiny)
held() { submit "${user:-plx-alice}" -H "$@" --wrap true; }

# refused TEXT ARGS...: the submission fails with that text and leaves no job.
refused() {
  local text=$1
  shift
  run held "$@"
  [ "$status" != 0 ] || { echo "accepted: $*"; return 1; }
  contains "$output" "$text"
  [ -z "$(as "${user:-plx-alice}" squeue -h -u "${user:-plx-alice}")" ]
}

@test "sbatch: the hook sets partition and count-only GRES" {
  job=$(held "${pool_options[@]}")
  [ "$(job_field "$job" Partition)" = plexrl ]
  contains "$(job_field "$job" TresPerNode)" "plexrl:25"
  contains "$(job_field "$job" TresPerNode)" "plexrl_mem:"
}

@test "a share that is asked for replaces the pool's default" {
  job=$(held "${pool_options[@]}" --plexrl-share=50)
  contains "$(job_field "$job" TresPerNode)" "plexrl:50"
}

@test "full training asks for more host memory than lora" {
  lora=$(held "${pool_options[@]}" --plexrl-train=lora:4)
  full=$(held "${pool_options[@]}" --plexrl-train=full)
  memory() { job_field "$1" TresPerNode | grep -o 'plexrl_mem[:=][0-9]*' | grep -o '[0-9]*$'; }
  [ "$(memory "$full")" -gt "$(memory "$lora")" ]
}

@test "#SBATCH lines say the same as the command line" {
  job=$(submit_script plx-alice -H <<'JOB'
#!/bin/bash
#SBATCH --plexrl-pool=rl
#SBATCH --plexrl-model=tiny
#SBATCH --plexrl-share=50
true
JOB
  )
  [ "$(job_field "$job" Partition)" = plexrl ]
  contains "$(job_field "$job" TresPerNode)" "plexrl:50"
}

@test "every element of an array gets the same" {
  job=$(held "${pool_options[@]}" --array=1-3)
  [ "$(root_ctl squeue -h -r -j "$job" -o '%P %b' | sort | uniq -c | awk '{ print $1, $2 }')" = "3 plexrl" ]
}

@test "a batch job's GPU request becomes a share of the device group" {
  for request in --gres=gpu:1 --gpus=1 --gpus-per-node=1; do
    job=$(held "${pool_options[@]}" $request)
    must_fail grep gpu <<<"$(root_ctl scontrol show job -o "$job")"
    contains "$(job_field "$job" TresPerNode)" "plexrl:25"
  done
}

@test "a job without the option stays as it was" {
  job=$(held)
  [ "$(job_field "$job" Partition)" = plain ]
  [ "$(job_field "$job" TresPerNode)" = "" ]
}

@test "refused: unknown pool, with those that there are" {
  refused "no such pool; pools open to you: rl" --plexrl-pool=nowhere --plexrl-model=tiny
}
@test "refused: unknown model, with those that there are" {
  refused "no such model; it has: tiny" --plexrl-pool=rl --plexrl-model=huge
}
@test "refused: a model of the site that the pool does not serve" {
  refused "no such model; it has: tiny" --plexrl-pool=rl --plexrl-model=elsewhere
}
@test "refused: unknown way of training" { refused "write lora, lora:RANK" "${pool_options[@]}" --plexrl-train=half; }
@test "refused: a rank above the pool's limit" { refused "write lora:64" "${pool_options[@]}" --plexrl-train=lora:128; }
@test "refused: a share that is no step" { refused "write 25, 50 or 100" "${pool_options[@]}" --plexrl-share=33; }
@test "refused: a share over the pool's limit" { refused "at most 50" "${pool_options[@]}" --plexrl-share=100; }
@test "refused: a slowdown below 1" { refused "write a factor from 1 to 100" "${pool_options[@]}" --plexrl-slowdown=0.5; }
@test "refused: a client that is not known" { refused "write tinker, openai" "${pool_options[@]}" --plexrl-env=vllm; }
@test "refused: options without a pool" { refused "add --plexrl-pool=NAME" --plexrl-share=50; }
@test "refused: --exclusive" { refused "--exclusive does not go with pool 'rl'" "${pool_options[@]}" --exclusive; }
@test "refused: all memory of a node" { refused "--mem=0 asks for all memory" "${pool_options[@]}" --mem=0; }
@test "refused: hand-written GRES, with and without the option" {
  refused "are set by the site" "${pool_options[@]}" --gres=plexrl:1
  refused "are set by the site" --gres=plexrl:1
  refused "are set by the site" --gres=plexrl_mem:1
}
@test "refused: the pool's partition without the option" { refused "add --plexrl-pool=rl" -p plexrl; }
@test "refused: another partition with the option" { refused "leave --partition out" "${pool_options[@]}" -p plain; }
@test "refused: more than one node" { refused "write --nodes=1" "${pool_options[@]}" -N2; }
@test "refused: more CPUs than a node has for jobs" {
  refused "asks for 7 CPUs, and a node of pool 'rl' has 6 for jobs" "${pool_options[@]}" -n7
  refused "asks for 8 CPUs" "${pool_options[@]}" -n4 -c2
  refused "asks for 500 CPUs" "${pool_options[@]}" --mincpus=500
  held "${pool_options[@]}" -n6
  held "${pool_options[@]}" -n500 --overcommit
  [ "$(root_ctl scontrol show node node1 | grep -o 'CPUEfctv=[0-9]*')" = CPUEfctv=6 ]
}
@test "refused: a user without access" { user=plx-carol refused "the pool is not open to you" "${pool_options[@]}"; }
@test "refused: a heterogeneous job" {
  run submit_script plx-alice -H <<'JOB'
#!/bin/bash
#SBATCH --plexrl-pool=rl --plexrl-model=tiny
#SBATCH hetjob
#SBATCH -n1
true
JOB
  [ "$status" != 0 ]
  contains "$output" "heterogeneous jobs cannot use a pool"
}
@test "refused: srun with Slurm's GPU options" {
  run as plx-alice srun "${pool_options[@]}" --gpus=1 true
  [ "$status" != 0 ]
  contains "$output" "GPU options do not go with"
}

@test "refused: a change of what the hook set, by scontrol update" {
  job=$(held "${pool_options[@]}")
  before=$(job_field "$job" TresPerNode)
  for change in Gres=plexrl:1 Partition=plain; do
    run as plx-alice scontrol update JobId="$job" $change
    [ "$status" != 0 ] || { echo "accepted: $change"; return 1; }
    contains "$output" "denied"  # 22.05 has no way to say more
  done
  [ "$(job_field "$job" TresPerNode)" = "$before" ]
  [ "$(job_field "$job" Partition)" = plexrl ]
}

@test "a user may still change what is not the pool's" {
  job=$(held "${pool_options[@]}")
  as plx-alice scontrol update JobId="$job" TimeLimit=7 Comment=mine
  [ "$(job_field "$job" TimeLimit)" = 00:07:00 ]
}

@test "refused: turning an ordinary job into a pool job by scontrol update" {
  job=$(held)
  for change in Partition=plexrl Gres=plexrl:1; do
    run as plx-alice scontrol update JobId="$job" $change
    [ "$status" != 0 ] || { echo "accepted: $change"; return 1; }
  done
  [ "$(job_field "$job" Partition)" = plain ]
}

@test "the option's text in the user's environment counts for nothing" {
  forged='v1:pool=rl:share=100:mem=1:mode=full:rank=0:slowdown=0:models=tiny'
  job=$(as plx-alice env "SLURM_SPANK__SLURM_SPANK_OPTION_plexrl_plexrl_pool=$forged" \
    "_SLURM_SPANK_OPTION_plexrl_plexrl_pool=$forged" sbatch --parsable -H --wrap true)
  [ "$(job_field "$job" Partition)" = plain ]
  as plx-alice scancel "$job"
  refused "--plexrl-pool" "--plexrl-pool=$forged" --plexrl-model=tiny
}

@test "sbatch --help and srun --help list the options" {
  for client in sbatch srun salloc; do
    for option in pool model train share slowdown env; do
      contains "$(as plx-alice $client --help)" "--plexrl-$option"
    done
  done
}

as_admin() { root_ctl env PLEXRL_CONFIG="$PLEXRL_LAB/etc/plexrl.yaml" "$PLEXRL_LAB/bin/plexrl" "$@"; }
checked() { as_admin config check --controller; }
logged() { grep -rqF "$1" "$PLEXRL_LAB"/*/slurmctld.log; }

# learnt BUSY: the document of a node's service on plx-alice's jobs of the name grpo.
learnt() {
  jq -n --argjson uid "$(id -u plx-alice)" --argjson busy "$1" '{profiles: [{uid: $uid, pool: "rl", name: "grpo",
    train_mode: "lora", models: ["tiny"], runs: 4, busy_percent: $busy, rollout_percent: 20, training_percent: 10}]}'
}

@test "what earlier runs were replaces the pool's default share, by a file that may hold anything" {
  learnt 38 >"$PLEXRL_LAB/learnt.json"
  as_admin profiles export --from "$PLEXRL_LAB/learnt.json"
  local file=$PLEXRL_LAB/etc/profiles
  share_is() {
    job=$(held "${pool_options[@]}" "${@:2}")
    contains "$(job_field "$job" TresPerNode)" "plexrl:$1,"
  }
  share_is 40 -J grpo
  share_is 25 -J other
  share_is 25 -J grpo --plexrl-share=25
  run as plx-alice sbatch -H -J grpo "${pool_options[@]}" --wrap true
  contains "$output" "share 40: earlier runs of 'grpo' were busy for 38 percent of their time (4 runs)"
  checked
  # Lines that are none, then another file's owner, then no such file at all: slurmctld goes on.
  head -c 20000 /dev/urandom >>"$file"
  share_is 40 -J grpo
  logged "plexrl: profiles: '$file': "
  must_fail checked
  learnt 44 | as_admin profiles export --from -
  share_is 45 -J grpo
  sed -i 's/ 44 / 12 /' "$file"
  chown plx-bob "$file"
  share_is 45 -J grpo
  logged "run 'chown root $file'"
  run checked
  [ "$status" = 1 ]
  contains "$output" "belongs to user"
  rm "$file"
  run checked
  [ "$status" = 1 ]
  contains "$output" "controller ctl has a '$file', this host has none"
  share_is 25 -J grpo
  checked
}

restart_slurmctld() {
  local old
  old=$(cat "$PLEXRL_LAB/state/slurmctld.pid")
  kill "$old"
  old_gone() { ! kill -0 "$old" 2>/dev/null; }
  poll 20 old_gone
  SLURM_CONF=$PLEXRL_LAB/etc/slurm.conf PLEXRL_CONFIG=$PLEXRL_LAB/etc/plexrl.yaml \
    setsid nsenter --net="/run/netns/$(netns_prefix)-ctl" unshare --uts \
    bash -c 'hostname ctl; exec slurmctld -D' </dev/null >/dev/null 2>&1 3>&- &
  poll 30 root_ctl sinfo -h
}

@test "a slurmctld that starts beside a broken site file keeps the pools' partitions closed" {
  held "${pool_options[@]}"
  as plx-alice scancel -u plx-alice
  local site=$PLEXRL_LAB/etc/plexrl.yaml
  cp "$site" "$site.good"
  echo 'cluster: [' >"$site"
  restart_slurmctld
  no_jobs() { [ -z "$(as plx-alice squeue -h -u plx-alice)" ]; }
  poll 20 no_jobs
  refused "serves the jobs of pool" -p plexrl
  refused "cannot be read" "${pool_options[@]}"
  refused "cannot be read" --gres=plexrl:1
  grep -q 'plexrl: site file: .*known of old' "$PLEXRL_LAB/log/slurmctld.log" ||
    grep -rq 'plexrl: site file: .*known of old' "$PLEXRL_LAB"/*/slurmctld.log
  held
  cp "$site.good" "$site"
  mended() { held "${pool_options[@]}"; }
  poll 20 mended
}

# The script of job_submit_plexrl(8), as a site that has one would extend it.
use_lua() {
  require_build plexrl.so
  install -m 755 "$(find "$PLEXRL_BUILD/.libs" -name plexrl.so -type f)" "$PLEXRL_LAB/lib/plexrl.so"
  cat >"$PLEXRL_LAB/etc/job_submit.lua" <<LUA
package.cpath = "$PLEXRL_LAB/lib/?.so;" .. package.cpath
local plexrl = require "plexrl"
function slurm_job_submit(job_desc, part_list, submit_uid)
  local code, text = plexrl.job_submit(job_desc, submit_uid)
  if code ~= slurm.SUCCESS then slurm.log_user("%s", text) end
  if code == slurm.SUCCESS then job_desc.admin_comment = "partition " .. (job_desc.partition or "none") end
  return code
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  local code = plexrl.job_modify(job_desc, job_rec, modify_uid)
  return code
end
return slurm.SUCCESS
LUA
  sed -i 's/^JobSubmitPlugins=.*/JobSubmitPlugins=lua/' "$PLEXRL_LAB/etc/slurm.conf"
  restart_slurmctld
}

@test "a site's job_submit.lua decides the same through the Lua module" {
  use_lua
  job=$(held "${pool_options[@]}" --gpus=1)
  [ "$(job_field "$job" Partition)" = plexrl ]
  contains "$(job_field "$job" TresPerNode)" "plexrl:25"
  # What Lua sees afterwards is what the module wrote.
  contains "$(root_ctl scontrol show job -o "$job")" "AdminComment=partition plexrl"
  # Only a job with a grant is refused this one.
  run as plx-alice scontrol update JobId="$job" Partition=plain
  [ "$status" != 0 ]
  contains "$output" "denied"
  as plx-alice scontrol update JobId="$job" TimeLimit=7
  as plx-alice scancel "$job"
  ordinary=$(held)
  [ "$(job_field "$ordinary" Partition)" = plain ]
  as plx-alice scontrol update JobId="$ordinary" Gres=gpu:1
  as plx-alice scancel "$ordinary"
  refused "no such pool; pools open to you: rl" --plexrl-pool=nowhere --plexrl-model=tiny
  refused "are set by the site" --gres=plexrl:1
  refused "add --plexrl-pool=rl" -p plexrl
  user=plx-carol refused "the pool is not open to you" "${pool_options[@]}"
  run as plx-alice srun "${pool_options[@]}" --gpus=1 true
  [ "$status" != 0 ]
  contains "$output" "GPU options do not go with"
}
