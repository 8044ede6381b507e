// SPDX-License-Identifier: Apache-2.0
// --env-cmd: problems are episodes of worker processes (doc/environments.md), in as many turns as
// they want. EpisodeRollout runs them; nothing can be drawn or scored without the model's part.
#pragma once

#include <nlohmann/json.hpp>

#include "cli/train/env_pool.h"
#include "cli/train/environment.h"

namespace plexrl::cli {

// What a worker says to a reset or a step.
struct EnvReply {
  std::string observation;
  std::vector<Message> messages;  // in place of an observation
  double reward = 0.0;
  bool done = false;
};
// PROTOCOL: something is missing, of another type, or no finite reward.
[[nodiscard]] Result<EnvReply> read_reset(const nlohmann::json& reply);
[[nodiscard]] Result<EnvReply> read_step(const nlohmann::json& reply);
[[nodiscard]] nlohmann::json reset_request(std::uint64_t seed, bool held_out);
[[nodiscard]] nlohmann::json step_request(const std::string& action, bool stopped);

class CommandEnvironment final : public Environment {
 public:
  static constexpr std::uint32_t kAnswerTokens = 256;

  // Starts a worker, so that a command that cannot work is known at once.
  [[nodiscard]] static Result<std::unique_ptr<Environment>> open(const TrainOptions& options);
  explicit CommandEnvironment(const TrainOptions& options);

  [[nodiscard]] std::uint32_t max_answer_chars() const override { return kAnswerTokens; }
  [[nodiscard]] const std::string& stop_text() const override { return stop_; }
  [[nodiscard]] EnvPool* workers() override { return &pool_; }
  // Never called.
  [[nodiscard]] Problem training_problem(ProblemSource& source) override;
  [[nodiscard]] Problem held_out_problem(Random& random) override;
  [[nodiscard]] Result<std::vector<double>> score(const std::vector<Attempt>& attempts) override;

 private:
  std::string stop_;
  EnvPool pool_;
};

}  // namespace plexrl::cli
