# shellcheck shell=bash disable=SC2154  # variables are those of scripts/lab
# SPDX-License-Identifier: Apache-2.0
# Users of the lab. They belong to the machine, so labs that run side by side share them: the last lab
# that goes removes those that the first one made.

job_users=(plx-alice plx-bob plx-carol)
service_user=plexrl
user_registry=/run/plexrl-lab-users   # created.NAME: made by a lab; lab.PREFIX: a lab that is up

with_user_lock() {
  mkdir -p "$user_registry"
  (
    flock -w 60 9 || die "another lab holds $user_registry/lock"
    "$@"
  ) 9>"$user_registry/lock"
}

add_user() {
  local name=$1
  shift
  getent passwd "$name" >/dev/null && return
  useradd --no-create-home --home-dir /nonexistent --user-group "$@" "$name"
  touch "$user_registry/created.$name"
}

register_users() {
  local name
  echo "$lab" >"$user_registry/lab.$prefix"
  for name in "${job_users[@]}"; do add_user "$name" --shell /bin/bash; done
  add_user "$service_user" --system --shell /usr/sbin/nologin
}

release_users() {
  rm -f "$user_registry/lab.$prefix"
  compgen -G "$user_registry/lab.*" >/dev/null && return
  local mark
  for mark in "$user_registry"/created.*; do
    [ -e "$mark" ] || continue
    userdel "${mark##*/created.}" 2>/dev/null || { note "cannot remove user ${mark##*/created.}"; continue; }
    rm -f "$mark"
  done
  rm -f "$user_registry/lock"
  rmdir "$user_registry" 2>/dev/null || true
}

make_homes() {
  local name
  for name in "${job_users[@]}"; do
    install -d -m 700 -o "$name" -g "$name" "$lab/home/$name"
  done
}
