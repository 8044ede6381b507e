// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/row_lora.h"

#include <algorithm>
#include <vector>

#include "engine_torch/row_gemm.h"
#include "engine_torch/vector16.h"

namespace plexrl::model {
namespace {

using lanes::Floats;
using lanes::kLanes;

// Rows that share a read of the adapter; more are other pieces of work.
constexpr std::int64_t kRowsOfPiece = 8;
constexpr int kWide = 4;                     // vectors of y at a time
constexpr std::int64_t kParallel = 1 << 14;  // multiplications below which threads do not pay

struct Piece {
  const LoraMatrix* matrix;
  std::int64_t first, count;
};

std::vector<Piece> pieces_of(std::span<const LoraRows> groups) {
  std::vector<Piece> pieces;
  for (const LoraRows& group : groups)
    for (std::int64_t at = 0; at < group.count; at += kRowsOfPiece)
      pieces.push_back({group.matrix, group.first + at, std::min(kRowsOfPiece, group.count - at)});
  return pieces;
}

// y[0 .. kVectors * 16) += scale * sum of z[r] * b[r], by r in order.
template <int kVectors>
PLEXRL_INLINE void add_columns(const float* z, const float* b, float* y, std::int64_t rank,
                               std::int64_t out, float scale) {
  Floats total[kVectors] = {};
  for (std::int64_t r = 0; r < rank; ++r) {
    const Floats factor = lanes::splat(z[r]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) total[v] += factor * lanes::load(b + r * out + v * kLanes);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v)
    lanes::store(y + v * kLanes, lanes::load(y + v * kLanes) + total[v] * scale);
}

PLEXRL_INLINE void add_last(const float* z, const float* b, float* y, std::int64_t rank,
                            std::int64_t out, float scale, std::int64_t columns) {
  Floats total{};
  for (std::int64_t r = 0; r < rank; ++r)
    total += lanes::splat(z[r]) * lanes::load_some(b + r * out, columns);
  lanes::store_some(y, lanes::load_some(y, columns) + total * scale, columns);
}

// z [rows, rank] times b [rank, out], onto y [rows, out].
PLEXRL_SIMD void add_rows(const float* z, const LoraMatrix& m, float* y, std::int64_t rows,
                          std::int64_t out) {
  std::int64_t at = 0;
  for (; at + kWide * kLanes <= out; at += kWide * kLanes)
    for (std::int64_t row = 0; row < rows; ++row)
      add_columns<kWide>(z + row * m.rank, m.b + at, y + row * out + at, m.rank, out, m.scale);
  for (; at + kLanes <= out; at += kLanes)
    for (std::int64_t row = 0; row < rows; ++row)
      add_columns<1>(z + row * m.rank, m.b + at, y + row * out + at, m.rank, out, m.scale);
  if (at < out)
    for (std::int64_t row = 0; row < rows; ++row)
      add_last(z + row * m.rank, m.b + at, y + row * out + at, m.rank, out, m.scale, out - at);
}

}  // namespace

void add_lora(std::span<const LoraRows> groups, const float* x, float* y, float* z, std::int64_t in,
              std::int64_t out) {
  const std::vector<Piece> pieces = pieces_of(groups);
  std::int64_t rows = 0;
  std::int64_t rank = 0;
  for (const Piece& piece : pieces) {
    rows += piece.count;
    rank = std::max(rank, piece.matrix->rank);
  }
  const auto count = static_cast<std::int64_t>(pieces.size());
#pragma omp parallel for schedule(dynamic, 1) if (count > 1 && rows * rank * (in + out) > kParallel)
  for (std::int64_t i = 0; i < count; ++i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    float* const reduced = z + piece.first * rank;
    row_gemm(x + piece.first * in, piece.matrix->a, reduced, piece.count, in, piece.matrix->rank);
    add_rows(reduced, *piece.matrix, y + piece.first * out, piece.count, out);
  }
}

}  // namespace plexrl::model
