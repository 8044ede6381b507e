// SPDX-License-Identifier: Apache-2.0
// Models that benchmarks make for themselves: the shape of a Llama, freshly initialised.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace plexrl::cli {

struct ModelShape {
  const char* name;
  std::uint32_t hidden, layers, heads, kv_heads, intermediate, vocabulary, positions;
  [[nodiscard]] std::uint32_t kv_size() const noexcept { return hidden / heads * kv_heads; }
};

// Writes directory/NAME by plexrl-engine; what that says goes to directory/log.
[[nodiscard]] Status make_model(const std::string& engine, const std::string& directory,
                                const ModelShape& shape);

}  // namespace plexrl::cli
