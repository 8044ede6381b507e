// SPDX-License-Identifier: Apache-2.0
// TrainLog: what a run reports while it goes: one JSON object per line into a file, and a progress
// line on stderr. One thread.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/result.h"
#include "cli/train/event_file.h"
#include "cli/train/op_meter.h"
#include "cli/train/training_stream.h"

namespace plexrl::cli {

// A GRPO step. Times in seconds; wall = busy + wait + tool + env + the controller's own work. With
// --max-staleness the rollout of a step, whose times are here, runs during the step before it, so
// that the sum may be more than wall.
struct StepRecord {
  std::uint64_t step = 0;  // from 1
  std::uint64_t steps = 0;
  std::uint64_t version = 0;    // that was sampled
  std::uint64_t staleness = 0;  // steps that were trained between that version and this step
  double reward = 0.0;
  double stopped_fraction = 0.0;
  double answer_tokens = 0.0;   // mean
  double length_penalty = 0.0;  // mean, of what is trained on; `reward` is without it
  std::uint64_t groups = 0;     // that were drawn, in all rounds of dynamic sampling
  std::uint64_t groups_without_signal = 0;
  std::uint64_t resample_rounds = 0;
  std::uint64_t new_tokens = 0;
  double wall_s = 0.0;
  double tool_s = 0.0;  // simulated
  double env_s = 0.0;   // waiting for the workers of --env-cmd
  std::uint64_t failed_episodes = 0;
  OpTimes times;
  double learning_rate = 0.0;
  double loss = 0.0;
  double grad_norm = 0.0;
  std::optional<TokenMeans> means;
  std::optional<double> kl;  // from the base, nats per token; when it is measured
};

// Above this drop of the sampled tokens' log-probability in one step runs became unstable or
// collapsed (measured on a 0.6M model, 11 runs: works <= 0.15, unstable at 0.20, collapsed from
// 0.38).
constexpr double kLogprobDropWarning = 0.2;

[[nodiscard]] nlohmann::json to_json(const StepRecord& record);
[[nodiscard]] std::string progress_line(const StepRecord& record);

class TrainLog {
 public:
  // An empty path: progress only. `append` keeps what an earlier process wrote.
  [[nodiscard]] static Result<TrainLog> open(const std::string& path, bool append);

  // Every number of a line also goes there, as PHASE/NAME: grpo/reward, evaluation/greedy.
  void also_to(EventFile events) { events_ = std::move(events); }

  [[nodiscard]] Status step(const StepRecord& record);
  // Any other line; `document` has a "phase".
  [[nodiscard]] Status write(const nlohmann::json& document);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[nodiscard]] Status write_events(const nlohmann::json& document);

  std::unique_ptr<std::FILE, Close> file_;
  std::optional<EventFile> events_;
};

}  // namespace plexrl::cli
