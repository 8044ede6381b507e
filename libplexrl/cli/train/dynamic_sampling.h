// SPDX-License-Identifier: Apache-2.0
// Dynamic sampling (DAPO, Yu et al., arXiv 2503.14476, section 3.2): a group whose samples all got
// the same reward has advantages of 0 and teaches nothing, so other problems are drawn in its
// place. One thread.
#pragma once

#include "cli/train/rollout.h"

namespace plexrl::cli {

// The rollouts of one step. The counts are over all that was drawn, so that rewards compare between
// runs with and without dynamic sampling.
struct StepSamples {
  RolloutBatch batch;  // to train on
  std::uint64_t groups = 0;
  std::uint64_t groups_without_signal = 0;
  std::uint64_t rounds = 0;  // beyond the first
  std::uint64_t answers = 0;
  std::uint64_t stopped = 0;  // answers that ended themselves
  std::uint64_t new_tokens = 0;
  std::uint64_t failed = 0;  // episodes that their environment lost
  double env_s = 0.0;        // spent waiting for environments
  double reward_sum = 0.0;
};

// Draws options.prompts groups, and up to options.resample_rounds times more in place of those
// without a signal. What has none after that is left out, as long as the step has an answer for
// each of options.minibatches. Depends on (seed, step, version) only.
[[nodiscard]] Result<StepSamples> sample_step(Rollout& rollout, const TrainOptions& options,
                                              std::uint64_t step, std::uint64_t version);

// Whether the rewards of group `group` differ; `samples` rewards make a group.
[[nodiscard]] bool has_signal(const RolloutBatch& batch, std::uint32_t samples, std::size_t group);

}  // namespace plexrl::cli
