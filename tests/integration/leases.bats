#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Leases of real Slurm jobs: turns on the device, a job that refuses and is stopped through plexrl-reap,
# which finds by Slurm's own processes whose is whose.

load helpers

setup_file() {
  require_slurm
  require_build spank_plexrl.so job_submit_plexrl.so plexrld plexrl plexrl-engine plexrl-reap
  make_lab_folder
  sed 's/^daemon:/&\n  yield_timeout_ms: 2000/; s/^\( *\)partition: plexrl/&\n\1lease_slice_s: 1\n\1lease_limit_s: 60\n\1device_files: @LAB@\/dev\/pool*/' \
    "$BATS_TEST_DIRNAME/site.yaml" >"$BATS_FILE_TMPDIR/leases.yaml"
  lab up --nodes 1 --config "$BATS_FILE_TMPDIR/leases.yaml"
}
teardown_file() { drop_lab; }
teardown() {
  local job
  for job in $(root_ctl squeue -h -o %A); do root_ctl scancel "$job"; done
}

pool_options=(--plexrl-pool=rl --plexrl-model=tiny --plexrl-train=none -w node1)
holder_is() { [ "$(on node1 plexrl status --json | jq .lease.job_id)" = "$1" ]; }
log_of() { cat "$PLEXRL_LAB"/log/"$1"*; }

@test "a job runs a command of its own under a lease and completes" {
  job=$(submit plx-alice "${pool_options[@]}" -o own.out --wrap 'plexrl lease run -- sh -c "echo inside; exit 3"; echo "status $?"')
  finished "$job" COMPLETED
  contains "$(job_output "$job")" inside
  contains "$(job_output "$job")" 'status 3'
}

@test "a job that does not yield is stopped, the next goes on, a tenant of the service is untouched" {
  tenant=$(submit plx-bob --plexrl-pool=rl --plexrl-model=tiny -w node1 -o tenant.out \
    --wrap 'plexrl train --env sort --steps 6 --prompts 4 --samples 2 --eval-prompts 4')
  refuser=$(submit plx-alice "${pool_options[@]}" -o refuser.out \
    --wrap 'plexrl lease run --limit 2 -- sh -c "trap \"\" TERM; while :; do sleep 1; done"; echo "status $?"')
  poll 40 holder_is "$refuser"
  next=$(submit plx-bob "${pool_options[@]}" -o next.out --wrap 'plexrl lease run -- echo mine')
  finished "$next" COMPLETED 60
  contains "$(job_output "$next")" mine
  finished "$refuser" COMPLETED
  contains "$(job_output "$refuser")" 'status 137'
  finished "$tenant" COMPLETED 60
  contains "$(log_of plexrl-reap.node1)" "job $refuser of uid"
  on node1 plexrl status --json | jq -e '.leases_stopped == 1'
}

@test "a job that is cancelled while it holds frees the device" {
  job=$(submit plx-alice "${pool_options[@]}" -o cancelled.out --wrap 'plexrl lease run -- sleep 1000')
  poll 40 holder_is "$job"
  root_ctl scancel "$job"
  poll 30 holder_is null
  poll 20 no_drain
}

@test "the user of a lease job may open the device files until its last such job ends" {
  device=$PLEXRL_LAB/dev/pool0
  try_open="if (: <>$device) 2>/dev/null; then echo opened; else echo refused; fi"
  trains=$(submit plx-bob --plexrl-pool=rl --plexrl-model=tiny -w node1 -o trains.out --wrap "$try_open")
  finished "$trains" COMPLETED
  contains "$(job_output "$trains")" refused
  long=$(submit plx-alice "${pool_options[@]}" -o long.out --wrap "$try_open; sleep 1000")
  poll 20 job_is "$long" RUNNING
  short=$(submit plx-alice "${pool_options[@]}" -o short.out --wrap "$try_open")
  finished "$short" COMPLETED
  contains "$(job_output "$short")" opened
  poll 10 contains "$(job_output "$long")" opened
  has_entry() { python3 -c 'import os, sys; sys.exit(len(os.getxattr(sys.argv[1], "system.posix_acl_access")) <= 28)' "$device" 2>/dev/null; }
  has_entry
  [ "$(stat -c %a "$device")" = 660 ]
  root_ctl scancel "$long"
  gone() { ! has_entry; }
  poll 20 gone
  [ "$(stat -c %a "$device")" = 660 ]
}

@test "plexrld does not start while everybody may open a device file" {
  chmod 666 "$PLEXRL_LAB/dev/pool1"
  lab daemon node1 stop
  run on node1 "$PLEXRL_LAB/bin/plexrld" --config "$PLEXRL_LAB/etc/plexrl.yaml" --node node1 --run-dir /run/other --state-dir /run/other
  chmod 660 "$PLEXRL_LAB/dev/pool1"
  lab daemon node1 start
  [ "$status" = 1 ]
  contains "$output" 'is open to everybody'
}

@test "a process of another job is not stopped, whoever asks" {
  job=$(submit plx-bob "${pool_options[@]}" -o bystander.out --wrap 'sleep 1000')
  poll 20 job_is "$job" RUNNING
  local pid
  bystander() {
    for pid in $(processes_of_job "$job"); do
      ! grep -qz '^sleep' "/proc/$pid/cmdline" || return 0
    done
    return 1
  }
  poll 20 bystander
  uid=$(id -u plx-bob)
  # As plexrld's user, with another job's number: the request of a plexrld gone wrong.
  on node1 setpriv --reuid plexrl --regid plexrl --clear-groups /usr/bin/python3 - "$pid" "$uid" <<'PY'
import socket, struct, sys
pid, uid = int(sys.argv[1]), int(sys.argv[2])
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect("/run/plexrl/plexrl-reap.sock")
s.sendall(b"PXR1" + struct.pack("<IIII", 999999, uid, 1, pid))
answer = s.recv(16)
assert answer == b"PXR1" + struct.pack("<III", 0, 0, 1), answer
PY
  [ -d "/proc/$pid" ]
  job_is "$job" RUNNING
}
