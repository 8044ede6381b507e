// SPDX-License-Identifier: Apache-2.0
// The adapters' part of a product in a batch whose rows have adapters of their own, or none. The
// bits of a row depend on that row and its adapter only, whoever else is in the batch.
#pragma once

#include <cstdint>
#include <span>

namespace plexrl::model {

// Of one matrix. Row-major, contiguous.
struct LoraMatrix {
  const float* a = nullptr;  // [rank, in]
  const float* b = nullptr;  // [rank, out]: transposed, so that `out` is what vectors run along
  std::int64_t rank = 0;
  float scale = 0;
};
// Rows first .. first + count - 1 of a batch.
struct LoraRows {
  const LoraMatrix* matrix = nullptr;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// y[r] += scale * B (A x[r]) for the rows of every group; x [rows, in], y [rows, out]. Groups do
// not overlap. z is scratch of (highest row + 1) * (highest rank) floats. Any thread; work is
// shared by OpenMP.
void add_lora(std::span<const LoraRows> groups, const float* x, float* y, float* z, std::int64_t in,
              std::int64_t out);

}  // namespace plexrl::model
