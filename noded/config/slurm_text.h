// SPDX-License-Identifier: Apache-2.0
// `plexrl config slurm`: the lines that a site adds to slurm.conf, gres.conf, plugstack.conf and to
// the unit of plexrld, from the site file and one machine that is like the pool's nodes.
#pragma once

#include <string>

#include "config/machine.h"
#include "config/site_config.h"

namespace plexrl::config {

struct SlurmTextOptions {
  std::string config_path;  // where the site file lies on every host
  std::string plugin_dir;   // where our plugins are installed
  bool accounting = false;  // slurmdbd is used: without it TRES lines are fatal to slurmctld
};

// NO_CAPACITY when the machine has no core or no memory left for jobs beside the service; the text
// names the keys to change.
[[nodiscard]] Result<std::string> slurm_text(const SiteConfig& config, const Machine& machine,
                                             const SlurmTextOptions& options);

}  // namespace plexrl::config
