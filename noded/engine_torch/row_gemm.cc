// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/row_gemm.h"

#include <algorithm>

#include "engine_torch/vector16.h"

namespace plexrl::model {
namespace {

using lanes::Floats;
using lanes::kLanes;

// A tile is kSums sums of sixteen lanes, which fit the 32 registers of AVX-512 beside what is
// multiplied: 4 rows by 4 columns, or for the last rows 2 by 8 or 1 by 16.
constexpr int kSums = 16;
constexpr std::int64_t kRowBlock = 128;  // rows of x that stay in the cache while w streams by
constexpr std::int64_t kColumns = 16;    // that one thread takes at a time
constexpr std::int64_t kAhead = 4;       // rows of w by which memory is asked for early

struct Matrices {
  const float* x;
  const float* w;
  float* y;
  std::int64_t rows, in, out;
  float scale;
  bool add;
};

template <int kWidth>
PLEXRL_INLINE void store_tile(const Matrices& m, Floats tile, std::int64_t row, std::int64_t col,
                              std::int64_t height) {
  float values[kLanes];
  lanes::store(values, tile);
  const std::int64_t width = std::min<std::int64_t>(kWidth, m.out - col);
  for (std::int64_t i = 0; i < height; ++i)
    for (std::int64_t j = 0; j < width; ++j) {
      float& y = m.y[(row + i) * m.out + col + j];
      const float value = values[i * kWidth + j];
      y = m.add ? y + m.scale * value : value;
    }
}

// Rows and columns beyond the edge are computed from the last one and not stored. kFirst: w comes
// from memory, else from the cache. The loops are unrolled whatever the optimisation level is: the
// sums must stay in registers.
template <int kHeight, bool kFirst>
PLEXRL_INLINE void tile_at(const Matrices& m, std::int64_t row, std::int64_t col) {
  constexpr int kWidth = kSums / kHeight;
  const float* x[kHeight];
  const float* w[kWidth];
  for (int i = 0; i < kHeight; ++i) x[i] = m.x + std::min(row + i, m.rows - 1) * m.in;
  for (int j = 0; j < kWidth; ++j) w[j] = m.w + std::min(col + j, m.out - 1) * m.in;
  Floats total[kSums] = {};
  std::int64_t k = 0;
  for (; k + kLanes <= m.in; k += kLanes) {
    Floats a[kHeight];
#pragma GCC unroll 4
    for (int i = 0; i < kHeight; ++i) a[i] = lanes::load(x[i] + k);
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) {
      const Floats b = lanes::load(w[j] + k);
      if constexpr (kFirst) __builtin_prefetch(w[j] + k + kAhead * m.in);
#pragma GCC unroll 4
      for (int i = 0; i < kHeight; ++i) total[i * kWidth + j] += a[i] * b;
    }
  }
  if (k < m.in)
    for (int j = 0; j < kWidth; ++j)
      for (int i = 0; i < kHeight; ++i)
        total[i * kWidth + j] +=
            lanes::load_some(x[i] + k, m.in - k) * lanes::load_some(w[j] + k, m.in - k);
  store_tile<kWidth>(m, lanes::sums(total), row, col,
                     std::min<std::int64_t>(kHeight, m.rows - row));
}

// `rows` (a multiple of kHeight) from `row` on, by sixteen columns.
template <int kHeight>
PLEXRL_INLINE void tiles_at(const Matrices& m, std::int64_t row, std::int64_t rows,
                            std::int64_t col) {
  const std::int64_t end = std::min(col + kColumns, m.out);
  for (; col < end; col += kSums / kHeight) {
    tile_at<kHeight, true>(m, row, col);
    for (std::int64_t r = kHeight; r < rows; r += kHeight) tile_at<kHeight, false>(m, row + r, col);
  }
}

PLEXRL_SIMD void columns_at(const Matrices& m, std::int64_t row, std::int64_t end,
                            std::int64_t col) {
  const std::int64_t by_four = (end - row + 1) / 4 * 4;  // three rows are computed as four
  if (by_four > 0) tiles_at<4>(m, row, by_four, col);
  if (end - row - by_four == 2) tiles_at<2>(m, row + by_four, 2, col);
  if (end - row - by_four == 1) tiles_at<1>(m, row + by_four, 1, col);
}

void multiply(const Matrices& m) {
  const std::int64_t blocks = (m.rows + kRowBlock - 1) / kRowBlock;
  const std::int64_t columns = (m.out + kColumns - 1) / kColumns;
  const bool large = m.rows * m.in * m.out > (1 << 20);
#pragma omp parallel for collapse(2) schedule(static) if (large)
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t column = 0; column < columns; ++column)
      columns_at(m, block * kRowBlock, std::min((block + 1) * kRowBlock, m.rows),
                 column * kColumns);
}

}  // namespace

void row_gemm(const float* x, const float* w, float* y, std::int64_t rows, std::int64_t in,
              std::int64_t out) {
  multiply({x, w, y, rows, in, out, 1.0F, false});
}

void row_gemm_add(const float* x, const float* w, float* y, std::int64_t rows, std::int64_t in,
                  std::int64_t out, float scale) {
  multiply({x, w, y, rows, in, out, scale, true});
}

}  // namespace plexrl::model
