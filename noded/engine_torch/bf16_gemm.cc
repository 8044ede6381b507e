// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/bf16_gemm.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "engine_torch/vector16.h"

namespace plexrl::model {
namespace {

using lanes::Floats;
using lanes::HalfFloats;
// Two bfloat16 numbers in each lane, the first one in the lower half.
using Pairs = std::uint32_t __attribute__((vector_size(64)));
using UnalignedPairs = std::uint32_t __attribute__((vector_size(64), aligned(2), may_alias));
constexpr std::int64_t kPairs = 16;

constexpr std::int64_t kRowBlock = 128;  // rows of x that stay in the cache while w streams by
constexpr std::int64_t kColumns = 16;
constexpr std::int64_t kBlock = 4096;        // of what is rounded
constexpr std::int64_t kParallel = 1 << 16;  // elements below which threads do not pay
// 6 x 4 sums of sixteen lanes and a row of the panel fit the 32 registers of AVX-512; a panel of 64
// KiB fits the second cache and a thread's stack.
constexpr int kBackRows = 6;
constexpr int kBackVectors = 4;
constexpr std::int64_t kBackColumns = 16 * kBackVectors;
constexpr std::int64_t kBackDepth = 512;

struct Product {
  const Bf16* x;
  const Bf16* w;
  float* y;
  std::int64_t rows, in, out;
};

// Rows [first, first + count) of w, columns [col, col + width), two rows interleaved.
struct Panel {
  const Bf16* pairs;
  std::int64_t first, count, col, width;
};

PLEXRL_INLINE Floats load_part(const float* from, std::int64_t count) {
  if (count >= lanes::kLanes) return lanes::load(from);
  return count > 0 ? lanes::load_some(from, count) : Floats{};
}
PLEXRL_INLINE void store_part(float* to, Floats value, std::int64_t count) {
  if (count >= lanes::kLanes)
    lanes::store(to, value);
  else if (count > 0)
    lanes::store_some(to, value, count);
}

// out[k / 2][column][k % 2]; what is beyond the edges is zero.
PLEXRL_INLINE void interleave(const Bf16* w, std::int64_t stride, std::int64_t count,
                              std::int64_t width, Bf16* out) {
  for (std::int64_t k = 0; k < count; k += 2, out += 2 * kBackColumns) {
    const Bf16* const low = w + k * stride;
    if (k + 1 == count || width < kBackColumns) std::fill_n(out, 2 * kBackColumns, Bf16{0});
    for (std::int64_t j = 0; j < width; ++j) out[2 * j] = low[j];
    if (k + 1 < count)
      for (std::int64_t j = 0; j < width; ++j) out[2 * j + 1] = low[stride + j];
  }
}

namespace with_instruction {
#define BF16_TARGET __attribute__((target("arch=x86-64-v4,avx512bf16")))
#define BF16_INLINE PLEXRL_INLINE BF16_TARGET
#define BF16_ENTRY BF16_TARGET
BF16_INLINE Floats dot(Floats sums, Pairs a, Pairs b) {
  return reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sums),
                                                   reinterpret_cast<__m512bh>(a),
                                                   reinterpret_cast<__m512bh>(b)));
}
#include "engine_torch/bf16_tiles.inc"
#undef BF16_TARGET
#undef BF16_INLINE
#undef BF16_ENTRY
}  // namespace with_instruction

namespace widened {
#define BF16_TARGET
#define BF16_INLINE PLEXRL_INLINE
#define BF16_ENTRY PLEXRL_SIMD
// In the order of the instruction.
BF16_INLINE Floats dot(Floats sums, Pairs a, Pairs b) {
  sums += reinterpret_cast<Floats>(a & 0xffff0000U) * reinterpret_cast<Floats>(b & 0xffff0000U);
  sums += reinterpret_cast<Floats>(a << 16) * reinterpret_cast<Floats>(b << 16);
  return sums;
}
#include "engine_torch/bf16_tiles.inc"
#undef BF16_TARGET
#undef BF16_INLINE
#undef BF16_ENTRY
}  // namespace widened

namespace narrow {
#include "engine_torch/bf16_narrow.inc"
}  // namespace narrow

bool has_instruction() noexcept {
  static const bool has =
      __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has;
}

Bf16Math best_math() noexcept {
  if (has_instruction()) return Bf16Math::kInstruction;
  return __builtin_cpu_supports("avx512f") != 0 ? Bf16Math::kWidened : Bf16Math::kNarrow;
}

Bf16Math used_math = best_math();

struct Method {
  void (*columns_at)(const Product& m, std::int64_t first, std::int64_t end, std::int64_t col);
  void (*back_columns_at)(const Product& m, std::int64_t col);
};

Method used_method() noexcept {
  switch (used_math) {
    case Bf16Math::kInstruction:
      return {with_instruction::columns_at, with_instruction::back_columns_at};
    case Bf16Math::kWidened:
      return {widened::columns_at, widened::back_columns_at};
    case Bf16Math::kNarrow:
      break;
  }
  return {narrow::columns_at, narrow::back_columns_at};
}

PLEXRL_SIMD void round_range(const float* x, Bf16* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    y[i] = static_cast<Bf16>(nan ? bits >> 16 | 0x40U : rounded);
  }
}

PLEXRL_SIMD void widen_range(const Bf16* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::uint32_t{x[i]} << 16;
    std::memcpy(y + i, &bits, sizeof bits);
  }
}

}  // namespace

void round_bf16(const float* x, Bf16* y, std::int64_t count) {
#pragma omp parallel for schedule(static) if (count > kParallel)
  for (std::int64_t at = 0; at < count; at += kBlock)
    round_range(x + at, y + at, std::min(kBlock, count - at));
}
void widen_bf16(const Bf16* x, float* y, std::int64_t count) { widen_range(x, y, count); }

void row_gemm_bf16(const Bf16* x, const Bf16* w, float* y, std::int64_t rows, std::int64_t in,
                   std::int64_t out) {
  const Product m{x, w, y, rows, in, out};
  const Method method = used_method();
  const std::int64_t blocks = (rows + kRowBlock - 1) / kRowBlock;
  const std::int64_t columns = (out + kColumns - 1) / kColumns;
  const bool large = rows * in * out > (1 << 20);
#pragma omp parallel for collapse(2) schedule(static) if (large)
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t column = 0; column < columns; ++column)
      method.columns_at(m, block * kRowBlock, std::min((block + 1) * kRowBlock, rows),
                        column * kColumns);
}

void row_gemm_bf16_back(const Bf16* x, const Bf16* w, float* y, std::int64_t rows, std::int64_t out,
                        std::int64_t in) {
  const Product m{x, w, y, rows, in, out};
  const Method method = used_method();
  const bool large = rows * in * out > (1 << 20);
#pragma omp parallel for schedule(static) if (large)
  for (std::int64_t col = 0; col < in; col += kBackColumns) method.back_columns_at(m, col);
}

Bf16Math bf16_math() noexcept { return used_math; }

bool set_bf16_math(Bf16Math math) noexcept {
  if (math == Bf16Math::kInstruction && !has_instruction()) return false;
  used_math = math;
  return true;
}

}  // namespace plexrl::model
