// SPDX-License-Identifier: Apache-2.0
// GRPO (Shao et al., DeepSeekMath, arXiv 2402.03300, section 4.1): advantages normalised within the
// samples of one prompt, the clipped ratio loss, no KL term. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "cli/train/random.h"
#include "cli/train/service.h"

namespace plexrl::cli {

// (r - mean) / (std + 1e-4) within each group of `group` consecutive rewards; population std.
// rewards.size() is a multiple of group.
[[nodiscard]] std::vector<double> group_advantages(std::span<const double> rewards,
                                                   std::uint32_t group);

// A datum of one sampled sequence for ppo: prompt and answer shifted, advantage on answer
// positions.
[[nodiscard]] Datum ppo_datum(const Tokens& prompt, const Sequence& sequence, float advantage);

// Row numbers 0..rows-1 in random order, cut into `count` parts whose sizes differ by at most one.
// Depends on (seed, step) only. 1 <= count <= rows.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> minibatches(std::uint32_t rows,
                                                                  std::uint32_t count,
                                                                  std::uint64_t seed,
                                                                  std::uint64_t step);

// Linear warm-up: update u (from 0) of `warmup` gets (u + 1) / warmup of the rate, later ones all.
[[nodiscard]] double warmed_up(double learning_rate, std::uint64_t update, std::uint32_t warmup);

}  // namespace plexrl::cli
