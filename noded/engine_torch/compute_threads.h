// SPDX-License-Identifier: Apache-2.0
// How many threads an op computes with. OpenMP keeps that number per calling thread, so whoever
// computes applies it first; OpenBLAS (openmp) and our kernels follow it.
#pragma once

namespace plexrl::model {

// Once, at start; 1 before that.
void set_compute_threads(int threads) noexcept;
void apply_compute_threads() noexcept;

}  // namespace plexrl::model
