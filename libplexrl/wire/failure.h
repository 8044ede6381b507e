// SPDX-License-Identifier: Apache-2.0
// A Status as the table of the protocols and back. Works on the structs alone, so it needs nothing
// of FlatBuffers but their names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "ops_generated.h"

namespace plexrl::wire {

// Longer failure texts are cut.
inline constexpr std::size_t kMaxFailureText = 4096;

[[nodiscard]] FailureT to_failure(const Status& status, std::uint32_t retry_after_ms = 0);
// Never ok: a failure that says OK becomes PROTOCOL.
[[nodiscard]] Status from_failure(const FailureT& failure);

}  // namespace plexrl::wire
