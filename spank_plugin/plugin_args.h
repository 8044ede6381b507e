// SPDX-License-Identifier: Apache-2.0
// PluginArgs: the words after the plugin's path in plugstack.conf.
#pragma once

#include <string>

#include "base/result.h"
#include "config/site_config.h"

namespace plexrl::spank {

struct PluginArgs {
  std::string config;        // config=FILE; empty: the default site file
  std::string socket;        // socket=PATH; empty: plexrld.sock in run_dir of the site file
  std::string device_files;  // device_files=GLOB; empty: none
  std::string jobs_dir = "/run/plexrl-jobs";  // jobs=DIR; see grant_file.h
};

// INVALID_ARGUMENT names the word that is not known.
[[nodiscard]] Result<PluginArgs> parse_plugin_args(int argc, char* const* argv);
[[nodiscard]] Result<config::SiteConfig> read_site(const PluginArgs& args);
// Reads the site file when the arguments do not name the socket.
[[nodiscard]] Result<std::string> socket_path(const PluginArgs& args);

}  // namespace plexrl::spank
