// SPDX-License-Identifier: Apache-2.0
#include "config/slurm_text.h"

#include <algorithm>

#include "config/pool_features.h"

namespace plexrl::config {
namespace {

// The programs: plexrld, and LibTorch in every engine.
constexpr std::uint64_t kServiceMib = 4096;

// What the service keeps of a node: the last cores, and memory.
struct Reserved {
  std::vector<unsigned> slurm_cpus;  // Slurm's numbers: thread by thread, core by core
  std::vector<unsigned> os_cpus;     // the kernel's numbers, for the unit
  std::uint64_t memory_mib = 0;
};

// How many of the last cores are left when the first ones have the pool's node_cpus.
Result<std::size_t> cores_beside(const PoolEntry& pool, const Machine& machine, std::size_t least) {
  std::size_t cores = 0, cpus = 0;
  while (cores + least < machine.cores.size() && cpus < pool.node_cpus)
    cpus += machine.cores[cores++].cpus.size();
  if (cpus == pool.node_cpus) return machine.cores.size() - cores;
  if (cpus > pool.node_cpus)
    return error(Code::INVALID_ARGUMENT,
                 "pool '%s': node_cpus %u is not made of whole cores of this machine: write %zu",
                 pool.name.c_str(), pool.node_cpus, cpus);
  return error(Code::NO_CAPACITY,
               "pool '%s': node_cpus is %u, and this machine has %zu beside the %zu cores of the "
               "service: write at most that",
               pool.name.c_str(), pool.node_cpus, cpus, least);
}

// One core for plexrld and one for each engine thread; only one engine computes at a time.
Result<Reserved> reserve(const SiteConfig& config, const PoolEntry& pool, const Machine& machine) {
  std::size_t wanted = std::size_t{config.daemon.engine_threads} + 1;
  if (wanted >= machine.cores.size())
    return error(Code::NO_CAPACITY,
                 "pool '%s': the service needs %zu cores (daemon.engine_threads + 1), and this "
                 "machine has %zu: none is left for jobs",
                 pool.name.c_str(), wanted, machine.cores.size());
  if (pool.node_cpus != 0) {
    PLEXRL_ASSIGN(wanted, cores_beside(pool, machine, wanted));
  }
  Reserved reserved;
  reserved.memory_mib =
      pool.host_memory_mib + (pool.device == "cpu" ? pool.device_memory_mib : 0) + kServiceMib;
  if (reserved.memory_mib >= machine.memory_mib)
    return error(
        Code::NO_CAPACITY,
        "pool '%s': host_memory_mib, device_memory_mib and the programs need %llu MiB, and "
        "this machine has %llu",
        pool.name.c_str(), static_cast<unsigned long long>(reserved.memory_mib),
        static_cast<unsigned long long>(machine.memory_mib));
  unsigned number = 0;
  for (std::size_t i = 0; i < machine.cores.size(); ++i) {
    for (const unsigned cpu : machine.cores[i].cpus) {
      if (i + wanted >= machine.cores.size()) {
        reserved.slurm_cpus.push_back(number);
        reserved.os_cpus.push_back(cpu);
      }
      ++number;
    }
  }
  return reserved;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

std::string gres_counts(const PoolEntry& pool) {
  return "plexrl:100,plexrl_mem:" + std::to_string(pool.grantable_mib());
}

std::string features(const PoolEntry& pool) {
  std::vector<std::string> names;
  for (const JobKind kind : kJobKinds) names.push_back(pool_feature(pool.name, kind));
  return joined(names);
}

std::string global_lines(const SlurmTextOptions& options) {
  return "# ---- slurm.conf, on every host ----\n"
         "# Add the words to the values that you have; PluginDir is a list with ':'.\n"
         "PluginDir=" +
         options.plugin_dir +
         "\n"
         "GresTypes=plexrl,plexrl_mem\n"
         "JobSubmitPlugins=plexrl\n"
         "# Needed: without it the prolog of srun and salloc sees the client's text, not the "
         "grant.\n"
         "PrologFlags=Alloc\n"
         "SelectType=select/cons_tres\n"
         "SelectTypeParameters=CR_Core_Memory\n"
         "# Without a default a job that names no memory takes all of a node.\n"
         "DefMemPerCPU=1024\n"
         "# PreemptMode must be REQUEUE or OFF: a suspended job would keep its place on the "
         "device.\n"
         "# HealthCheckProgram takes a path without arguments: a script that runs\n"
         "# 'exec plexrl node-check' keeps a node without plexrld from eating the queue, and the\n"
         "# features below true. HealthCheckInterval=60 is enough.\n";
}

std::string tres_lines(const SlurmTextOptions& options) {
  if (!options.accounting) return "# With slurmdbd also: --accounting prints the TRES lines.\n";
  return "AccountingStorageTRES=gres/plexrl,gres/plexrl_mem\n";
}

std::string node_lines(const PoolEntry& pool, const Machine& machine, const Reserved& reserved) {
  const std::size_t threads = machine.cores.front().cpus.size();
  const std::string nodes = joined(pool.nodes);
  return "NodeName=" + nodes + " Sockets=" + std::to_string(machine.sockets) +
         " CoresPerSocket=" + std::to_string(machine.cores.size() / machine.sockets) +
         " ThreadsPerCore=" + std::to_string(threads) +
         " RealMemory=" + std::to_string(machine.memory_mib) +
         " CpuSpecList=" + number_list(reserved.slurm_cpus) +
         " MemSpecLimit=" + std::to_string(reserved.memory_mib) + " Gres=" + gres_counts(pool) +
         " Feature=" + features(pool) +
         "\n"
         "PartitionName=" +
         pool.partition + " Nodes=" + nodes + " Default=NO State=UP OverSubscribe=NO\n";
}

std::string gres_lines(const PoolEntry& pool) {
  const std::string node = "NodeName=" + joined(pool.nodes) + " ";
  return node + "Name=plexrl Count=100 Flags=CountOnly\n" + node +
         "Name=plexrl_mem Count=" + std::to_string(pool.grantable_mib()) + " Flags=CountOnly\n";
}

// What the shipped unit does not know: another user, folders that it would find read-only.
std::string service_lines(const DaemonEntry& daemon, const PoolEntry& pool) {
  const DaemonEntry shipped;
  std::string text;
  if (daemon.user != shipped.user) text += "User=" + daemon.user + "\nGroup=\n";
  if (daemon.run_dir != shipped.run_dir) text += "ReadWritePaths=" + daemon.run_dir + "\n";
  if (daemon.state_dir != shipped.state_dir) text += "ReadWritePaths=" + daemon.state_dir + "\n";
  if (!pool.disk_tier_dir.empty()) text += "ReadWritePaths=" + pool.disk_tier_dir + "\n";
  return text;
}

std::string unit_lines(const DaemonEntry& daemon, const PoolEntry& pool, const Reserved& reserved) {
  return "# nodes of pool '" + pool.name +
         "'\n[Service]\nAllowedCPUs=" + number_list(reserved.os_cpus) +
         "\nMemoryMax=" + std::to_string(reserved.memory_mib) + "M\n" + service_lines(daemon, pool);
}

std::string socket_path(const DaemonEntry& daemon) { return daemon.run_dir + "/plexrld.sock"; }

std::string socket_unit_lines(const DaemonEntry& daemon) {
  if (daemon.run_dir == DaemonEntry().run_dir) return {};
  return "\n# ---- /etc/systemd/system/plexrld.socket.d/50-path.conf, on the nodes ----\n"
         "[Socket]\nListenStream=\nListenStream=" +
         socket_path(daemon) + "\n";
}

// The shipped unit listens at 127.0.0.1:585.
std::string http_unit_lines(const DaemonEntry& daemon) {
  if (daemon.http_address.empty()) return {};
  std::string text =
      "\n# ---- HTTP by TCP, on the nodes: systemctl enable --now plexrld-http.socket ----\n";
  if (daemon.http_address != "127.0.0.1:585")
    text +=
        "# /etc/systemd/system/plexrld-http.socket.d/50-address.conf\n[Socket]\nListenStream=\n"
        "ListenStream=" +
        daemon.http_address + "\n";
  return text;
}

// What plexrl-reap's shipped units do not know.
std::string reap_unit_lines(const DaemonEntry& daemon) {
  const DaemonEntry shipped;
  std::string text =
      "\n# ---- plexrl-reap, on the nodes: systemctl enable --now plexrl-reap.socket ----\n"
      "# It stops jobs that do not give up a lease; without it such a lease blocks the node.\n";
  std::string socket;
  if (daemon.run_dir != shipped.run_dir)
    socket += "ListenStream=\nListenStream=" + daemon.run_dir + "/plexrl-reap.sock\n";
  if (daemon.user != shipped.user) socket += "SocketUser=" + daemon.user + "\nSocketGroup=\n";
  if (!socket.empty())
    text += "# /etc/systemd/system/plexrl-reap.socket.d/50-site.conf\n[Socket]\n" + socket;
  if (daemon.user != shipped.user)
    text +=
        "# /etc/systemd/system/plexrl-reap.service.d/50-site.conf\n[Service]\n"
        "Environment=PLEXRL_USER=" +
        daemon.user + "\n";
  return text;
}

// The socket and not the site file: then the hooks read no file, and a mistake in it fails no job.
std::string plugstack_lines(const SiteConfig& config, const SlurmTextOptions& options) {
  const DaemonEntry& daemon = config.daemon;
  // One line serves all pools; a pattern that matches nothing on a node does nothing there.
  std::string device_word;
  for (const PoolEntry& pool : config.pools)
    if (!pool.device_files.empty() && device_word.empty())
      device_word = " device_files=" + pool.device_files;
  return "\n# ---- plugstack.conf, on every host ----\n"
         "optional " +
         options.plugin_dir + "/spank_plexrl.so socket=" + socket_path(daemon) + device_word +
         "\n"
         "\n# ---- environment of slurmctld, only when the site file is not "
         "/etc/plexrl/plexrl.yaml "
         "----\n"
         "# PLEXRL_CONFIG=" +
         options.config_path + "\n";
}

}  // namespace

Result<std::string> slurm_text(const SiteConfig& config, const Machine& machine,
                               const SlurmTextOptions& options) {
  std::string slurm = global_lines(options) + tres_lines(options);
  std::string gres = "\n# ---- gres.conf, on every host ----\n";
  std::string unit =
      "\n# ---- /etc/systemd/system/plexrld.service.d/50-limits.conf, on the nodes ----\n";
  for (const PoolEntry& pool : config.pools) {
    PLEXRL_ASSIGN(const Reserved reserved, reserve(config, pool, machine));
    slurm += node_lines(pool, machine, reserved);
    gres += gres_lines(pool);
    unit += unit_lines(config.daemon, pool, reserved);
  }
  return slurm + gres + plugstack_lines(config, options) + unit + socket_unit_lines(config.daemon) +
         http_unit_lines(config.daemon) + reap_unit_lines(config.daemon);
}

}  // namespace plexrl::config
