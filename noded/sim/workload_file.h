// SPDX-License-Identifier: Apache-2.0
// A workload from YAML. All errors of a file are reported at once, each with file:line.
#pragma once

#include "sim/workload.h"

namespace plexrl::sim {

// INVALID_ARGUMENT: the text holds one "file:line: message" per line, all of them.
[[nodiscard]] Result<Workload> parse_workload(std::string_view text, std::string_view file_name);
// The same from a file of at most 1 MiB; NOT_FOUND, IO, TOO_LARGE. `trace` is made relative to the
// file's directory.
[[nodiscard]] Result<Workload> load_workload(const std::string& path);

}  // namespace plexrl::sim
