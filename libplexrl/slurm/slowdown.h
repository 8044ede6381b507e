// SPDX-License-Identifier: Apache-2.0
// Slowdown of a job from how busy it is. A job that keeps its device group busy for a part b of its
// time when alone, and of which a crowded group serves a share s, takes (1 - b) + b / s as long:
// its idle time stays as it is. That is the worst case: others may leave it more. Integers, so that
// every controller and node computes alike; rounded against the job's disadvantage.
#pragma once

#include <algorithm>
#include <cstdint>

namespace plexrl::slurm {

// The least share, in percent, that keeps the slowdown at `slowdown_permille` (at least 1000) or
// below.
[[nodiscard]] constexpr std::uint32_t share_for_slowdown(std::uint32_t busy_percent,
                                                         std::uint32_t slowdown_permille) {
  const std::uint64_t busy = std::clamp<std::uint32_t>(busy_percent, 1, 100);
  const std::uint64_t below = std::max<std::uint32_t>(slowdown_permille, 1000) - 1000 + 10 * busy;
  return static_cast<std::uint32_t>((1000 * busy + below - 1) / below);
}

}  // namespace plexrl::slurm
