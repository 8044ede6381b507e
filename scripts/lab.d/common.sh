# shellcheck shell=bash disable=SC2154  # variables are those of scripts/lab
# SPDX-License-Identifier: Apache-2.0
# Folder, names, processes. Sourced by lab; uses its variables.

die() { echo "lab: $*" >&2; exit 1; }
note() { echo "lab: $*" >&2; }

# The folder holds what root runs (lab.env, programs), and its usual place is /tmp: one that somebody
# else made, or may write, is not used.
check_folder_owner() {
  [ ! -e "$lab" ] || [ -n "$(find "$lab" -maxdepth 0 -type d -user root ! -perm /022)" ] ||
    die "$lab must be a folder of root that nobody else may write: remove it, or choose another with --dir"
}

# Nodes have a private /run, so a folder below it would vanish there.
check_folder_name() {
  lab=$(realpath -m "$lab")
  case $lab in
    / | /run | /run/* | /var/run | /var/run/*) die "the folder must not be $lab: nodes have a private /run" ;;
  esac
  check_folder_owner
  # Several labs live side by side: all names on the host derive from the folder.
  prefix=plx-$(printf '%s' "$lab" | sha256sum | cut -c1-6)
  controller_netns=$prefix-ctl
  pids=$lab/pids
  logs=$lab/log
  export SLURM_CONF=$lab/etc/slurm.conf
}

node_netns() { echo "$prefix-n${1#node}"; }
node_list() { echo "node[1-$nodes]"; }
node_names() { seq -f 'node%.0f' "$nodes"; }

save_lab() {
  declare -p nodes accounting use_daemon use_plugins pin >"$lab/lab.env"
}

load_lab() {
  [ -f "$lab/lab.env" ] || die "no cluster in $lab: run 'lab up' first (folder: --dir or PLEXRL_LAB)"
  # shellcheck disable=SC1091
  . "$lab/lab.env"
}

# ---- processes: "pid starttime" in $pids/NAME, so that a reused pid is never taken for ours --------

# Empty for a process that has ended, also when nobody has waited for it yet.
start_time() { awk '{ sub(/.*\) /, ""); if ($1 != "Z") print $20 }' "/proc/$1/stat" 2>/dev/null; }

pid_of() {
  local pid time
  [ -f "$pids/$1" ] && read -r pid time <"$pids/$1" || return 1
  [ -n "$time" ] && [ "$(start_time "$pid")" = "$time" ] && echo "$pid"
}
alive() { pid_of "$1" >/dev/null; }

# spawn NAME CMD...: in the background, in a session of its own, with none of our descriptors (a test
# runner waits for the last copy of its own).
spawn() {
  local name=$1
  shift
  (
    for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done
    exec setsid "$@" </dev/null >>"$logs/$name.out" 2>&1
  ) &
  local pid=$!
  echo "$pid $(start_time $pid)" >"$pids/$name"
}

# wait_for SECONDS CMD...: polls.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.05
  done
}

# end_service NAME: TERM, then KILL.
end_service() {
  local pid
  pid=$(pid_of "$1") || return 0
  kill "$pid" 2>/dev/null || true
  wait_for "${2:-10}" gone "$1" || kill -9 "$pid" 2>/dev/null || true
  wait_for 5 gone "$1" || note "pid $pid ($1) does not end"
}
gone() { ! alive "$1"; }

# A Slurm client as root, where slurmctld can be reached. Clients retry for minutes when it is dead.
ctl() { timeout "${ctl_timeout:-20}" nsenter --net="/run/netns/$controller_netns" "$@"; }
