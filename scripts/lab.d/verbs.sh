# shellcheck shell=bash disable=SC2154  # variables are those of scripts/lab
# SPDX-License-Identifier: Apache-2.0
# What the user can ask for.

lab_up() {
  [[ $nodes =~ ^[1-9][0-9]?$ ]] || die "--nodes takes 1 to 99, not '$nodes'"
  check_programs
  if [ -f "$lab/lab.env" ]; then
    if alive slurmctld && alive node1; then note "up already in $lab"; return; fi
    note "removing what an earlier run left in $lab"
    (load_lab; tear_down && rm -rf "$lab")
  fi
  [ ! -e "$lab" ] || [ -z "$(ls -A "$lab")" ] || die "$lab is not empty and not a lab"
  trap 'failed_up $?' EXIT
  make_folder
  with_user_lock register_users
  make_homes
  stage_programs
  write_slurm_config
  make_network
  start_munge
  [ "$accounting" = 0 ] || start_accounting
  for node in $(node_names); do start_node "$node"; done
  start_plexrld
  start_slurmctld
  start_slurmd
  wait_for 30 settled || true
  all_idle || die "the nodes did not become idle: $(ctl_timeout=2 ctl sinfo -h -N -o '%N %t %E' | xargs)"
  trap - EXIT
  note "up in $lab: $nodes node(s), users ${job_users[*]}"
}

# Idle, or beyond hope.
settled() {
  local node
  all_idle && return
  alive slurmctld || return 0
  for node in $(node_names); do alive "slurmd.$node" || return 0; done
  return 1
}

make_folder() {
  install -d -m 755 "$lab" "$lab/etc" "$lab/pids" "$lab/log" "$lab/home" "$lab/nodes"
  check_folder_owner  # nobody was faster
  save_lab
  install -d -m 755 -o slurm -g slurm "$lab/state"
  install -d -m 755 "$lab/spool"
  chown slurm "$lab/log"
  setpriv --reuid nobody --regid nogroup --clear-groups test -x "$lab" ||
    die "$lab cannot be reached by ordinary users: choose a folder whose parents are searchable"
}

failed_up() {
  local file
  [ "$1" != 0 ] || return 0
  note "start failed; the last lines of the logs in $lab/log:"
  for file in "$lab"/log/*.out; do
    [ -s "$file" ] && { echo "--- $file" >&2; tail -n 8 "$file" >&2; }
  done
  trap - EXIT
  tear_down || true
  exit 1
}

lab_down() {
  if [ ! -f "$lab/lab.env" ]; then note "nothing is up in $lab"; return; fi
  load_lab
  tear_down || die "something is left; see above"
  if [ "$keep" = 1 ]; then rm -f "$lab/lab.env"; else rm -rf "$lab"; fi
  note "down"
}

tear_down() {
  end_services
  remove_network
  remove_cgroups
  with_user_lock release_users
  nothing_left
}

# Looks for processes, namespaces, mounts and users that are ours; prints what it finds.
nothing_left() {
  local name found=0
  for name in $(service_names); do
    if alive "$name"; then note "left: process $(pid_of "$name") ($name)"; found=1; fi
  done
  for name in $(our_netns); do note "left: network namespace $name"; found=1; done
  while read -r name; do note "left: mount $name"; found=1; done < <(awk -v d="$lab/" 'index($2, d) == 1 { print $2 }' /proc/mounts)
  if [ ! -d "$user_registry" ]; then
    # Nobody's lab is up. A user that was here before the first one stays, with no mark.
    while read -r name; do note "left: process $name"; found=1; done < <(processes_below "$lab")
  fi
  return $found
}

# Processes whose program or working folder is in our folder.
processes_below() {
  local proc target link
  for proc in /proc/[0-9]*; do
    for link in exe cwd; do
      target=$(readlink "$proc/$link" 2>/dev/null) || continue
      case $target in "$1"/*) echo "${proc#/proc/} $target" ;; esac
    done
  done
}

lab_run() {
  local user=${words[0]:-}
  [[ -n $user && $# -gt 0 ]] || die "usage: lab run USER -- CMD [ARG...]"
  getent passwd "$user" >/dev/null || die "no user '$user'; this lab has ${job_users[*]}"
  [ -d "$lab/home/$user" ] || die "user '$user' has no home here; this lab has ${job_users[*]}"
  exec nsenter --net="/run/netns/$controller_netns" \
    setpriv --reuid "$user" --regid "$user" --init-groups \
    env -i -C "$lab/home/$user" HOME="$lab/home/$user" USER="$user" LOGNAME="$user" SHELL=/bin/bash \
    PATH="$lab/bin:/usr/local/bin:/usr/bin:/bin" LANG=C.UTF-8 SLURM_CONF="$SLURM_CONF" \
    PLEXRL_CONFIG="$lab/etc/plexrl.yaml" "$@"
}

lab_on() {
  local node=${words[0]:-}
  [[ -n $node && $# -gt 0 ]] || die "usage: lab on NODE -- CMD [ARG...]"
  in_node "$node" env PATH="$lab/bin:$PATH" PLEXRL_CONFIG="$lab/etc/plexrl.yaml" "$@"
}

lab_daemon() {
  local node=${words[0]:-} what=${words[1]:-} supervisor
  supervisor=$(pid_of "plexrld.$node") || die "no plexrld is supervised on '$node'"
  case $what in
    stop) kill -USR1 "$supervisor"; wait_for 40 daemon_is_down "$node" || die "plexrld on $node does not end" ;;
    start) kill -USR2 "$supervisor"; wait_for 30 daemon_answers "$node" || die "plexrld on $node does not answer" ;;
    restart) words=("$node" stop); lab_daemon; words=("$node" start); lab_daemon ;;
    pid) cat "$pids/plexrld.$node.child" ;;
    log) cat "$logs/plexrld.$node.out" ;;
    *) die "usage: lab daemon NODE start|stop|restart|pid|log" ;;
  esac
}
daemon_is_down() { [ -z "$(cat "$pids/plexrld.$1.child")" ]; }

lab_status() {
  local name pid
  echo "folder $lab, $nodes node(s)"
  for name in $(service_names); do
    if pid=$(pid_of "$name"); then echo "$name running, pid $pid"; else echo "$name not running"; fi
  done
  ctl sinfo -N
  ctl squeue
}
