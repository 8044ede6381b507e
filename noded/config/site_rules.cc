// SPDX-License-Identifier: Apache-2.0
#include "config/site_rules.h"

#include "config/host_list.h"

namespace plexrl::config {
namespace {

class Rules {
 public:
  Rules(const SiteConfig& config, const SiteLines& lines, ErrorList* errors)
      : config_(config), lines_(lines), errors_(errors) {}

  void check() {
    for (std::size_t i = 0; i < config_.models.size(); ++i)
      once("model", config_.models[i].name, lines_.models[i].of("name"));
    for (std::size_t i = 0; i < config_.pools.size(); ++i) pool(config_.pools[i], lines_.pools[i]);
    if (config_.daemon.chunk_kib % 64 != 0)
      errors_->add(lines_.daemon.of("chunk_kib"), "daemon.chunk_kib: not a multiple of 64");
  }

 private:
  // `what` and `name` may appear once in the file.
  void once(const std::string& what, const std::string& name, int line) {
    const auto [first, fresh] = first_.emplace(what + " '" + name + "'", line);
    if (!fresh)
      errors_->add(line, first->first + " is already in line " + std::to_string(first->second + 1));
  }

  void pool(const PoolEntry& pool, const EntryLines& lines) {
    once("pool", pool.name, lines.of("name"));
    once("partition", pool.partition, lines.of("partition"));
    for (const std::string& expression : pool.nodes)
      if (const auto names = expand_hosts(expression); names)
        for (const std::string& node : *names) once("node", node, lines.of("nodes"));
    models(pool, lines);
    limits(pool, lines);
  }

  void models(const PoolEntry& pool, const EntryLines& lines) {
    std::vector<std::string> known;
    for (const ModelEntry& model : config_.models) known.push_back(model.name);
    for (const std::string& name : pool.models) {
      if (config_.find_model(name) != nullptr) continue;
      const std::string other = nearest(name, known);
      errors_->add(lines.of("models"),
                   "pool '" + pool.name + "': model '" + name + "' is not in the section models" +
                       (other.empty() ? "" : "; did you mean '" + other + "'?"));
    }
    if (pool.models.empty())
      errors_->add(lines.of("models"), "pool '" + pool.name + "': no models");
    if (pool.nodes.empty()) errors_->add(lines.of("nodes"), "pool '" + pool.name + "': no nodes");
  }

  void limits(const PoolEntry& pool, const EntryLines& lines) {
    if (pool.default_share > pool.max_share)
      errors_->add(lines.of("default_share"),
                   "pool '" + pool.name + "': default_share is larger than max_share");
    if (pool.activation_memory_mib >= pool.device_memory_mib)
      errors_->add(lines.of("activation_memory_mib"),
                   "pool '" + pool.name +
                       "': activation_memory_mib leaves nothing of device_memory_mib for models");
    if (pool.device != "cpu" && config_.daemon.chunk_kib % 2048 != 0)
      errors_->add(lines.of("device"), "pool '" + pool.name + "': device " + pool.device +
                                           " needs chunk_kib to be a multiple of 2048");
    if (pool.kv_host_mib >= pool.host_memory_mib)
      errors_->add(
          lines.of("kv_host_mib"),
          "pool '" + pool.name + "': kv_host_mib leaves nothing of host_memory_mib for models");
    if (pool.disk_tier_dir.empty() && pool.disk_tier_mib > 0)
      errors_->add(lines.of("disk_tier_mib"),
                   "pool '" + pool.name + "': disk_tier_mib without disk_tier_dir");
    if (!pool.disk_tier_dir.empty() && pool.disk_tier_mib <= 2 * pool.kv_host_mib)
      errors_->add(lines.of("disk_tier_dir"),
                   "pool '" + pool.name +
                       "': disk_tier_mib must be larger than twice kv_host_mib, the room that is "
                       "kept to move things");
  }

  const SiteConfig& config_;
  const SiteLines& lines_;
  ErrorList* errors_;
  std::map<std::string, int> first_;
};

}  // namespace

void check_rules(const SiteConfig& config, const SiteLines& lines, ErrorList* errors) {
  Rules(config, lines, errors).check();
}

}  // namespace plexrl::config
