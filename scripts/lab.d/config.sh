# shellcheck shell=bash disable=SC2154  # variables are those of scripts/lab
# SPDX-License-Identifier: Apache-2.0
# Programs, plugins and configuration files of the lab's folder.

slurm_plugin_dir=${SLURM_PLUGIN_DIR:-/usr/lib/$(uname -m)-linux-gnu/slurm-wlm}
controller_port=6817

check_programs() {
  local program
  for program in slurmctld slurmd munged sbatch ip nsenter setpriv unshare; do
    command -v "$program" >/dev/null || die "$program is missing: run 'scripts/install-deps slurm'"
  done
  [ "$accounting" = 0 ] || command -v slurmdbd mariadbd >/dev/null ||
    die "slurmdbd or mariadbd is missing: run 'scripts/install-deps accounting'"
  [ -d "$slurm_plugin_dir" ] || die "no Slurm plugins in $slurm_plugin_dir: set SLURM_PLUGIN_DIR"
}

# built NAME: where the build left the real file (libtool hides programs and modules in .libs).
built() {
  local file
  for file in "$build/.libs/$1" "$build"/*/.libs/"$1" "$build/$1"; do
    [ -f "$file" ] && { echo "$file"; return; }
  done
  die "$1 is not in $build: run 'make' first, or set PLEXRL_BUILD"
}

# Copies, so that users need no access to the build folder and a rebuild does not change a running lab.
stage_programs() {
  [ "$use_plugins" = 1 ] || return 0
  local name
  install -d -m 755 "$lab/bin" "$lab/lib"
  for name in spank_plexrl.so job_submit_plexrl.so; do stage "$name" lib; done
  stage plexrl bin
  [ "$use_daemon" = 0 ] || for name in plexrld plexrl-engine plexrl-reap; do stage "$name" bin; done
}

stage() {
  local file
  file=$(built "$1")
  install -m 755 "$file" "$lab/$2/$1"
}

# ---- slurm.conf -----------------------------------------------------------------------------------

write_slurm_config() {
  if [ "$use_plugins" = 1 ]; then
    make_gpus
    write_site_config
    write_gres_and_plugstack
  fi
  {
    common_lines
    if [ "$use_plugins" = 1 ]; then pool_lines; else stock_lines; fi
    [ "$use_daemon" = 0 ] || health_check_lines
    [ "$accounting" = 0 ] || accounting_lines
  } >"$lab/etc/slurm.conf"
  [ "$accounting" = 0 ] || write_slurmdbd_conf
}

common_lines() {
  cat <<TEXT
ClusterName=lab
SlurmUser=slurm
SlurmctldHost=ctl(10.77.0.1)
SlurmctldPort=$controller_port
SlurmdPort=6818
AuthType=auth/munge
AuthInfo=socket=$lab/munge/munge.socket
CredType=cred/munge
StateSaveLocation=$lab/state
SlurmctldPidFile=$lab/state/slurmctld.pid
SlurmctldLogFile=$logs/slurmctld.log
SlurmdSpoolDir=$lab/spool/%n
SlurmdPidFile=$lab/spool/%n.pid
SlurmdLogFile=$logs/slurmd.%n.log
SlurmctldDebug=debug
SlurmdDebug=debug2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=1,sched_interval=5
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=2
MinJobAge=3600
SlurmdParameters=config_overrides
PartitionName=plain Nodes=ALL Default=YES State=UP
TEXT
}

stock_lines() {
  cat <<TEXT
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
NodeName=$(node_list) NodeAddr=$(node_address_list) CPUs=8 CoresPerSocket=8 RealMemory=16000
TEXT
}

accounting_lines() {
  cat <<TEXT
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=6819
AccountingStoragePass=$lab/munge/munge.socket
AccountingStoreFlags=job_comment
TEXT
}

# Slurm passes no arguments to the program.
health_check_lines() {
  cat >"$lab/etc/node-check" <<TEXT
#!/bin/sh
export SLURM_CONF=$SLURM_CONF
exec $lab/bin/plexrl node-check --config $lab/etc/plexrl.yaml
TEXT
  chmod 755 "$lab/etc/node-check"
  echo "HealthCheckProgram=$lab/etc/node-check"
  echo "HealthCheckInterval=5"
}

# Clones of /dev/null, so that jobs can ask for GPUs.
make_gpus() {
  install -d -m 755 "$lab/dev"
  for number in 0 1; do
    mknod -m 666 "$lab/dev/gpu$number" c 1 3
    # Of the pool: shared out by plexrld, not by Slurm.
    mknod -m 660 "$lab/dev/pool$number" c 1 3
    chgrp "$service_user" "$lab/dev/pool$number"
  done
}

write_slurmdbd_conf() {
  cat >"$lab/etc/slurmdbd.conf" <<TEXT
AuthType=auth/munge
AuthInfo=socket=$lab/munge/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=6819
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=lab
StorageLoc=slurm_acct_db
LogFile=$logs/slurmdbd.log
PidFile=$lab/state/slurmdbd.pid
TEXT
  chown slurm: "$lab/etc/slurmdbd.conf"
  chmod 600 "$lab/etc/slurmdbd.conf"
}

# ---- the part that a site takes from `plexrl config slurm` -----------------------------------------

# For nodes of 8 cores and 16 GB, whatever this machine has.
site_text() {
  local -a flags=()
  [ "$accounting" = 0 ] || flags=(--accounting)
  HWLOC_SYNTHETIC='package:1 [numa(memory=16777216000)] core:8 pu:1' \
    "$lab/bin/plexrl" config slurm "$lab/etc/plexrl.yaml" --plugin-dir "$lab/lib" "${flags[@]}" ||
    die "plexrl config slurm failed for $lab/etc/plexrl.yaml"
}

# site_section FILE: what the site adds to that file, without comments.
site_section() {
  site_text | awk -v name="# ---- $1" '/^# ---- / { on = index($0, name) == 1; next } on && NF && !/^#/'
}

# As a site would merge them: its own plugin folder and GRES types first, and the nodes' addresses.
pool_lines() {
  site_section slurm.conf | sed -E \
    -e "s|^PluginDir=|PluginDir=$slurm_plugin_dir:|" \
    -e 's|^GresTypes=|GresTypes=gpu,|' \
    -e "s|^(NodeName=[^ ]+) (.*) Gres=|\\1 NodeAddr=$(node_address_list) \\2 Gres=gpu:2,|"
  echo "PlugStackConfig=$lab/etc/plugstack.conf"
}

write_gres_and_plugstack() {
  {
    echo "AutoDetect=off"
    echo "Name=gpu File=$lab/dev/gpu[0-1]"
    site_section gres.conf
  } >"$lab/etc/gres.conf"
  site_section plugstack.conf >"$lab/etc/plugstack.conf"
}

write_site_config() {
  local model=$lab/models/tiny
  sed -e "s|@LAB@|$lab|g" -e "s|@NODES@|$(node_list)|g" -e "s|@MODEL@|$model|g" \
    "${site_file:-$here/lab.d/site.yaml}" >"$lab/etc/plexrl.yaml"
  if [ "$use_daemon" = 0 ] || ! grep -q "$model" "$lab/etc/plexrl.yaml"; then return; fi
  install -d -m 755 "$lab/models"
  "$lab/bin/plexrl-engine" --init-model "$model" --config "$here/lab.d/model.json" --seed 1 >"$logs/init-model.out" 2>&1 ||
    die "cannot make a model: $logs/init-model.out"
  chmod -R a+rX "$lab/models"
}
