// SPDX-License-Identifier: Apache-2.0
// What the policy gradient algorithms of --algo differ in: advantages and loss. A penalty on
// the KL divergence is an option of its own (kl_penalty.h).
//
//   grpo         Shao et al., DeepSeekMath, arXiv 2402.03300, section 4.1: normalised within the
//                samples of one prompt; clipped ratio
//   rloo         Ahmadian et al., arXiv 2402.14740: less the mean of the prompt's other samples;
//                ratio without a clip
//   dapo         Yu et al., arXiv 2503.14476: grpo's advantages, clipped wider above; the options
//                of objective.h make the rest of it
//   reinforce++  Hu, arXiv 2501.03262: normalised over all samples of the step; clipped ratio
//
// Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cli/train/random.h"
#include "cli/train/service.h"

namespace plexrl::cli {

enum class Algorithm : std::uint8_t { kGrpo, kDapo, kRloo, kReinforcePlusPlus };
// The names of --algo, in the order of the enum.
inline constexpr const char* kAlgorithmNames[] = {"grpo", "dapo", "rloo", "reinforce++"};
[[nodiscard]] std::optional<Algorithm> algorithm_of(std::string_view name);
[[nodiscard]] Loss loss_of(Algorithm algorithm);

// Of the ratio, when neither --algo nor an option says otherwise.
inline constexpr double kClipLow = 0.8;
inline constexpr double kClipHigh = 1.2;

// One for each reward; the samples of one prompt are `group` consecutive ones. "Normalised" is
// (r - mean) / (std + 1e-4) with the population's std. With one sample rloo has no others: 0.
// rewards.size() is a multiple of group.
[[nodiscard]] std::vector<double> advantages_of(Algorithm algorithm,
                                                std::span<const double> rewards,
                                                std::uint32_t group);

// A datum of one sampled sequence: prompt and answer shifted, advantage on positions of tokens that
// the model wrote.
[[nodiscard]] Datum ppo_datum(const Tokens& prompt, const Sequence& sequence, float advantage);

// Has it a position that adds to the loss?
[[nodiscard]] bool counts(const Datum& datum);

// Row numbers 0..rows-1 in random order, cut into `count` parts whose sizes differ by at most one.
// Depends on (seed, step) only. 1 <= count <= rows.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> minibatches(std::uint32_t rows,
                                                                  std::uint32_t count,
                                                                  std::uint64_t seed,
                                                                  std::uint64_t step);

// Linear warm-up: update u (from 0) of `warmup` gets (u + 1) / warmup of the rate, later ones all.
[[nodiscard]] double warmed_up(double learning_rate, std::uint64_t update, std::uint32_t warmup);

}  // namespace plexrl::cli
