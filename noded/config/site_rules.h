// SPDX-License-Identifier: Apache-2.0
// Rules of plexrl.yaml between values: names exist and are given once, limits fit each other.
#pragma once

#include <algorithm>
#include <set>
#include <vector>

#include "config/section_reader.h"
#include "config/site_config.h"

namespace plexrl::config {

// Where things stood, for messages.
struct EntryLines {
  int line = 0;
  KeyLines keys;
  std::set<std::string> wrong;  // keys that have an error of their own
  [[nodiscard]] int of(const char* key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? line : found->second;
  }
  [[nodiscard]] bool good(std::initializer_list<const char*> names) const {
    return std::none_of(names.begin(), names.end(),
                        [&](const char* name) { return wrong.count(name) != 0; });
  }
};

struct SiteLines {
  EntryLines site;
  EntryLines daemon;
  std::vector<EntryLines> pools;   // as SiteConfig::pools
  std::vector<EntryLines> models;  // as SiteConfig::models
};

// Of values without an error of their own.
void check_rules(const SiteConfig& config, const SiteLines& lines, ErrorList* errors);

}  // namespace plexrl::config
