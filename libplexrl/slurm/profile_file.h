// SPDX-License-Identifier: Apache-2.0
// The file of profiles beside the site file. Written whole and renamed, read by slurmctld; whatever
// it holds does no harm.
#pragma once

#include <string>

#include "slurm/profile.h"

namespace plexrl::slurm {

// /etc/plexrl/profiles beside /etc/plexrl/plexrl.yaml.
[[nodiscard]] std::string profiles_path(const std::string& site_path);
// NOT_FOUND. PERMISSION: written or writable by others than root and this user, or no plain file;
// the text says how to mend that. TOO_LARGE, CORRUPT, IO.
[[nodiscard]] Result<ParsedProfiles> load_profiles(const std::string& path);
// A sentence on the lines that are no profiles; empty: there are none.
[[nodiscard]] std::string ignored_lines_text(const std::string& path, const ParsedProfiles& parsed);
// Mode 0644, in place of what was there. IO.
[[nodiscard]] Status write_profiles(const std::string& path, const std::string& text);

}  // namespace plexrl::slurm
