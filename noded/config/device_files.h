// SPDX-License-Identifier: Apache-2.0
// The device files of a pool's nodes (device_files of plexrl.yaml). Slurm's own device control
// leaves them open, because our GRES are counts without files: their mode and ACL must do it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::config {

// What the pattern (glob(7)) matches, sorted; nothing is fine: a node without devices.
[[nodiscard]] std::vector<std::string> find_device_files(const std::string& pattern);
// PERMISSION names the first one that everybody may read or write, and the remedy.
[[nodiscard]] Status check_device_files(const std::string& pattern);

}  // namespace plexrl::config
