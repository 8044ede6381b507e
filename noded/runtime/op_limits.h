// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace plexrl::runtime {

// Rows of one generate, sequences of one logprobs, data of one forward_backward: bounds the result.
inline constexpr std::uint32_t kMaxRows = 4096;

}  // namespace plexrl::runtime
