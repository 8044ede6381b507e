// SPDX-License-Identifier: Apache-2.0
// Controller of an RLVR run: supervised warm start, then GRPO, held-out evaluation, checkpoints.
// Everything is drawn from (seed, step), so the same options give the same ops, alone or beside
// others, in one piece or continued. Waits block; the controller itself computes next to nothing.
//
// With --max-staleness the rollout of step k + 1 runs on the version of step k while step k is
// trained. Step k's version is the newest until that rollout is done, so nothing waits for it and
// nothing asks for a version that was replaced. A checkpoint and the journal hold the rollout that
// is done but not trained on.
//
// One thread; run() has a second one for the training of a step beside a rollout.
#pragma once

#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/train/checkpoint.h"
#include "cli/train/environment.h"
#include "cli/train/rollout.h"
#include "cli/train/service.h"
#include "cli/train/train_log.h"
#include "cli/train/training_stream.h"

namespace plexrl::cli {

class Controller {
 public:
  // All references outlive the controller. `stop`: set from a signal handler; the run then ends
  // after the step in progress.
  Controller(TrainOptions options, Service& service, Environment& environment, TrainLog& log,
             const Clock& clock, const std::atomic<bool>& stop);

  // Runs to the end and returns the summary (plexrl-train(1), FILES). CANCELLED when stopped; a
  // checkpoint, when wanted, is written before.
  [[nodiscard]] Result<nlohmann::json> run();

 private:
  [[nodiscard]] Status attach();
  [[nodiscard]] Status choose_defaults(const ModelFacts& facts);
  [[nodiscard]] Status choose_format();
  [[nodiscard]] Status read_problems(const ModelFacts& facts);
  [[nodiscard]] Status position(const ModelFacts& facts);
  [[nodiscard]] Status restore();
  void start_stream(std::uint64_t first_seq, std::uint64_t accepted_end);

  [[nodiscard]] bool done() const;
  [[nodiscard]] Status advance();
  [[nodiscard]] Status sft_step();
  [[nodiscard]] Status judge_warm_start();
  [[nodiscard]] Status grpo_step();
  [[nodiscard]] Result<DrawnStep> draw(std::uint64_t step, std::uint64_t version);
  // The rollout of the step in progress, and what it says of the record. Takes the length penalty
  // off its rewards.
  [[nodiscard]] Result<RolloutBatch> take_rollout(std::uint64_t version, StepRecord& record);
  [[nodiscard]] Status train_on(const RolloutBatch& batch, StepRecord& record);
  // Beside it, on `version`, the rollout of the next step.
  [[nodiscard]] Status train_and_draw(const RolloutBatch& batch, std::uint64_t version,
                                      StepRecord& record);
  void account(const StepRecord& record);
  [[nodiscard]] double wait_for_tools(std::uint64_t step) const;  // seconds

  // {"held_out_sampled", "held_out_greedy", "prompts"} of a version.
  [[nodiscard]] Result<nlohmann::json> evaluate(std::uint64_t version);
  [[nodiscard]] Status write_checkpoint();
  [[nodiscard]] Status write_checkpoint_if_due();
  [[nodiscard]] Status stopped();
  [[nodiscard]] Result<nlohmann::json> finish();
  [[nodiscard]] Result<SaveResult> save_result();
  [[nodiscard]] nlohmann::json summary(const nlohmann::json& held_out,
                                       const SaveResult* saved) const;

  TrainOptions options_;
  Service& service_;
  Environment& environment_;
  TrainLog& log_;
  const Clock& clock_;
  const std::atomic<bool>& stop_;
  OpMeter meter_;          // of the training stream
  OpMeter rollout_meter_;  // of rollouts and evaluations
  TrainState state_;
  std::unique_ptr<TextTokenizer> tokenizer_;
  std::optional<PromptFormat> format_;
  AnswerLimits limits_;
  std::optional<Rollout> rollout_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<TrainingStream> stream_;
  std::uint64_t model_id_ = 0;
  std::uint64_t last_checkpoint_ = 0;  // steps done when it was written
  bool trained_here_ = false;          // this process has done a step of the policy gradient
  bool gradient_seen_ = false;         // that was not 0
};

}  // namespace plexrl::cli
