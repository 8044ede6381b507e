// SPDX-License-Identifier: Apache-2.0
// Small files of a model directory, read whole. Any thread; blocks.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace plexrl::model {

// NOT_FOUND: there is none. TOO_LARGE: not a regular file of at most `most` bytes. IO: what the
// system said.
[[nodiscard]] Result<std::string> read_text(const std::string& path, std::uint64_t most);

}  // namespace plexrl::model
