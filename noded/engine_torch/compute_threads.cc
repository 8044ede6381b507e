// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/compute_threads.h"

#include <omp.h>

#include <atomic>

namespace plexrl::model {
namespace {
std::atomic<int> g_threads{1};
}  // namespace

void set_compute_threads(int threads) noexcept { g_threads = threads; }
void apply_compute_threads() noexcept { omp_set_num_threads(g_threads); }

}  // namespace plexrl::model
