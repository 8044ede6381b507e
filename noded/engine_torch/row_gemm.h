// SPDX-License-Identifier: Apache-2.0
// Matrix product whose rows do not know of each other: the bits of a row of y depend on that row of
// x and on w only, by construction, for every number of rows and threads. BLAS does not give that:
// OpenBLAS picks other kernels by the product of the three sizes (see doc/adr/0004-row-gemm.md), so
// padding to some number of rows does not help narrow matrices.
#pragma once

#include <cstdint>

namespace plexrl::model {

// How many sums are held in registers: as fits the CPU's. The bits are the same.
enum class RowTiles : std::uint8_t { kWide, kNarrow };
[[nodiscard]] RowTiles row_tiles();  // this CPU's

// y[rows, out] = x[rows, in] * w[out, in]^T, all row-major and contiguous. y overlaps neither.
void row_gemm(const float* x, const float* w, float* y, std::int64_t rows, std::int64_t in,
              std::int64_t out, RowTiles tiles = row_tiles());
// y += scale * x * w^T
void row_gemm_add(const float* x, const float* w, float* y, std::int64_t rows, std::int64_t in,
                  std::int64_t out, float scale, RowTiles tiles = row_tiles());

}  // namespace plexrl::model
