# shellcheck shell=bash disable=SC2154  # variables are those of scripts/lab
# SPDX-License-Identifier: Apache-2.0
# One bridge in the controller's network namespace, one veth pair per node. Nothing is connected to the
# host, so every lab can use the same addresses.

node_address() { echo "10.77.0.$((10 + ${1#node}))"; }
node_address_list() { echo "10.77.0.[11-$((10 + nodes))]"; }

make_network() {
  local node space
  ip netns add "$controller_netns"
  ip -n "$controller_netns" link set lo up
  ip -n "$controller_netns" link add br0 type bridge
  ip -n "$controller_netns" addr add 10.77.0.1/24 dev br0
  ip -n "$controller_netns" link set br0 up
  for node in $(node_names); do
    space=$(node_netns "$node")
    ip netns add "$space"
    ip -n "$space" link set lo up
    ip -n "$controller_netns" link add "v${node#node}" type veth peer name eth0 netns "$space"
    ip -n "$controller_netns" link set "v${node#node}" master br0 up
    ip -n "$space" addr add "$(node_address "$node")/24" dev eth0
    ip -n "$space" link set eth0 up
  done
}

our_netns() { ip netns list 2>/dev/null | awk -v p="$prefix-" 'index($1, p) == 1 { print $1 }'; }

# Ends whatever still runs in our namespaces: jobs, slurmstepd (one ignored TERM once), engines.
sweep_netns() {
  local space pid round
  for round in $(seq 100); do
    local found=0
    for space in $(our_netns); do
      for pid in $(ip netns pids "$space"); do
        kill -9 "$pid" 2>/dev/null && found=1
      done
    done
    [ $found = 1 ] || return 0
    sleep 0.05
  done
  note "processes in our namespaces do not end (round $round)"
}

remove_network() {
  local space
  for space in $(our_netns); do ip netns del "$space" || true; done
}
