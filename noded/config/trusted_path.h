// SPDX-License-Identifier: Apache-2.0
// Trusted paths, after munge's rule: a file is trusted when nobody but root and the user of this
// process could have written or replaced it. Any thread.
#pragma once

#include <string>

#include "base/status.h"

namespace plexrl::config {

// Checks the file and each directory above it (symbolic links resolved first): owner root or the
// effective user; not writable by group or others, except directories with the sticky bit.
// PERMISSION names the offending path, the reason and the command that repairs it; NOT_FOUND or IO
// when the file cannot be reached.
[[nodiscard]] Status check_trusted_path(const std::string& path);

}  // namespace plexrl::config
