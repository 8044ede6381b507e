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
      once("model", config_.models[i].name, "name", lines_.models[i]);
    for (std::size_t i = 0; i < config_.pools.size(); ++i) pool(config_.pools[i], lines_.pools[i]);
    if (config_.daemon.chunk_kib % 64 != 0 && lines_.daemon.good({"chunk_kib"}))
      errors_->add(lines_.daemon.of("chunk_kib"), "daemon.chunk_kib: not a multiple of 64");
  }

 private:
  // `what` and `name`, the value of `key`, may appear once in the file.
  void once(const std::string& what, const std::string& name, const char* key,
            const EntryLines& lines) {
    if (!lines.good({key})) return;
    const auto [first, fresh] = first_.emplace(what + " '" + name + "'", lines.of(key));
    if (!fresh)
      errors_->add(lines.of(key),
                   first->first + " is already in line " + std::to_string(first->second + 1));
  }

  void pool(const PoolEntry& pool, const EntryLines& lines) {
    once("pool", pool.name, "name", lines);
    once("partition", pool.partition, "partition", lines);
    for (const std::string& expression : pool.nodes)
      if (const auto names = expand_hosts(expression); names)
        for (const std::string& node : *names) once("node", node, "nodes", lines);
    models(pool, lines);
    limits(pool, lines);
  }

  // Not while a name in the section models is wrong or missing: it may be the one that is meant.
  [[nodiscard]] bool models_are_known() const {
    const auto named = [](const EntryLines& lines) { return lines.good({"name"}); };
    return !lines_.models.empty() && std::all_of(lines_.models.begin(), lines_.models.end(), named);
  }

  void models(const PoolEntry& pool, const EntryLines& lines) {
    std::vector<std::string> known;
    for (const ModelEntry& model : config_.models) known.push_back(model.name);
    for (const std::string& name : pool.models) {
      if (config_.find_model(name) != nullptr || !models_are_known()) continue;
      const std::string other = nearest(name, known);
      errors_->add(lines.of("models"),
                   "pool '" + pool.name + "': model '" + name + "' is not in the section models" +
                       (other.empty() ? "" : "; did you mean '" + other + "'?"));
    }
    if (pool.models.empty() && lines.good({"models"}))
      errors_->add(lines.of("models"), "pool '" + pool.name + "': no models");
    if (pool.nodes.empty() && lines.good({"nodes"}))
      errors_->add(lines.of("nodes"), "pool '" + pool.name + "': no nodes");
  }

  // A rule of the values of `keys`, told in the line of the first one.
  void rule(const PoolEntry& pool, const EntryLines& lines, bool broken,
            std::initializer_list<const char*> keys, const std::string& text) {
    if (broken && lines.good(keys))
      errors_->add(lines.of(*keys.begin()), "pool '" + pool.name + "': " + text);
  }

  void limits(const PoolEntry& pool, const EntryLines& lines) {
    rule(pool, lines, pool.default_share > pool.max_share, {"default_share", "max_share"},
         "default_share is larger than max_share");
    rule(pool, lines, pool.activation_memory_mib >= pool.device_memory_mib,
         {"activation_memory_mib", "device_memory_mib"},
         "activation_memory_mib leaves nothing of device_memory_mib for models");
    rule(pool, lines,
         pool.device != "cpu" && config_.daemon.chunk_kib % 2048 != 0 &&
             lines_.daemon.good({"chunk_kib"}),
         {"device"}, "device " + pool.device + " needs chunk_kib to be a multiple of 2048");
    rule(pool, lines, pool.kv_host_mib >= pool.host_memory_mib, {"kv_host_mib", "host_memory_mib"},
         "kv_host_mib leaves nothing of host_memory_mib for models");
    rule(pool, lines, pool.disk_tier_dir.empty() && pool.disk_tier_mib > 0,
         {"disk_tier_mib", "disk_tier_dir"}, "disk_tier_mib without disk_tier_dir");
    rule(pool, lines, !pool.disk_tier_dir.empty() && pool.disk_tier_mib <= 2 * pool.kv_host_mib,
         {"disk_tier_dir", "disk_tier_mib", "kv_host_mib"},
         "disk_tier_mib must be larger than twice kv_host_mib, the room that is kept to move "
         "things");
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
