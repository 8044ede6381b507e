// SPDX-License-Identifier: Apache-2.0
// Rules of plexrl.yaml between values: names exist and are given once, limits fit each other.
#pragma once

#include <vector>

#include "config/section_reader.h"
#include "config/site_config.h"

namespace plexrl::config {

// Where things stood, for messages.
struct EntryLines {
  int line = 0;
  KeyLines keys;
  [[nodiscard]] int of(const char* key) const {
    const auto found = keys.find(key);
    return found == keys.end() ? line : found->second;
  }
};

struct SiteLines {
  EntryLines site;
  EntryLines daemon;
  std::vector<EntryLines> pools;   // as SiteConfig::pools
  std::vector<EntryLines> models;  // as SiteConfig::models
};

void check_rules(const SiteConfig& config, const SiteLines& lines, ErrorList* errors);

}  // namespace plexrl::config
