// SPDX-License-Identifier: Apache-2.0
#include "plugin_args.h"

#include <string_view>

namespace plexrl::spank {

Result<PluginArgs> parse_plugin_args(int argc, char* const* argv) {
  PluginArgs args;
  for (int i = 0; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string_view value = word.substr(word.find('=') + 1);
    if (word.rfind("config=/", 0) == 0)
      args.config = value;
    else if (word.rfind("socket=/", 0) == 0)
      args.socket = value;
    else if (word.rfind("device_files=/", 0) == 0)
      args.device_files = value;
    else if (word.rfind("jobs=/", 0) == 0)
      args.jobs_dir = value;
    else
      return error(Code::INVALID_ARGUMENT,
                   "plugstack.conf: '%s' is none of config=FILE, socket=PATH, jobs=DIR, "
                   "device_files=PATTERN with an absolute path",
                   argv[i]);
  }
  return args;
}

Result<config::SiteConfig> read_site(const PluginArgs& args) {
  // Not default_config_path(): the environment of a hook is not to be trusted.
  const std::string file = args.config.empty() ? "/etc/plexrl/plexrl.yaml" : args.config;
  return config::load_site_config(file, true);
}

Result<std::string> socket_path(const PluginArgs& args) {
  if (!args.socket.empty()) return args.socket;
  PLEXRL_ASSIGN(const config::SiteConfig site, read_site(args));
  return site.daemon.run_dir + "/plexrld.sock";
}

}  // namespace plexrl::spank
