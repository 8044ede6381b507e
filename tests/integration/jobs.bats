#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Jobs of two users in one pool: every way to start them, steps, requeue, cancel, time limit, a job from
# a job, and what users cannot do to each other.

load helpers

setup_file() {
  require_slurm
  require_build spank_plexrl.so job_submit_plexrl.so plexrld plexrl plexrl-engine
  make_lab_folder
  lab up --nodes 2 --config "$BATS_TEST_DIRNAME/site.yaml"
  # Slurm counts time limits in minutes: this one ends while the other tests run.
  limited_job=$(submit_script plx-bob "${pool_options[@]}" -w node2 -t 1 -o limited.out <<'JOB'
#!/bin/bash
trap '' TERM
plexrl train --env sort --steps 100000 --prompts 2 --samples 2
sleep 1000
JOB
  )
  export limited_job
}
teardown_file() { drop_lab; }
teardown() {
  local job
  for job in $(root_ctl squeue -h -o %A); do
    [ "$job" = "$limited_job" ] || root_ctl scancel "$job"
  done
}

pool_options=(--plexrl-pool=rl --plexrl-model=tiny)
small_train='plexrl train --env sort --steps 2 --prompts 4 --samples 2 --eval-prompts 4'

# service_job NODE JOB FILTER: one fact of the service's record of a job.
service_job() { on "$1" plexrl jobs --json | jq -e -r ".jobs[] | select(.job_id == $2) | $3"; }
service_says() { [ "$(service_job "$1" "$2" "$3")" = "$4" ]; }

@test "sbatch: a job trains and completes" {
  job=$(submit plx-alice "${pool_options[@]}" -w node1 -o train.out --wrap "$small_train --log train.log")
  finished "$job" COMPLETED
  [ "$(grep -c '"phase":"grpo"' "$PLEXRL_LAB/home/plx-alice/train.log")" = 2 ]
  poll 10 service_says node1 "$job" .state closed
  [ "$(service_job node1 "$job" .user)" = plx-alice ]
  [ "$(service_job node1 "$job" .share_percent)" = 25 ]
  [ "$(service_job node1 "$job" '.ops_done > 4')" = true ]
}

@test "what a run was is learnt, shown to its user, and decides the share of the next" {
  job=$(submit plx-alice "${pool_options[@]}" -w node1 -J learns -o learns.out --wrap "$small_train")
  finished "$job" COMPLETED
  learnt() { on node1 plexrl profiles --json | jq -e '.profiles[] | select(.name == "learns")'; }
  poll 10 learnt
  [ "$(learnt | jq -r '"\(.user) \(.pool) \(.train_mode) \(.models[0]) \(.runs)"')" = "plx-alice rl lora tiny 1" ]
  [ "$(learnt | jq '.busy_percent > 0 and .rollout_percent > 0 and .training_percent > 0')" = true ]
  # Nothing of it to others.
  as plx-bob srun "${pool_options[@]}" -w node1 plexrl profiles --json >"$BATS_TEST_TMPDIR/others.json"
  [ "$(jq '[.profiles[] | select(.user == "plx-alice")] | length' "$BATS_TEST_TMPDIR/others.json")" = 0 ]
  on node1 env PLEXRL_CONFIG="$PLEXRL_LAB/etc/plexrl.yaml" plexrl profiles export
  # Busy or not, by what ran just now: the table of test_job_submit has the numbers.
  busy=$(learnt | jq .busy_percent)
  run as plx-alice sbatch --parsable "${pool_options[@]}" -H -J learns --wrap true
  contains "$output" "earlier runs of 'learns' were busy for $busy percent of their time (1 run)"
  share=$(((busy + 4) / 5 * 5))
  [ "$share" -le 50 ] || share=50
  contains "$(job_field "${lines[-1]}" TresPerNode)" "plexrl:$share,"
  rm "$PLEXRL_LAB/etc/profiles"
}

@test "#SBATCH lines: full training with half of the device group" {
  job=$(submit_script plx-alice -w node1 -o full.out <<JOB
#!/bin/bash
#SBATCH --plexrl-pool=rl --plexrl-model=tiny --plexrl-train=full --plexrl-share=50
$small_train
JOB
  )
  finished "$job" COMPLETED
  [ "$(service_job node1 "$job" .train_mode)" = full ]
  [ "$(service_job node1 "$job" .share_percent)" = 50 ]
}

@test "srun: a job without a script trains" {
  as plx-alice srun "${pool_options[@]}" bash -c "$small_train --log srun.log"
  [ "$(grep -c '"phase":"grpo"' "$PLEXRL_LAB/home/plx-alice/srun.log")" = 2 ]
}

@test "salloc: steps inside an allocation train" {
  as plx-alice salloc "${pool_options[@]}" srun bash -c "$small_train --log salloc.log"
  [ "$(grep -c '"phase":"grpo"' "$PLEXRL_LAB/home/plx-alice/salloc.log")" = 2 ]
}

@test "every element of an array trains as a job of its own" {
  job=$(submit plx-alice "${pool_options[@]}" --array=1-3 -o 'array-%a.out' \
    --wrap "$small_train --log array-\$SLURM_ARRAY_TASK_ID.log")
  array_over() { [ -z "$(root_ctl squeue -h -j "$job" 2>/dev/null)" ]; }
  poll 60 array_over
  for i in 1 2 3; do
    [ "$(job_field "${job}_$i" JobState)" = COMPLETED ]
    [ "$(grep -c '"phase":"grpo"' "$PLEXRL_LAB/home/plx-alice/array-$i.log")" = 2 ]
  done
}

@test "a job gets socket and token; a job outside the pool gets neither" {
  inside=$(as plx-alice srun "${pool_options[@]}" env)
  contains "$inside" "PLEXRL_SOCKET=/run/plexrl/plexrld.sock"
  contains "$inside" "PLEXRL_TOKEN="
  outside=$(as plx-alice srun env)
  must_fail grep PLEXRL_TOKEN <<<"$outside"
}

@test "with --plexrl-env a job is served by TCP, its pairs die with it, and others get neither" {
  cat >"$PLEXRL_LAB/home/plx-alice/models.py" <<'PY'
import os, urllib.error, urllib.request
def status(url, key):
    try:
        return urllib.request.urlopen(urllib.request.Request(url + "/models", headers={"X-API-Key": key}), timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
print("openai", status(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]))
print("tinker", status(os.environ["TINKER_BASE_URL"] + "/v1", os.environ["TINKER_API_KEY"]))
PY
  job=$(submit_script plx-alice "${pool_options[@]}" --plexrl-env=openai,tinker -w node1 -o env.out <<'JOB'
#!/bin/bash
python3 models.py
sbatch --parsable -o env-plain.out --wrap 'env' >env-plain.id
OPENAI_API_KEY=own sbatch --parsable --plexrl-pool=rl --plexrl-model=tiny --plexrl-env=tinker -o env-pool.out --wrap 'env' >env-pool.id
plexrl env | grep -c 'export \(TINKER\|OPENAI\)_'
JOB
  )
  finished "$job" COMPLETED
  home=$PLEXRL_LAB/home/plx-alice
  [ "$(cat "$home/env.out")" = $'openai 200\ntinker 200\n4' ]
  finished "$(cat "$home/env-plain.id")" COMPLETED
  finished "$(cat "$home/env-pool.id")" COMPLETED
  must_fail grep -E '^(TINKER|OPENAI)_|^PLEXRL_(SOCKET|TOKEN|BASE_URL|MARKED)' "$home/env-plain.out"
  grep -x TINKER_BASE_URL=http://127.0.0.1:585 "$home/env-pool.out"
  must_fail grep -E '^OPENAI_BASE_URL' "$home/env-pool.out"
  # A job that did not ask is not served by TCP, whatever it knows.
  # shellcheck disable=SC2016
  job=$(submit plx-alice "${pool_options[@]}" -w node1 -o unasked.out --wrap \
    'OPENAI_BASE_URL=http://127.0.0.1:585/v1 OPENAI_API_KEY=$PLEXRL_TOKEN TINKER_BASE_URL=http://127.0.0.1:585 TINKER_API_KEY=tml-$PLEXRL_TOKEN python3 models.py')
  finished "$job" COMPLETED
  [ "$(cat "$home/unasked.out")" = $'openai 401\ntinker 401' ]
}

# Each step waits for the other's sign of life; serialised steps would wait for ever.
@test "two parallel steps overlap" {
  job=$(submit_script plx-alice "${pool_options[@]}" -n2 -o overlap.out <<'JOB'
#!/bin/bash
rm -f first second
meet() { touch "$1"; for i in $(seq 200); do [ -e "$2" ] && exit 0; sleep 0.1; done; exit 1; }
export -f meet
srun --exact -n1 bash -c 'meet first second' & one=$!
srun --exact -n1 bash -c 'meet second first' & two=$!
wait $one && wait $two
JOB
  )
  finished "$job" COMPLETED
}

@test "forged: a step with other options changes nothing for its job" {
  job=$(submit_script plx-alice "${pool_options[@]}" -w node1 -o forged.out <<'JOB'
#!/bin/bash
srun --plexrl-pool=rl --plexrl-model=tiny --plexrl-train=full --plexrl-share=50 plexrl train --env sort --steps 1 --prompts 2 --samples 2
srun --plexrl-pool=v1:pool=rl:share=100:mem=999999:mode=full:rank=0:slowdown=0:models=tiny true
touch forged.done
sleep 1000
JOB
  )
  poll 40 test -e "$PLEXRL_LAB/home/plx-alice/forged.done"
  [ "$(service_job node1 "$job" .share_percent)" = 25 ]
  [ "$(service_job node1 "$job" .train_mode)" = lora ]
}

@test "forged: a step cannot make a pool job of an ordinary one" {
  job=$(submit_script plx-alice -w node1 -o plain.out <<'JOB'
#!/bin/bash
srun --plexrl-pool=rl --plexrl-model=tiny env >plain.env
srun --plexrl-pool=v1:pool=rl:share=100:mem=64:mode=full:rank=0:slowdown=0:models=tiny env >>plain.env
true
JOB
  )
  poll 100 job_ended "$job"
  must_fail grep PLEXRL_TOKEN "$PLEXRL_LAB/home/plx-alice/plain.env"
  must_fail service_job node1 "$job" .state
}

@test "requeue: the job finds its model as it was left" {
  job=$(submit_script plx-alice "${pool_options[@]}" --requeue -w node1 -o requeue.out --open-mode=append <<'JOB'
#!/bin/bash
if [ ! -e first.done ]; then
  plexrl train --env sort --steps 2 --prompts 4 --samples 2 --checkpoint requeue.ckpt --log requeue.log && touch first.done
  sleep 1000
fi
plexrl train --env sort --steps 2 --prompts 4 --samples 2 --checkpoint requeue.ckpt --resume --log requeue.log
JOB
  )
  poll 40 test -e "$PLEXRL_LAB/home/plx-alice/first.done"
  step=$(service_job node1 "$job" '.models[0].step')
  [ "$step" -gt 0 ]
  root_ctl scontrol requeue "$job"
  # Slurm would wait for two minutes. Not less than three seconds: slurmd 22.05 runs no prolog when a
  # job comes back within two (its list of known jobs is cleared no more often).
  far_away() { [ "$(date -d "$(job_field "$job" StartTime)" +%s)" -gt $(($(date +%s) + 60)) ]; }
  hurry() { far_away && root_ctl scontrol update JobId="$job" StartTime=now+4seconds && must_fail far_away; }
  poll 30 hurry
  finished "$job" COMPLETED 90
  [ "$(service_job node1 "$job" .incarnation)" = 2 ]
  [ "$(service_job node1 "$job" '.models[0].step')" = "$step" ]
  [ "$(service_job node1 "$job" '.models | length')" = 1 ]
}

@test "scancel: the job's processes and its place in the service are gone" {
  job=$(submit plx-alice "${pool_options[@]}" -w node1 -o cancel.out \
    --wrap 'plexrl train --env sort --steps 100000 --prompts 4 --samples 2 --log cancel.log')
  poll 40 test -s "$PLEXRL_LAB/home/plx-alice/cancel.log"
  service_says node1 "$job" .state open
  as plx-alice scancel "$job"
  finished "$job" CANCELLED
  poll 10 service_says node1 "$job" .state closed
  [ "$(service_job node1 "$job" .ops_queued)" = 0 ]
  [ -z "$(processes_of_job "$job")" ]
}

@test "a job submitted from a job is a job of its own" {
  job=$(submit_script plx-alice "${pool_options[@]}" -w node1 -o outer.out <<'JOB'
#!/bin/bash
echo "$PLEXRL_TOKEN" >outer.token
sbatch --parsable -o inner-plain.out --wrap 'env' >inner-plain.id
sbatch --parsable --plexrl-pool=rl --plexrl-model=tiny -o inner-pool.out \
  --wrap 'echo "$PLEXRL_TOKEN"; plexrl train --env sort --steps 1 --prompts 2 --samples 2' >inner-pool.id
JOB
  )
  finished "$job" COMPLETED
  home=$PLEXRL_LAB/home/plx-alice
  finished "$(cat "$home/inner-plain.id")" COMPLETED
  finished "$(cat "$home/inner-pool.id")" COMPLETED
  must_fail grep PLEXRL_TOKEN "$home/inner-plain.out"
  [ "$(head -n 1 "$home/inner-pool.out")" != "$(cat "$home/outer.token")" ]
  [ -n "$(head -n 1 "$home/inner-pool.out")" ]
}

@test "two users cannot see or touch each other's tenants" {
  hers=$(submit plx-alice "${pool_options[@]}" -w node1 -o hers.out --wrap "$small_train; "'echo "$PLEXRL_TOKEN" >/tmp/'"${PLEXRL_LAB##*/}.token; sleep 1000")
  poll 40 test -s "/tmp/${PLEXRL_LAB##*/}.token"
  token=$(cat "/tmp/${PLEXRL_LAB##*/}.token")
  rm -f "/tmp/${PLEXRL_LAB##*/}.token"
  cat >"$PLEXRL_LAB/home/plx-bob/spy" <<JOB
#!/bin/bash
plexrl jobs --json >seen.jobs
plexrl ops --json >seen.ops
plexrl report $hers >seen.report 2>&1 && echo saw the report
PLEXRL_TOKEN=$token plexrl train --env sort --steps 1 --prompts 2 --samples 2 >stolen.out 2>&1 && echo used the token
PLEXRL_TOKEN=$(printf '0%.0s' {1..64}) plexrl train --env sort --steps 1 --prompts 2 --samples 2 >guessed.out 2>&1 && echo guessed
true
JOB
  chmod 755 "$PLEXRL_LAB/home/plx-bob/spy"
  job=$(submit plx-bob "${pool_options[@]}" -w node1 -o spy.out ./spy)
  finished "$job" COMPLETED
  home=$PLEXRL_LAB/home/plx-bob
  [ "$(cat "$home/spy.out")" = "" ]
  [ "$(jq -r '[.jobs[].user] | unique | join(",")' "$home/seen.jobs")" = plx-bob ]
  [ "$(jq "[.ops[] | select(.job_id == $hers)] | length" "$home/seen.ops")" = 0 ]
  service_says node1 "$hers" .state open
}

@test "a user outside any job sees nothing and opens nothing" {
  submit plx-alice "${pool_options[@]}" -w node1 -o visible.out --wrap 'sleep 1000'
  shows_job() { on node1 plexrl jobs --json | jq -e '.jobs[] | select(.state == "open")'; }
  poll 20 shows_job
  as_carol=(setpriv --reuid plx-carol --regid plx-carol --init-groups)
  [ "$(on node1 "${as_carol[@]}" plexrl jobs --json | jq '.jobs | length')" = 0 ]
  run on node1 "${as_carol[@]}" plexrl job open --job-id 999 --user plx-carol \
    --grant v1:pool=rl:share=25:mem=64:mode=lora:rank=8:slowdown=0:models=tiny
  [ "$status" != 0 ]
}

@test "garbage on the socket ends that connection only" {
  before=$(on node1 plexrl status --json | jq .protocol_errors)
  on node1 /usr/bin/python3 -c '
import os, socket
for size in (1, 7, 64, 4096, 100000):
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/plexrl/plexrld.sock")
    s.settimeout(10)
    try:
        s.sendall(os.urandom(size))
        s.shutdown(socket.SHUT_WR)
        while s.recv(65536):
            pass
    except (BrokenPipeError, ConnectionResetError):
        pass
'
  [ "$(on node1 plexrl status --json | jq .protocol_errors)" -gt "$before" ]
  [ "$(on node1 plexrl status --json | jq -r .state)" = ready ]
}

@test "time limit: the job ends as TIMEOUT and leaves nothing" {
  finished "$limited_job" TIMEOUT 150
  poll 10 service_says node2 "$limited_job" .state closed
  [ -z "$(processes_of_job "$limited_job")" ]
}

@test "a job whose grant the prolog cannot note fails with the reason, and drains nothing" {
  local home=$PLEXRL_LAB/home/plx-alice options
  on node1 mkdir -p -m 700 /run/plexrl-jobs
  for options in size=4k,nr_inodes=1 size=4k,nr_inodes=9; do
    on node1 mount -t tmpfs -o "$options,mode=700" none /run/plexrl-jobs
    on node1 dd if=/dev/zero of=/run/plexrl-jobs/ballast bs=4k count=1 || true
    job=$(submit plx-alice "${pool_options[@]}" -w node1 -o unnoted.out --wrap 'touch ran.anyway')
    poll 40 job_ended "$job"
    on node1 umount /run/plexrl-jobs
    job_is "$job" FAILED
    contains "$(cat "$home/unnoted.out")" "full?"
    [ ! -e "$home/ran.anyway" ]
  done
  finished "$(submit plx-alice "${pool_options[@]}" -w node1 -o noted.out --wrap true)" COMPLETED
  no_drain
}

@test "no node was drained" {
  no_drain
}
