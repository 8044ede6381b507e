# shellcheck shell=bash disable=SC2154  # variables are those of scripts/lab
# SPDX-License-Identifier: Apache-2.0
# Starting and ending the services.

start_munge() {
  install -d -m 755 -o munge -g munge "$lab/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$lab/munge/key")
  chown munge: "$lab/munge/key"
  # One for all nodes: a socket in the file system crosses network namespaces.
  spawn munged setpriv --reuid munge --regid munge --clear-groups munged -F \
    --key-file="$lab/munge/key" --socket="$lab/munge/munge.socket" --pid-file="$lab/munge/munged.pid" \
    --log-file="$lab/munge/munged.log" --seed-file="$lab/munge/seed" --num-threads=4
  wait_for 10 test -S "$lab/munge/munge.socket" || die "munged did not start: $logs/munged.out"
}

start_accounting() {
  local data=$lab/db/data socket=$lab/db/m.sock
  install -d -m 755 -o mysql -g mysql "$lab/db" "$data"
  mariadb-install-db --user=mysql --datadir="$data" --skip-test-db \
    --auth-root-authentication-method=socket >"$logs/mariadb-install.out" 2>&1 ||
    die "mariadb-install-db failed: $logs/mariadb-install.out"
  spawn mariadbd mariadbd --no-defaults --user=mysql --datadir="$data" --socket="$socket" \
    --skip-networking --pid-file="$lab/db/m.pid" --innodb-buffer-pool-size=64M \
    --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0
  wait_for 30 mariadb -S "$socket" -e 'select 1' || die "mariadbd did not start: $logs/mariadbd.out"
  mariadb -S "$socket" -e "create user 'slurm'@'localhost' identified by 'lab';
    grant all on *.* to 'slurm'@'localhost';"
  spawn slurmdbd nsenter --net="/run/netns/$controller_netns" env MYSQL_UNIX_PORT="$socket" slurmdbd -D
  ctl_timeout=2 wait_for 30 ctl sacctmgr -n show cluster || die "slurmdbd did not start: $logs/slurmdbd.log"
  ctl sacctmgr -i add cluster lab >/dev/null
}

start_slurmctld() {
  spawn slurmctld nsenter --net="/run/netns/$controller_netns" unshare --uts \
    env PLEXRL_CONFIG="$lab/etc/plexrl.yaml" bash -c 'hostname ctl; exec slurmctld -D -c'
}

# The namespaces of a node live as long as this process, whatever becomes of its daemons.
start_node() {
  local node=$1
  # shellcheck disable=SC2016
  spawn "$node" nsenter --net="/run/netns/$(node_netns "$node")" unshare --uts --mount \
    bash -c 'hostname "$1"; mount -t tmpfs -o mode=755 lab /run; touch "/run/.$1"; exec sleep infinity' lab "$node"
  wait_for 10 in_node "$node" test -e "/run/.$node" || die "node $node did not start: $logs/$node.out"
}

in_node() {
  local node=$1 anchor
  shift
  anchor=$(pid_of "$node") || { note "no node '$node'"; return 1; }
  nsenter --target "$anchor" --net --uts --mount "$@"
}

spawn_in_node() {
  local name=$1 node=$2 anchor
  shift 2
  anchor=$(pid_of "$node") || die "no node '$node'"
  spawn "$name" nsenter --target "$anchor" --net --uts --mount "$@"
}

start_slurmd() {
  local node
  for node in $(node_names); do
    spawn_in_node "slurmd.$node" "$node" env PLEXRL_CONFIG="$lab/etc/plexrl.yaml" slurmd -D
  done
}

all_idle() {
  [ "$(ctl_timeout=2 ctl sinfo -h -p plain -N -o %t | sort | uniq -c | xargs)" = "$nodes idle" ]
}

# ---- plexrld ---------------------------------------------------------------------------------------

start_plexrld() {
  local node
  [ "$use_daemon" = 1 ] || return 0
  for node in $(node_names); do start_plexrld_on "$node"; done
  for node in $(node_names); do
    wait_for 30 daemon_answers "$node" || die "plexrld on $node does not answer: $logs/plexrld.$node.out"
    start_reaper_on "$node"
  done
}

start_plexrld_on() {
  local node=$1
  local -a cpus=() http=()
  local address
  address=$(awk '$1 == "http_address:" { print $2 }' "$lab/etc/plexrl.yaml")
  [ -z "$address" ] || http=(--socket "plexrld-http.socket=$address")
  [ "$pin" = 0 ] || cpus=(--cpus $(((${node#node} - 1) % $(nproc))))
  install -d -m 700 -o "$service_user" -g "$service_user" "$lab/nodes/$node"
  spawn_in_node "plexrld.$node" "$node" "$here/lab.d/supervise" --user "$service_user" \
    --runtime-dir /run/plexrl --socket plexrld.socket=/run/plexrl/plexrld.sock:0666 --watchdog 30 \
    "${http[@]}" "${cpus[@]}" --child-pid-file "$pids/plexrld.$node.child" -- \
    "$lab/bin/plexrld" --config "$lab/etc/plexrl.yaml" --state-dir "$lab/nodes/$node"
}

# Root's, started when plexrld asks.
start_reaper_on() {
  local node=$1
  spawn_in_node "plexrl-reap.$node" "$node" "$here/lab.d/supervise" --user root --on-demand \
    --runtime-dir /run/plexrl-reap --socket "plexrl-reap.socket=/run/plexrl/plexrl-reap.sock:0660:$service_user" \
    --child-pid-file "$pids/plexrl-reap.$node.child" -- "$lab/bin/plexrl-reap" --user "$service_user"
}

daemon_answers() {
  in_node "$1" timeout 5 "$lab/bin/plexrl" status --json
}

# ---- ending ----------------------------------------------------------------------------------------

end_services() {
  local name
  local -a jobs
  if alive slurmctld; then
    mapfile -t jobs < <(ctl_timeout=5 ctl squeue -h -o %A 2>/dev/null)
    [ ${#jobs[@]} = 0 ] || ctl_timeout=5 ctl scancel "${jobs[@]}" 2>/dev/null || true
    [ ${#jobs[@]} = 0 ] || ctl_timeout=2 wait_for 5 no_jobs || true
  fi
  for name in $(service_names); do end_service "$name"; done
  sweep_netns
}
no_jobs() { [ -z "$(ctl squeue -h -o %A)" ]; }

# Those that use others first; the anchors of the nodes last.
service_names() {
  local name group
  for group in 'slurmd.*' slurmctld 'plexrl*' slurmdbd mariadbd munged 'node*'; do
    for name in "$pids"/$group; do
      case $name in *'*' | *.child) continue ;; esac
      [ -f "$name" ] && basename "$name"
    done
  done
}

remove_cgroups() {
  local node folder
  for node in $(node_names); do
    for folder in /sys/fs/cgroup/*/slurm_"$node" /sys/fs/cgroup/slurm_"$node"; do
      [ -d "$folder" ] && find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null
    done
  done
  return 0
}
