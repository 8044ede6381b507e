// SPDX-License-Identifier: Apache-2.0
// Small files that are read and replaced whole. Neither call waits for another process.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace plexrl::slurm {

// NOT_FOUND; PERMISSION: no plain file; TOO_LARGE; IO.
[[nodiscard]] Result<std::string> read_whole_file(const std::string& path, std::size_t max_bytes);
// In place of what was there, durable; readers see the old or the new file. IO.
[[nodiscard]] Status replace_file(const std::string& path, const std::string& text, mode_t mode);

}  // namespace plexrl::slurm
