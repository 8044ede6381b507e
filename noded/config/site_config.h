// SPDX-License-Identifier: Apache-2.0
// SiteConfig: /etc/plexrl/plexrl.yaml as values. The same file is read by plexrld, the job_submit
// plugin, the SPANK plugin and the CLI. One table of keys (config_keys.h) generates parser, dump
// and plexrl.yaml(5). All errors of a file are reported at once, each with file:line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::config {

struct ModelEntry {
  std::string name;  // what --plexrl-model takes
  std::string path;  // directory in Hugging Face layout, on every node of the pool
  std::uint64_t parameters = 0;
  std::uint32_t hidden_size = 0;
  std::uint32_t layers = 0;
  std::uint32_t intermediate_size = 0;    // with hidden_size and layers: size of an adapter
  std::uint32_t attention_size = 0;       // heads x head size; 0: as hidden_size
  std::uint32_t kv_size = 0;              // key/value heads x head size; 0: as attention_size
  std::uint32_t bytes_per_parameter = 4;  // of the files
  std::string dtype = "float32";          // of the weights that are multiplied by; or bfloat16
};

struct PoolEntry {
  std::string name;                // what --plexrl-pool takes
  std::string partition;           // Slurm partition
  std::vector<std::string> nodes;  // Slurm host list expressions
  std::vector<std::string> users;  // empty users and groups: everybody
  std::vector<std::string> groups;
  std::vector<std::string> models;
  std::vector<std::string> train_modes;  // subset of lora, full, none
  std::uint32_t default_share = 50;      // percent of device-group time
  std::uint32_t max_share = 100;
  std::uint32_t node_cpus = 0;        // of each node, for jobs; 0: not known
  std::uint64_t host_memory_mib = 0;  // host tier per node = gres/plexrl_mem
  std::uint64_t kv_host_mib = 64;     // of each grant: KV cache of preempted rollouts
  std::string disk_tier_dir;          // empty: no disk tier
  std::uint64_t disk_tier_mib = 0;
  std::uint64_t device_memory_mib = 0;  // cpu backend: device tier; cuda: cap
  std::uint64_t activation_memory_mib = 0;
  std::string device = "cpu";
  std::string device_files;  // glob of the nodes' device files; empty: none
  std::uint32_t max_lora_rank = 64;
  std::string policy = "least-slowdown";
  std::uint64_t quantum_ms = 500;
  std::uint32_t lease_slice_s = 30;    // while others wait
  std::uint32_t lease_limit_s = 3600;  // the longest hold

  // What grants may total, one of them at most host_memory_mib: the count of gres/plexrl_mem. Of
  // the disk tier, room for two KV caches is kept free to move things (doc/state.md, "Admission").
  [[nodiscard]] std::uint64_t grantable_mib() const {
    return host_memory_mib + (disk_tier_dir.empty() ? 0 : disk_tier_mib - 2 * kv_host_mib);
  }
};

struct DaemonEntry {
  std::string user = "plexrl";
  std::string run_dir = "/run/plexrl";
  std::string state_dir = "/var/lib/plexrl";
  std::string engine_program;             // empty: libexecdir
  std::vector<std::string> admin_groups;  // may read everything and administer
  std::uint32_t engine_threads = 1;
  std::uint32_t max_queued_ops_per_tenant = 256;
  std::uint32_t max_connections = 1024;
  std::uint32_t max_http_connections = 4096;
  std::string http_address;  // empty: no HTTP by TCP
  std::uint32_t max_frame_mib = 64;
  std::uint64_t chunk_kib = 2048;
  std::uint64_t yield_timeout_ms = 30000;  // then the engine is ended and recovered
  std::uint64_t store_quota_mib = 10240;   // per uid, for `save`
  std::uint32_t retention_s = 600;         // state of a closed job, for its requeue
  std::string log_level = "info";
};

struct SiteConfig {
  std::string cluster;
  std::vector<PoolEntry> pools;
  std::vector<ModelEntry> models;
  DaemonEntry daemon;

  [[nodiscard]] const PoolEntry* find_pool(std::string_view name) const;
  [[nodiscard]] const PoolEntry* pool_of_partition(std::string_view partition) const;
  [[nodiscard]] const PoolEntry* pool_of_node(std::string_view node) const;  // expands host lists
  [[nodiscard]] const ModelEntry* find_model(std::string_view name) const;
};

// INVALID_ARGUMENT: the text holds one "file:line: message" per line, all of them.
[[nodiscard]] Result<SiteConfig> parse_site_config(std::string_view text,
                                                   std::string_view file_name);
// Also checks that the file and its directories cannot be written by others than root (munge's
// rule); `trusted` false skips that, for `plexrl config check` on a file that is being written.
[[nodiscard]] Result<SiteConfig> load_site_config(const std::string& path, bool trusted);
// $PLEXRL_CONFIG when the process is not privileged, else /etc/plexrl/plexrl.yaml.
[[nodiscard]] std::string default_config_path();

}  // namespace plexrl::config
