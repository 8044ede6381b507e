// SPDX-License-Identifier: Apache-2.0
// Matrix products of bfloat16 numbers with sums in float32. As in row_gemm.h the bits of a row of y
// depend on that row of x and on w only, for every number of rows and threads. On a CPU with
// AVX512-BF16 by its instruction, else widened to float32: the two agree but for denormal numbers,
// which the instruction takes as zero. Any thread; work is shared by OpenMP where there is enough.
#pragma once

#include <cstdint>

namespace plexrl::model {

using Bf16 = std::uint16_t;  // the upper half of a float32

// To nearest, ties to even; NaN stays NaN.
void round_bf16(const float* x, Bf16* y, std::int64_t count);
void widen_bf16(const Bf16* x, float* y, std::int64_t count);

// y[rows, out] = x[rows, in] * w[out, in]^T, all row-major and contiguous. y overlaps neither.
void row_gemm_bf16(const Bf16* x, const Bf16* w, float* y, std::int64_t rows, std::int64_t in,
                   std::int64_t out);
// y[rows, in] = x[rows, out] * w[out, in]: takes the gradient by the former's y to that by its x.
void row_gemm_bf16_back(const Bf16* x, const Bf16* w, float* y, std::int64_t rows, std::int64_t out,
                        std::int64_t in);

// The processor's instruction, or widened to float32: with sums for 32 registers or for 16.
enum class Bf16Math : std::uint8_t { kInstruction, kWidened, kNarrow };
// What this CPU does. set: for tests, where the CPU has it; not while a product is computed.
[[nodiscard]] Bf16Math bf16_math() noexcept;
[[nodiscard]] bool set_bf16_math(Bf16Math math) noexcept;

}  // namespace plexrl::model
