// SPDX-License-Identifier: Apache-2.0
// TrainState: where a training run stands between two steps. Everything else that a step needs
// follows from the options, the seed and the service's model.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/train/drawn_step.h"
#include "cli/train/train_options.h"

namespace plexrl::cli {

struct TrainState {
  std::uint64_t sft_done = 0;
  bool sft_finished = false;
  std::uint64_t grpo_done = 0;
  std::uint64_t first_known_step = 0;  // rewards[i] belongs to step first_known_step + i
  std::vector<double> rewards;         // mean training reward of each step
  double busy_s = 0.0;                 // sums over the known GRPO steps
  double wall_s = 0.0;
  double wait_s = 0.0;
  double tool_s = 0.0;
  std::uint64_t new_tokens = 0;
  double max_logprob_drop = 0.0;
  std::optional<DrawnStep> drawn;  // of step grpo_done, when its rollout is done already
};

[[nodiscard]] nlohmann::json to_json(const TrainState& state);
// CORRUPT names the field that is missing or of another type.
[[nodiscard]] Result<TrainState> state_from_json(const nlohmann::json& document);

// The options that decide which ops a run issues. Two runs may continue each other only when they
// agree.
[[nodiscard]] nlohmann::json fingerprint(const TrainOptions& options);
// INVALID_ARGUMENT names the first option that differs. What `saved` lacks had its default, and
// what is no option of fingerprint() is then not compared.
[[nodiscard]] Status same_run(const nlohmann::json& saved, const nlohmann::json& now);

// Where a run stands and the number of the first op of its next step.
struct RunPosition {
  TrainState state;
  std::uint64_t first_seq = 1;
};

// The position of a run without a journal, from the service's next_seq alone: a step of the warm
// start has 2 training ops, a GRPO step 1 + 2 * minibatches. INVALID_ARGUMENT when that cannot be
// told (the warm start ends by a target, the rollouts run ahead) or when the model has had more ops
// than this run has.
[[nodiscard]] Result<RunPosition> locate(const TrainOptions& options, std::uint64_t next_seq);

}  // namespace plexrl::cli
