// SPDX-License-Identifier: Apache-2.0
#include "config/site_config.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "config/host_list.h"
#include "config/section_reader.h"
#include "config/site_rules.h"
#include "config/trusted_path.h"

namespace plexrl::config {
namespace {

template <class Entry>
void read_list(const YAML::Node& node, const std::string& section, std::span<const Key<Entry>> keys,
               ErrorList* errors, std::vector<Entry>* entries, std::vector<EntryLines>* lines) {
  if (!node.IsSequence() || node.size() == 0)
    return errors->add(node.Mark().line, section + ": expected a list of entries ('- name: ...')");
  for (const YAML::Node& item : node) {
    Entry entry;
    SectionReader reader(section + "[" + std::to_string(entries->size()) + "]", errors);
    EntryLines entry_lines{item.Mark().line, reader.read(item, keys, {}, &entry), {}};
    entry_lines.wrong = reader.wrong();
    entries->push_back(std::move(entry));
    lines->push_back(std::move(entry_lines));
  }
}

void read_sections(const YAML::Node& root, ErrorList* errors, SiteConfig* config,
                   SiteLines* lines) {
  for (const auto& pair : root) {
    const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : std::string();
    if (name == "pools")
      read_list(pair.second, name, pool_keys(), errors, &config->pools, &lines->pools);
    if (name == "models")
      read_list(pair.second, name, model_keys(), errors, &config->models, &lines->models);
    if (name != "daemon") continue;
    SectionReader reader(name, errors);
    lines->daemon.keys = reader.read(pair.second, daemon_keys(), {}, &config->daemon);
    lines->daemon.wrong = reader.wrong();
  }
}

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "cannot read '%s'",
                       path.c_str());
  // One byte more than allowed is enough to know that the file is too large.
  std::string text(kMaxConfigBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return errno_error(Code::IO, errno, "cannot read '%s'", path.c_str());
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

Result<SiteConfig> parse_site_config(std::string_view text, std::string_view file_name) {
  ErrorList errors(file_name);
  SiteConfig config;
  SiteLines lines;
  const YAML::Node root = read_yaml(text, &errors);
  PLEXRL_TRY(errors.status());
  if (root.IsNull()) {
    errors.add(0, "the file is empty; see plexrl.yaml(5) for an example");
    return errors.status();
  }
  lines.site.keys =
      SectionReader("", &errors).read(root, site_keys(), {"pools", "models", "daemon"}, &config);
  if (root.IsMap()) read_sections(root, &errors, &config, &lines);
  for (const char* section : {"pools", "models"})
    if (lines.site.keys.count(section) == 0)
      errors.add(root.Mark().line, std::string(section) + ": missing");
  check_rules(config, lines, &errors);
  PLEXRL_TRY(errors.status());
  return config;
}

Result<SiteConfig> load_site_config(const std::string& path, bool trusted) {
  if (trusted) PLEXRL_TRY(check_trusted_path(path));
  PLEXRL_ASSIGN(const std::string text, read_file(path));
  return parse_site_config(text, path);
}

std::string default_config_path() {
  const char* path = ::secure_getenv("PLEXRL_CONFIG");
  return path != nullptr && *path != '\0' ? path : "/etc/plexrl/plexrl.yaml";
}

const PoolEntry* SiteConfig::find_pool(std::string_view name) const {
  const auto found = std::find_if(pools.begin(), pools.end(),
                                  [&](const PoolEntry& pool) { return pool.name == name; });
  return found == pools.end() ? nullptr : &*found;
}

const PoolEntry* SiteConfig::pool_of_partition(std::string_view partition) const {
  const auto found = std::find_if(pools.begin(), pools.end(), [&](const PoolEntry& pool) {
    return pool.partition == partition;
  });
  return found == pools.end() ? nullptr : &*found;
}

const PoolEntry* SiteConfig::pool_of_node(std::string_view node) const {
  for (const PoolEntry& pool : pools) {
    for (const std::string& expression : pool.nodes) {
      const auto names = expand_hosts(expression);
      if (names && std::find(names->begin(), names->end(), node) != names->end()) return &pool;
    }
  }
  return nullptr;
}

const ModelEntry* SiteConfig::find_model(std::string_view name) const {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const ModelEntry& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

}  // namespace plexrl::config
