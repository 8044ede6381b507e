// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/row_gemm.h"

#include <algorithm>

#include "engine_torch/vector16.h"

namespace plexrl::model {
namespace {

using lanes::Floats;
using lanes::kLanes;

constexpr std::int64_t kTile = 4;  // 4 x 4 sums of sixteen lanes fit the 32 registers of AVX-512
constexpr std::int64_t kRowBlock = 128;  // rows of x that stay in the cache while w streams by

struct Matrices {
  const float* x;
  const float* w;
  float* y;
  std::int64_t rows, in, out;
  float scale;
  bool add;
};

PLEXRL_INLINE void store_tile(const Matrices& m, Floats tile, std::int64_t row, std::int64_t col) {
  float values[kLanes];
  lanes::store(values, tile);
  const std::int64_t height = std::min(kTile, m.rows - row);
  const std::int64_t width = std::min(kTile, m.out - col);
  for (std::int64_t i = 0; i < height; ++i)
    for (std::int64_t j = 0; j < width; ++j) {
      float& y = m.y[(row + i) * m.out + col + j];
      const float value = values[i * kTile + j];
      y = m.add ? y + m.scale * value : value;
    }
}

// Rows and columns beyond the edge are computed from the last one and not stored.
PLEXRL_INLINE void tile_at(const Matrices& m, std::int64_t row, std::int64_t col) {
  const float* x[kTile];
  const float* w[kTile];
  for (std::int64_t i = 0; i < kTile; ++i) {
    x[i] = m.x + std::min(row + i, m.rows - 1) * m.in;
    w[i] = m.w + std::min(col + i, m.out - 1) * m.in;
  }
  Floats total[kTile * kTile] = {};
  std::int64_t k = 0;
  for (; k + kLanes <= m.in; k += kLanes) {
    Floats b[kTile];
    for (int j = 0; j < kTile; ++j) b[j] = lanes::load(w[j] + k);
    for (int i = 0; i < kTile; ++i) {
      const Floats a = lanes::load(x[i] + k);
      for (int j = 0; j < kTile; ++j) total[i * kTile + j] += a * b[j];
    }
  }
  if (k < m.in)
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kTile; ++j)
        total[i * kTile + j] +=
            lanes::load_some(x[i] + k, m.in - k) * lanes::load_some(w[j] + k, m.in - k);
  store_tile(m, lanes::sums(total), row, col);
}

PLEXRL_SIMD void columns_at(const Matrices& m, std::int64_t first, std::int64_t end,
                            std::int64_t col) {
  for (std::int64_t row = first; row < end; row += kTile) tile_at(m, row, col);
}

void multiply(const Matrices& m) {
  const std::int64_t blocks = (m.rows + kRowBlock - 1) / kRowBlock;
  const std::int64_t columns = (m.out + kTile - 1) / kTile;
  const bool large = m.rows * m.in * m.out > (1 << 20);
#pragma omp parallel for collapse(2) schedule(static) if (large)
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t column = 0; column < columns; ++column)
      columns_at(m, block * kRowBlock, std::min((block + 1) * kRowBlock, m.rows), column * kTile);
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
