// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_blocks.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "models/half.h"

namespace plexrl::model {
namespace {

using Unpack = void (*)(const std::byte* block, float* out);

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float half_at(const std::byte* at) { return from_half(load<std::uint16_t>(at)); }
unsigned low(std::byte byte) { return std::to_integer<unsigned>(byte) & 0xFU; }
unsigned high(std::byte byte) { return std::to_integer<unsigned>(byte) >> 4U; }

void unpack_f32(const std::byte* block, float* out) { *out = load<float>(block); }
void unpack_f16(const std::byte* block, float* out) { *out = half_at(block); }
void unpack_bf16(const std::byte* block, float* out) {
  *out = from_bfloat16(load<std::uint16_t>(block));
}

void unpack_q8_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  for (std::size_t i = 0; i < 32; ++i)
    out[i] = scale * static_cast<float>(load<std::int8_t>(block + 2 + i));
}

void unpack_q4_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int>(low(block[2 + i])) - 8);
    out[i + 16] = scale * static_cast<float>(static_cast<int>(high(block[2 + i])) - 8);
  }
}

void unpack_q4_1(const std::byte* block, float* out) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(low(block[4 + i])) + least;
    out[i + 16] = scale * static_cast<float>(high(block[4 + i])) + least;
  }
}

// Eight scales and eight minima of 6 bits each lie in 12 bytes.
struct ScaleAndLeast {
  float scale = 0, least = 0;
};
ScaleAndLeast scale_of_q4_k(const std::byte* packed, std::size_t j) {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(packed[i]); };
  unsigned scale = at(j) & 63U;
  unsigned least = at(j + 4) & 63U;
  if (j >= 4) {
    scale = (at(j + 4) & 0xFU) | ((at(j - 4) >> 6U) << 4U);
    least = (at(j + 4) >> 4U) | ((at(j) >> 6U) << 4U);
  }
  return {static_cast<float>(scale), static_cast<float>(least)};
}

void unpack_q4_k(const std::byte* block, float* out) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  const std::byte* const scales = block + 4;
  const std::byte* const quants = block + 16;
  for (std::size_t part = 0; part < 8; ++part) {
    const ScaleAndLeast own = scale_of_q4_k(scales, part);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::byte pair = quants[part / 2 * 32 + i];
      const auto quant = static_cast<float>(part % 2 == 0 ? low(pair) : high(pair));
      out[part * 32 + i] = scale * own.scale * quant - least * own.least;
    }
  }
}

void unpack_q6_k(const std::byte* block, float* out) {
  const std::byte* const scales = block + 192;
  const float scale = half_at(block + 208);
  for (std::size_t i = 0; i < 256; ++i) {
    // Halves of 128, in each four runs of 32 that share the bytes of the upper bits.
    const std::size_t half = i / 128;
    const std::size_t run = i / 32 % 4;
    const std::size_t at = i % 32;
    const std::byte lower = block[half * 64 + run % 2 * 32 + at];
    const unsigned upper = std::to_integer<unsigned>(block[128 + half * 32 + at]) >> (2 * run);
    const unsigned quant = (run < 2 ? low(lower) : high(lower)) | ((upper & 3U) << 4U);
    const auto own = static_cast<float>(load<std::int8_t>(scales + i / 16));
    out[i] = scale * own * static_cast<float>(static_cast<int>(quant) - 32);
  }
}

struct Row {
  GgufType type;
  GgufBlock block;
  Unpack unpack;
};
constexpr std::array<Row, 8> kRows = {{{GgufType::kF32, {"F32", 1, 4}, unpack_f32},
                                       {GgufType::kF16, {"F16", 1, 2}, unpack_f16},
                                       {GgufType::kBF16, {"BF16", 1, 2}, unpack_bf16},
                                       {GgufType::kQ4_0, {"Q4_0", 32, 18}, unpack_q4_0},
                                       {GgufType::kQ4_1, {"Q4_1", 32, 20}, unpack_q4_1},
                                       {GgufType::kQ8_0, {"Q8_0", 32, 34}, unpack_q8_0},
                                       {GgufType::kQ4_K, {"Q4_K", 256, 144}, unpack_q4_k},
                                       {GgufType::kQ6_K, {"Q6_K", 256, 210}, unpack_q6_k}}};

const Row& row_of(GgufType type) noexcept {
  for (const Row& row : kRows)
    if (row.type == type) return row;
  PLEXRL_CHECK(false, "a type that is not in the table");
  return kRows.front();
}

}  // namespace

Result<GgufType> gguf_type(std::uint32_t number) {
  for (const Row& row : kRows)
    if (static_cast<std::uint32_t>(row.type) == number) return row.type;
  std::string known;
  for (const Row& row : kRows) known.append(known.empty() ? "" : ", ").append(row.block.name);
  return error(Code::UNSUPPORTED, "type %u; read are %s", number, known.c_str());
}

const GgufBlock& block_of(GgufType type) noexcept { return row_of(type).block; }

void dequantize(GgufType type, std::span<const std::byte> bytes, std::span<float> out) {
  const Row& row = row_of(type);
  PLEXRL_CHECK(bytes.size() % row.block.bytes == 0 &&
                   out.size() == bytes.size() / row.block.bytes * row.block.elements,
               "whole blocks only");
  for (std::size_t block = 0; block < bytes.size() / row.block.bytes; ++block)
    row.unpack(bytes.data() + block * row.block.bytes, out.data() + block * row.block.elements);
}

}  // namespace plexrl::model
