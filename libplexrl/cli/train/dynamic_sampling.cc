// SPDX-License-Identifier: Apache-2.0
#include "cli/train/dynamic_sampling.h"

#include <algorithm>

namespace plexrl::cli {
namespace {

void count(const RolloutBatch& drawn, std::uint32_t samples, StepSamples& result) {
  result.groups += drawn.prompts.size();
  result.answers += drawn.sequences.size();
  result.stopped += drawn.stopped;
  result.new_tokens += drawn.new_tokens;
  result.failed += drawn.failed;
  result.env_s += drawn.env_s;
  for (const double reward : drawn.rewards) result.reward_sum += reward;
  for (std::size_t group = 0; group < drawn.prompts.size(); ++group)
    result.groups_without_signal += has_signal(drawn, samples, group) ? 0 : 1;
}

}  // namespace

bool has_signal(const RolloutBatch& batch, std::uint32_t samples, std::size_t group) {
  const auto first = batch.rewards.begin() + static_cast<std::ptrdiff_t>(group * samples);
  return std::any_of(first, first + samples, [&](double reward) { return reward != *first; });
}

Result<StepSamples> sample_step(Rollout& rollout, const TrainOptions& options, std::uint64_t step,
                                std::uint64_t version) {
  StepSamples result;
  const std::uint32_t rounds = options.resample_rounds.value_or(0);
  PLEXRL_ASSIGN(RolloutBatch drawn, rollout.train(step, version));
  count(drawn, options.samples, result);
  if (rounds == 0) {
    result.batch = std::move(drawn);
    return result;
  }
  RolloutBatch dull;
  while (true) {
    for (std::size_t group = 0; group < drawn.prompts.size(); ++group)
      move_group(drawn, options.samples, group,
                 has_signal(drawn, options.samples, group) ? result.batch : dull);
    const std::size_t kept = result.batch.prompts.size();
    if (kept == options.prompts || result.rounds == rounds) break;
    ++result.rounds;
    PLEXRL_ASSIGN(drawn,
                  rollout.resample(step, result.rounds,
                                   static_cast<std::uint32_t>(options.prompts - kept), version));
    count(drawn, options.samples, result);
  }
  // An optimizer step needs a datum, also of a step in which nothing has a signal.
  for (std::size_t group = 0; result.batch.sequences.size() < options.minibatches; ++group)
    move_group(dull, options.samples, group, result.batch);
  return result;
}

}  // namespace plexrl::cli
