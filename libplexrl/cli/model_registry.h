// SPDX-License-Identifier: Apache-2.0
// The registry of models: the section `models` of the site file, and what of it is on this node.
// `plexrl model rm`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "config/site_config.h"

namespace plexrl::cli {

inline constexpr const char* kSiteFileHelp = "site file; default: /etc/plexrl/plexrl.yaml";

// "": the site's own, whose owners and modes must be right.
[[nodiscard]] Result<config::SiteConfig> load_site(const std::string& config);
[[nodiscard]] std::vector<std::string> pools_of(const config::SiteConfig& site,
                                                const std::string& model);
[[nodiscard]] std::string joined(const std::vector<std::string>& names);  // by commas
// "yes", "no", "partial" (an import that was interrupted) or "unreadable".
[[nodiscard]] const char* state_here(const std::string& path);

struct ChosenModel {
  std::optional<config::ModelEntry> entry;  // of a name
  std::string path;
  [[nodiscard]] const std::string& name() const { return entry ? entry->name : path; }
};
// A word with a slash, "." and ".." are directories, others names; none: all of the site file,
// which is read only for names. NOT_FOUND names the first that is not in it.
[[nodiscard]] Result<std::vector<ChosenModel>> choose_models(const std::string& config,
                                                             const std::vector<std::string>& names);

void add_model_rm(CLI::App& group, Run& chosen);

}  // namespace plexrl::cli
