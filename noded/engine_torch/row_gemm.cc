// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/row_gemm.h"

#include <algorithm>

#include "engine_torch/vector16.h"

namespace plexrl::model {
namespace {

using lanes::Floats;
using lanes::HalfFloats;
using lanes::kLanes;

constexpr std::int64_t kRowBlock = 128;  // rows of x that stay in the cache while w streams by
constexpr std::int64_t kAhead = 4;       // rows of w by which memory is asked for early

struct Matrices {
  const float* x;
  const float* w;
  float* y;
  std::int64_t rows, in, out;
  float scale;
  bool add;
};

// `sums` [height, kWidth]; what lies beyond the edge is left out.
template <int kHeight, int kWidth>
PLEXRL_INLINE void store_tile(const Matrices& m, const float* sums, std::int64_t row,
                              std::int64_t col) {
  for (int i = 0; i < kHeight && row + i < m.rows; ++i) {
    float* const y = m.y + (row + i) * m.out + col;
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) {
      if (col + j >= m.out) break;
      const float value = sums[i * kWidth + j];
      y[j] = m.add ? y[j] + m.scale * value : value;
    }
  }
}

// A tile is kSums sums of sixteen lanes, by kHeight rows of x and as many rows of w as that leaves.
// Rows beyond the edge are computed from the last one and not stored. Loops are unrolled whatever
// the optimisation level is: the sums must stay in registers.
template <int kHeight, int kSums>
struct Operands {
  static constexpr int kWidth = kSums / kHeight;
  const float* x[kHeight];
  const float* w[kWidth];
  PLEXRL_INLINE Operands(const Matrices& m, std::int64_t row, std::int64_t col) {
    for (int i = 0; i < kHeight; ++i) x[i] = m.x + std::min(row + i, m.rows - 1) * m.in;
    for (int j = 0; j < kWidth; ++j) w[j] = m.w + std::min(col + j, m.out - 1) * m.in;
  }
};

// For the 32 registers of AVX-512: 4 rows by 4 columns, or for the last rows 2 by 8 or 1 by 16.
struct WideTiles {
  static constexpr int kSums = 16;
  static constexpr std::int64_t kColumns = 16;  // that one thread takes at a time

  // kFirst: w comes from memory, else from the cache.
  template <int kHeight, bool kFirst>
  PLEXRL_INLINE static void tile_at(const Matrices& m, std::int64_t row, std::int64_t col) {
    const Operands<kHeight, kSums> of(m, row, col);
    constexpr int kWidth = of.kWidth;
    Floats total[kSums] = {};
    std::int64_t k = 0;
    for (; k + kLanes <= m.in; k += kLanes) {
      Floats a[kHeight];
#pragma GCC unroll 4
      for (int i = 0; i < kHeight; ++i) a[i] = lanes::load(of.x[i] + k);
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j) {
        const Floats b = lanes::load(of.w[j] + k);
        if constexpr (kFirst) __builtin_prefetch(of.w[j] + k + kAhead * m.in);
#pragma GCC unroll 4
        for (int i = 0; i < kHeight; ++i) total[i * kWidth + j] += a[i] * b;
      }
    }
    if (k < m.in)
      for (int j = 0; j < kWidth; ++j)
        for (int i = 0; i < kHeight; ++i)
          total[i * kWidth + j] +=
              lanes::load_some(of.x[i] + k, m.in - k) * lanes::load_some(of.w[j] + k, m.in - k);
    float values[kLanes];
    lanes::store(values, lanes::sums(total));
    store_tile<kHeight, kWidth>(m, values, row, col);
  }
};

// For the 16 registers of AVX2, which hold half of the lanes of a sum: 4 rows by 3 columns, 2 by 6
// or 1 by 12. The halves take turns over pieces that stay in the first cache; lanes know nothing of
// each other until the end, so the bits are those of the wide tiles.
struct NarrowTiles {
  static constexpr int kSums = 12;
  static constexpr std::int64_t kColumns = 24;
  static constexpr std::int64_t kPiece = 512;
  static constexpr std::int64_t kHalf = kLanes / 2;

  // Lanes [from, from + 8) of k in [begin, end), whole vectors.
  template <int kHeight, bool kFirst>
  PLEXRL_INLINE static void add_piece(const Operands<kHeight, kSums>& of, std::int64_t from,
                                      std::int64_t begin, std::int64_t end, std::int64_t ahead,
                                      HalfFloats* sums) {
    constexpr int kWidth = Operands<kHeight, kSums>::kWidth;
    HalfFloats total[kSums];
#pragma GCC unroll 12
    for (int s = 0; s < kSums; ++s) total[s] = sums[s];
    for (std::int64_t k = begin + from; k < end; k += kLanes) {
      HalfFloats b[kWidth];
      HalfFloats a[kHeight];
#pragma GCC unroll 4
      for (int i = 0; i < kHeight; ++i) a[i] = lanes::load_half(of.x[i] + k);
#pragma GCC unroll 12
      for (int j = 0; j < kWidth; ++j) {
        b[j] = lanes::load_half(of.w[j] + k);
        if constexpr (kFirst) __builtin_prefetch(of.w[j] + k + ahead);
#pragma GCC unroll 4
        for (int i = 0; i < kHeight; ++i) total[i * kWidth + j] += a[i] * b[j];
      }
    }
#pragma GCC unroll 12
    for (int s = 0; s < kSums; ++s) sums[s] = total[s];
  }

  template <int kHeight, bool kFirst>
  PLEXRL_INLINE static void tile_at(const Matrices& m, std::int64_t row, std::int64_t col) {
    const Operands<kHeight, kSums> of(m, row, col);
    constexpr int kWidth = of.kWidth;
    HalfFloats low[kSums] = {};
    HalfFloats high[kSums] = {};
    const std::int64_t whole = m.in / kLanes * kLanes;
    for (std::int64_t k = 0; k < whole; k += kPiece) {
      const std::int64_t end = std::min(k + kPiece, whole);
      add_piece<kHeight, kFirst>(of, 0, k, end, kAhead * m.in, low);
      add_piece<kHeight, false>(of, kHalf, k, end, 0, high);
    }
    if (whole < m.in)
      for (int j = 0; j < kWidth; ++j)
        for (int i = 0; i < kHeight; ++i) {
          const lanes::Halves a = lanes::halves_of_some(of.x[i] + whole, m.in - whole);
          const lanes::Halves b = lanes::halves_of_some(of.w[j] + whole, m.in - whole);
          low[i * kWidth + j] += a.low * b.low;
          high[i * kWidth + j] += a.high * b.high;
        }
    float values[kSums];
    for (int s = 0; s < kSums; ++s) low[s] += high[s];
    for (int s = 0; s < kSums; s += 4) lanes::store_sums(values + s, low + s);
    store_tile<kHeight, kWidth>(m, values, row, col);
  }
};

// `rows` (a multiple of kHeight) from `row` on, by a thread's columns.
template <class Tiles, int kHeight>
PLEXRL_INLINE void tiles_at(const Matrices& m, std::int64_t row, std::int64_t rows,
                            std::int64_t col) {
  const std::int64_t end = std::min(col + Tiles::kColumns, m.out);
  for (; col < end; col += Tiles::kSums / kHeight) {
    Tiles::template tile_at<kHeight, true>(m, row, col);
    for (std::int64_t r = kHeight; r < rows; r += kHeight)
      Tiles::template tile_at<kHeight, false>(m, row + r, col);
  }
}

template <class Tiles>
PLEXRL_INLINE void columns_by(const Matrices& m, std::int64_t row, std::int64_t end,
                              std::int64_t col) {
  const std::int64_t by_four = (end - row + 1) / 4 * 4;  // three rows are computed as four
  if (by_four > 0) tiles_at<Tiles, 4>(m, row, by_four, col);
  if (end - row - by_four == 2) tiles_at<Tiles, 2>(m, row + by_four, 2, col);
  if (end - row - by_four == 1) tiles_at<Tiles, 1>(m, row + by_four, 1, col);
}

PLEXRL_SIMD void wide_columns(const Matrices& m, std::int64_t row, std::int64_t end,
                              std::int64_t col) {
  columns_by<WideTiles>(m, row, end, col);
}

PLEXRL_SIMD void narrow_columns(const Matrices& m, std::int64_t row, std::int64_t end,
                                std::int64_t col) {
  columns_by<NarrowTiles>(m, row, end, col);
}

struct Method {
  void (*columns)(const Matrices& m, std::int64_t row, std::int64_t end, std::int64_t col);
  std::int64_t width;
};

Method method_of(RowTiles tiles) {
  if (tiles == RowTiles::kWide) return {wide_columns, WideTiles::kColumns};
  return {narrow_columns, NarrowTiles::kColumns};
}

void multiply(const Matrices& m, RowTiles tiles) {
  const Method method = method_of(tiles);
  const std::int64_t blocks = (m.rows + kRowBlock - 1) / kRowBlock;
  const std::int64_t columns = (m.out + method.width - 1) / method.width;
  const bool large = m.rows * m.in * m.out > (1 << 20);
#pragma omp parallel for collapse(2) schedule(static) if (large)
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t column = 0; column < columns; ++column)
      method.columns(m, block * kRowBlock, std::min((block + 1) * kRowBlock, m.rows),
                     column * method.width);
}

}  // namespace

RowTiles row_tiles() {
  static const bool wide = __builtin_cpu_supports("avx512f") != 0;
  return wide ? RowTiles::kWide : RowTiles::kNarrow;
}

void row_gemm(const float* x, const float* w, float* y, std::int64_t rows, std::int64_t in,
              std::int64_t out, RowTiles tiles) {
  multiply({x, w, y, rows, in, out, 1.0F, false}, tiles);
}

void row_gemm_add(const float* x, const float* w, float* y, std::int64_t rows, std::int64_t in,
                  std::int64_t out, float scale, RowTiles tiles) {
  multiply({x, w, y, rows, in, out, scale, true}, tiles);
}

}  // namespace plexrl::model
