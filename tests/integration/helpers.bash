# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the integration tests share. One throw-away cluster per file (scripts/lab), in a folder of its
# own. No fixed sleeps: poll. Every client call has a deadline.

top=$(cd "${BATS_TEST_DIRNAME:-.}/../.." && pwd)
export PLEXRL_BUILD=${PLEXRL_BUILD:-$top/build}

# Skips all tests of the file, with a reason, where there can be no cluster.
require_slurm() {
  [ "$(id -u)" = 0 ] || skip "needs root: it makes namespaces and users"
  local program
  for program in slurmctld slurmd munged sbatch ip nsenter setpriv; do
    command -v "$program" >/dev/null || skip "needs $program: run scripts/install-deps slurm"
  done
  [ -x /usr/bin/python3 ] || skip "needs python3: run scripts/install-deps test"
}

# require_build NAME...: skips when the build left that part out.
require_build() {
  local name file
  for name in "$@"; do
    file=$(find "$PLEXRL_BUILD" -maxdepth 3 -name "$name" -type f 2>/dev/null | head -n 1)
    [ -n "$file" ] || skip "$name is not in $PLEXRL_BUILD (configured without it)"
  done
}

lab() { timeout 90 "$top/scripts/lab" "$@"; }

# as USER CMD...: in the cluster's network, in the user's own folder.
as() {
  local user=$1
  shift
  lab run "$user" -- timeout "${T:-60}" "$@"
}
on() {
  local node=$1
  shift
  lab on "$node" -- timeout "${T:-30}" "$@"
}
root_ctl() { timeout 20 nsenter --net="/run/netns/$(netns_prefix)-ctl" env SLURM_CONF="$PLEXRL_LAB/etc/slurm.conf" "$@"; }
netns_prefix() { echo "plx-$(printf '%s' "$(realpath -m "$PLEXRL_LAB")" | sha256sum | cut -c1-6)"; }

# poll SECONDS CMD...: until it succeeds.
poll() {
  local limit=$1 end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$end" ]; then echo "not within $limit s: $*" >&2; return 1; fi
    sleep 0.1
  done
}

# submit USER SBATCH_ARGS...: prints the job id.
submit() {
  local user=$1
  shift
  as "$user" sbatch --parsable "$@"
}
# Takes a job's script from standard input.
submit_script() {
  local user=$1 script
  shift
  script=$(mktemp "$PLEXRL_LAB/home/$user/script.XXXXXX")
  cat >"$script"
  chmod 755 "$script"
  submit "$user" "$@" "$script"
}

job_field() { root_ctl scontrol show job -o "$1" | grep -o " $2=[^ ]*" | head -n 1 | cut -d= -f2-; }
job_state() { job_field "$1" JobState; }
job_is() { [ "$(job_state "$1")" = "$2" ]; }
job_ended() {
  case $(job_state "$1") in PENDING | RUNNING | COMPLETING | CONFIGURING | SUSPENDED | '') return 1 ;; esac
}
# finished JOB STATE [SECONDS]: waits for the end and compares Slurm's word for it.
finished() {
  poll "${3:-40}" job_ended "$1" || { root_ctl scontrol show job "$1" >&2; return 1; }
  job_is "$1" "$2" || { echo "job $1 is $(job_state "$1"), expected $2" >&2; job_output "$1" >&2; return 1; }
}
job_output() {
  local file
  for file in StdOut StdErr; do
    file=$(job_field "$1" "$file")
    [ -f "$file" ] && cat "$file"
  done | awk '!seen[$0]++'
}

node_states() { root_ctl sinfo -h -N -o '%N %T %E' | sort -u; }
no_drain() {
  if node_states | grep -iE 'drain|down|fail'; then return 1; fi
}
processes_of_job() { grep -lz "^SLURM_JOB_ID=$1\$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }

contains() {
  case $1 in *"$2"*) return 0 ;; esac
  printf 'expected "%s" in:\n%s\n' "$2" "$1" >&2
  return 1
}

# bats does not see a failure of "! CMD".
must_fail() {
  if "$@"; then echo "succeeded, but must not: $*" >&2; return 1; fi
}

make_lab_folder() {
  PLEXRL_LAB=$(mktemp -d /tmp/plexrl-test.XXXXXX)
  chmod 755 "$PLEXRL_LAB"
  export PLEXRL_LAB
}
# In a test's teardown_file: fails the file when something is left.
drop_lab() { [ -z "${PLEXRL_LAB:-}" ] || { lab down && rm -rf "$PLEXRL_LAB"; }; }
