// SPDX-License-Identifier: Apache-2.0
// Tensor types of GGUF and how their blocks become float32. Source of the layouts: ggml-common.h
// and dequantize_row_* of ggml.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace plexrl::model {

enum class GgufType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct GgufBlock {
  std::string_view name;
  std::size_t elements = 1;
  std::size_t bytes = 0;
};

// UNSUPPORTED: another type.
[[nodiscard]] Result<GgufType> gguf_type(std::uint32_t number);
[[nodiscard]] const GgufBlock& block_of(GgufType type) noexcept;
// Whole blocks: bytes.size() / block bytes = out.size() / block elements.
void dequantize(GgufType type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace plexrl::model
