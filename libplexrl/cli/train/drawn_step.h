// SPDX-License-Identifier: Apache-2.0
// DrawnStep: the rollout of a policy gradient step, ready to be trained on, and how it travels in a
// checkpoint: what was drawn on a version that has been replaced cannot be drawn again. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cli/train/dynamic_sampling.h"
#include "cli/train/op_meter.h"
#include "cli/train/train_options.h"

namespace plexrl::cli {

struct DrawnStep {
  std::uint64_t version = 0;      // that was sampled
  std::uint64_t policy_step = 0;  // steps that had been trained when it was published
  StepSamples samples;
  double tool_s = 0.0;
  OpTimes times;
};

// Every bit of the log-probabilities and rewards is kept.
[[nodiscard]] nlohmann::json to_json(const DrawnStep& drawn);
// CORRUPT names what is missing, of another type or does not fit together.
[[nodiscard]] Result<DrawnStep> drawn_from_json(const nlohmann::json& document);
// CORRUPT: not what a run of these options draws for its step `step`.
[[nodiscard]] Status check_drawn(const DrawnStep& drawn, const TrainOptions& options,
                                 std::uint64_t step);

}  // namespace plexrl::cli
