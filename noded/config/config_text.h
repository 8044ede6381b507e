// SPDX-License-Identifier: Apache-2.0
// Texts made from the table of keys: `plexrl config dump` and the tables of plexrl.yaml(5).
#pragma once

#include <string>

#include "config/site_config.h"

namespace plexrl::config {

// The whole configuration with every default written out; parse_site_config of it gives the same.
[[nodiscard]] std::string dump_yaml(const SiteConfig& config);
// The same as one JSON document.
[[nodiscard]] std::string dump_json(const SiteConfig& config);

// The mdoc list of one section's keys: "site", "pools", "models" or "daemon"; empty for others.
[[nodiscard]] std::string key_list_mdoc(const std::string& section);

}  // namespace plexrl::config
