#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The throw-away cluster itself, with a stock Slurm, and the supervisor of its nodes.

load helpers

setup_file() {
  require_slurm
  make_lab_folder
}
setup() {
  work=$(mktemp -d /tmp/plexrl-test.XXXXXX)
  chmod 755 "$work"
}
teardown() {
  if [ -n "${supervisor:-}" ]; then
    kill "$supervisor" 2>/dev/null || true
    wait "$supervisor" 2>/dev/null || true # it ends its service, which writes to $work
  fi
  rm -rf "$work"
}
teardown_file() { drop_lab; }

nothing_with_prefix() {
  must_fail grep "^$(netns_prefix)-" <<<"$(ip netns list)" && [ ! -e "/run/plexrl-lab-users/lab.$(netns_prefix)" ]
}

@test "lab up twice is up once, jobs run as a user on every node" {
  lab up --stock
  first=$(cat "$PLEXRL_LAB/pids/slurmctld")
  lab up --stock
  [ "$(cat "$PLEXRL_LAB/pids/slurmctld")" = "$first" ]
  [ "$(as plx-alice srun -N2 hostname | sort | xargs)" = "node1 node2" ]
  [ "$(as plx-alice srun id -un)" = plx-alice ]
}

@test "a folder that somebody else made or may write is not used: lab.env is run as root" {
  echo "touch $work/ran" >"$work/lab.env"
  for mend in "chown nobody" "chmod go+w"; do
    $mend "$work"
    run lab status --dir "$work"
    [ "$status" = 1 ]
    contains "$output" "must be a folder of root"
    [ ! -e "$work/ran" ]
    chown root "$work"
  done
}

@test "lab on enters the namespaces of a node" {
  [ "$(on node2 hostname)" = node2 ]
  on node2 touch /run/only-here
  run on node1 test -e /run/only-here
  [ "$status" = 1 ]
  [ ! -e /run/only-here ]
  run lab on node9 -- true
  [ "$status" != 0 ]
  contains "$output" "no node 'node9'"
}

@test "lab down ends jobs that ignore TERM or left their session, and a second one does nothing" {
  submit plx-bob -o out --wrap 'trap "" TERM; setsid sleep 9876 & echo $! >pid; sleep 9876'
  poll 20 test -s "$PLEXRL_LAB/home/plx-bob/pid"
  stray=$(cat "$PLEXRL_LAB/home/plx-bob/pid")
  [ -d "/proc/$stray" ]
  lab down
  run cat "/proc/$stray/cmdline"
  [ -z "$output" ] || [ "$status" != 0 ]
  nothing_with_prefix
  run lab down
  [ "$status" = 0 ]
  contains "$output" "nothing is up"
}

@test "lab down finds its way after slurmctld, munged and a slurmd were killed" {
  lab up --stock
  for name in slurmctld munged slurmd.node1; do
    read -r pid _ <"$PLEXRL_LAB/pids/$name"
    kill -9 "$pid"
  done
  lab down
  nothing_with_prefix
}

@test "two labs live side by side; users go with the last one" {
  lab up --stock --nodes 1
  PLEXRL_LAB=$work/other lab up --stock --nodes 1
  lab down
  PLEXRL_LAB=$work/other as plx-carol srun true
  getent passwd plx-carol
  others=(/run/plexrl-lab-users/lab.*)
  PLEXRL_LAB=$work/other lab down
  [ ${#others[@]} -gt 1 ] || must_fail getent passwd plx-carol
}

@test "lab says what it needs" {
  run setpriv --reuid nobody --regid nogroup --clear-groups "$top/scripts/lab" up
  [ "$status" = 1 ]
  contains "$output" "needs root"
  run lab up --dir /run/plexrl-lab
  [ "$status" = 1 ]
  contains "$output" "must not be /run/plexrl-lab"
  touch "$work/precious"
  run lab up --stock --dir "$work"
  [ "$status" = 1 ]
  contains "$output" "is not empty and not a lab"
  [ -e "$work/precious" ]
  run lab up --nodes none
  [ "$status" = 1 ]
  contains "$output" "--nodes takes 1 to 99"
  run lab up --wrong
  [ "$status" = 2 ]
  run lab run plx-alice -- true
  [ "$status" = 1 ]
  contains "$output" "run 'lab up' first"
}

@test "a failed start leaves nothing behind" {
  chmod 700 "$work"
  run lab up --stock --dir "$work/lab"
  [ "$status" = 1 ]
  contains "$output" "cannot be reached by ordinary users"
  PLEXRL_LAB=$work/lab nothing_with_prefix
}

# A service that says what it was given, keeps a file with the supervisor and serves one connection.
write_service() {
  cat >"$work/service" <<'PY'
#!/usr/bin/python3
import array, os, socket, sys
work = os.path.dirname(os.path.abspath(__file__))
names = os.environ["LISTEN_FDNAMES"].split(":")
assert int(os.environ["LISTEN_PID"]) == os.getpid() and int(os.environ["LISTEN_FDS"]) == len(names)
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.connect(os.environ["NOTIFY_SOCKET"])
if "kept" in names:
    kept = os.read(os.dup(3 + names.index("kept")), 100).decode()
else:
    kept = "nothing"
    fd = os.memfd_create("kept")
    os.write(fd, b"memory of an earlier life")
    os.lseek(fd, 0, os.SEEK_SET)
    notify.sendmsg([b"FDSTORE=1\nFDNAME=kept"],
                   [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
notify.send(b"READY=1")
listener = socket.socket(fileno=3)
client, _ = listener.accept()
client.sendall(f"{os.getpid()} {os.getuid()} {kept}\n".encode())
client.close()
PY
  chmod 755 "$work/service"
}
supervise() {
  "$top/scripts/lab.d/supervise" --runtime-dir "$work/run" --child-pid-file "$work/child" \
    --socket "a.socket=$work/run/a.sock:0600" "$@" -- "$work/service" 2>"$work/log" 3>&- &
  supervisor=$!
}
ask() {
  timeout 10 /usr/bin/python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.makefile().readline(), end="")' "$work/run/a.sock"
}

@test "supervise restarts a service, which finds its socket and the descriptors that it stored" {
  write_service
  supervise --user nobody
  poll 10 grep -q ready "$work/log"
  read -r pid uid kept < <(ask)
  [ "$uid" = "$(id -u nobody)" ]
  [ "$kept" = nothing ]
  read -r again _ kept < <(ask)
  [ "$again" != "$pid" ]
  [ "$kept" = "memory of an earlier life" ]
}

@test "supervise holds a service down and connections wait until it is back" {
  write_service
  supervise
  poll 10 grep -q ready "$work/log"
  kill -USR1 $supervisor
  poll 10 grep -q '^$' "$work/child"
  ask >"$work/answer" &
  kill -USR2 $supervisor
  poll 10 test -s "$work/answer"
}

@test "supervise starts a service on demand only, and ends one that is silent" {
  write_service
  supervise --on-demand
  poll 10 test -S "$work/run/a.sock"
  [ ! -e "$work/child" ]
  ask | grep -q nothing
  kill "$supervisor"
  poll 10 test ! -e "/proc/$supervisor"
  supervise --watchdog 0.3
  poll 10 grep -q 'missed its watchdog' "$work/log"
  poll 10 grep -q 'signal 6' "$work/log"
}
