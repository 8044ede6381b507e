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

// The fifth bits of 32 numbers lie in four bytes, in their order.
void unpack_q5(const std::byte* bits, const std::byte* quants, float scale, float least,
               float* out) {
  const auto fifth = load<std::uint32_t>(bits);
  for (std::size_t i = 0; i < 32; ++i) {
    const unsigned four = i < 16 ? low(quants[i]) : high(quants[i - 16]);
    out[i] = scale * static_cast<float>(four | ((fifth >> i & 1U) << 4U)) + least;
  }
}

void unpack_q5_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  unpack_q5(block + 2, block + 6, scale, -16.0F * scale, out);
}

void unpack_q5_1(const std::byte* block, float* out) {
  unpack_q5(block + 4, block + 8, half_at(block), half_at(block + 2), out);
}

// Eight scales and eight minima of 6 bits each lie in 12 bytes.
struct ScaleAndLeast {
  float scale = 0, least = 0;
};
ScaleAndLeast scale_of_part(const std::byte* packed, std::size_t j) {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(packed[i]); };
  unsigned scale = at(j) & 63U;
  unsigned least = at(j + 4) & 63U;
  if (j >= 4) {
    scale = (at(j + 4) & 0xFU) | ((at(j - 4) >> 6U) << 4U);
    least = (at(j + 4) >> 4U) | ((at(j) >> 6U) << 4U);
  }
  return {static_cast<float>(scale), static_cast<float>(least)};
}

// `fifth`: 32 bytes with a bit for each of the eight parts; none for four bits.
void unpack_parts(const std::byte* block, const std::byte* fifth, const std::byte* quants,
                  float* out) {
  const float scale = half_at(block);
  const float least = half_at(block + 2);
  for (std::size_t part = 0; part < 8; ++part) {
    const ScaleAndLeast own = scale_of_part(block + 4, part);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::byte pair = quants[part / 2 * 32 + i];
      unsigned quant = part % 2 == 0 ? low(pair) : high(pair);
      if (fifth != nullptr) quant |= (std::to_integer<unsigned>(fifth[i]) >> part & 1U) << 4U;
      out[part * 32 + i] = scale * own.scale * static_cast<float>(quant) - least * own.least;
    }
  }
}

void unpack_q4_k(const std::byte* block, float* out) {
  unpack_parts(block, nullptr, block + 16, out);
}

void unpack_q5_k(const std::byte* block, float* out) {
  unpack_parts(block, block + 16, block + 48, out);
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
constexpr std::array<Row, 11> kRows = {{{GgufType::kF32, {"F32", 1, 4}, unpack_f32},
                                        {GgufType::kF16, {"F16", 1, 2}, unpack_f16},
                                        {GgufType::kBF16, {"BF16", 1, 2}, unpack_bf16},
                                        {GgufType::kQ4_0, {"Q4_0", 32, 18}, unpack_q4_0},
                                        {GgufType::kQ4_1, {"Q4_1", 32, 20}, unpack_q4_1},
                                        {GgufType::kQ5_0, {"Q5_0", 32, 22}, unpack_q5_0},
                                        {GgufType::kQ5_1, {"Q5_1", 32, 24}, unpack_q5_1},
                                        {GgufType::kQ8_0, {"Q8_0", 32, 34}, unpack_q8_0},
                                        {GgufType::kQ4_K, {"Q4_K", 256, 144}, unpack_q4_k},
                                        {GgufType::kQ5_K, {"Q5_K", 256, 176}, unpack_q5_k},
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
