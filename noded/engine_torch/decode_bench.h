// SPDX-License-Identifier: Apache-2.0
// How fast a base decodes rows with and without adapters, beside a plain read of the same bytes:
// the two take turns in this process, on the same memory, with the same threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine_torch/arena_layout.h"

namespace plexrl::model {

struct DecodeBenchOptions {
  std::string base_dir;
  WeightType type = WeightType::kFloat32;
  std::vector<std::size_t> rows = {1, 8, 32};
  // 0: the base alone. Else so many adapters, each of as many rows; numbers that do not divide the
  // rows are left out.
  std::vector<std::size_t> adapters = {0, 1, 8, 32};
  Duration time{kSecond.ns};  // about, of each measurement
};

// Medians over the rounds, each of some steps and one read.
struct DecodeSpeed {
  std::size_t rows = 0, adapters = 0;
  std::size_t rounds = 0;
  std::uint64_t bytes = 0;  // that a step reads: weights, adapters, caches
  double tokens_per_s = 0;
  double roofline_tokens_per_s = 0;  // if a step took as long as a read of its bytes
  double roofline_share = 0;
};

// The activation arena must be installed; it fixes the number of threads. Every row has a prompt of
// some tokens and draws at temperature 1. Adapters are of rank 8.
[[nodiscard]] Result<std::vector<DecodeSpeed>> bench_decode(const DecodeBenchOptions& options);

}  // namespace plexrl::model
