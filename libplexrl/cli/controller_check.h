// SPDX-License-Identifier: Apache-2.0
// `plexrl config check --controller`: whether the job_submit hook of each controller has what this
// host has. The hooks note what they read in StateSaveLocation (slurm/controller_report.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

struct ControllerFindings {
  nlohmann::json document;
  std::vector<std::string> mistakes;  // empty: all is well
  std::vector<std::string> notes;     // what could not be seen
};

// Hosts and state directory from `scontrol show config`. IO, TIMEOUT: it does not answer.
struct Controllers {
  std::vector<std::string> hosts;
  std::string state_dir;
};
[[nodiscard]] Result<Controllers> parse_controllers(const std::string& show_config);
[[nodiscard]] Result<Controllers> find_controllers(const std::string& scontrol);

// The files of this host against the reports in `controllers.state_dir`.
[[nodiscard]] ControllerFindings check_controllers(const std::string& site_path,
                                                   const Controllers& controllers);

}  // namespace plexrl::cli
