// SPDX-License-Identifier: Apache-2.0
// Rollout: draws problems, lets the model answer them, scores the answers. One thread.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "cli/train/environment.h"
#include "cli/train/op_meter.h"
#include "cli/train/prompt_format.h"
#include "cli/train/service.h"

namespace plexrl::cli {

// Row of sample s of prompt p is p * samples + s.
struct RolloutBatch {
  std::vector<Tokens> prompts;
  std::vector<Sequence> sequences;
  std::vector<double> rewards;
  std::uint64_t new_tokens = 0;
  std::uint64_t stopped = 0;  // sequences that ended themselves
  std::uint64_t failed = 0;   // episodes that their environment lost
  double env_s = 0.0;         // spent waiting for environments
  [[nodiscard]] double mean_reward() const;
};

// Moves the prompt and the answers of a group to the end of `to`; its counts stay where they are.
void move_group(RolloutBatch& from, std::uint32_t samples, std::size_t group, RolloutBatch& to);

// What bounds an answer.
struct AnswerLimits {
  Tokens stops;  // TextTokenizer::stop_tokens
  std::uint32_t max_new_tokens = 1;
  std::uint32_t max_positions = 0;  // of the model, prompt included
};

// PROTOCOL: not a row that a generation has.
[[nodiscard]] Status check_sequence(const Sequence& sequence, std::size_t row);

class Rollout {
 public:
  Rollout(Service& service, OpMeter& meter, Environment& environment,
          const TextTokenizer& tokenizer, const PromptFormat& format, const TrainOptions& options,
          AnswerLimits limits);

  // `call` is called once, from within the next rollout, when that first has the model's answers or
  // begins to wait for its environment: the device is free then.
  void when_device_free(std::function<void()> call) { when_device_free_ = std::move(call); }
  // Calls it now, unless it has been.
  void announce();

  // Prompts and samples of training step `step`, answered by `version`. Depends on (seed, step,
  // version) only.
  [[nodiscard]] Result<RolloutBatch> train(std::uint64_t step, std::uint64_t version);
  // `prompts` other problems for the same step, of which each round draws its own. 1 <= round <=
  // kMaxResampleRounds.
  [[nodiscard]] Result<RolloutBatch> resample(std::uint64_t step, std::uint64_t round,
                                              std::uint32_t prompts, std::uint64_t version);
  // Held-out problems, always the same ones, one answer each. temperature 0 is greedy.
  [[nodiscard]] Result<RolloutBatch> held_out(std::uint64_t step, std::uint64_t version,
                                              double temperature);

 private:
  [[nodiscard]] Result<RolloutBatch> draw(ProblemSource source, Random seed, std::uint32_t prompts,
                                          std::uint64_t version);
  [[nodiscard]] Result<RolloutBatch> run(const std::vector<Problem>& problems,
                                         GenerateRequest request);
  [[nodiscard]] Result<RolloutBatch> episodes(const std::vector<std::uint64_t>& tasks,
                                              bool held_out, const GenerateRequest& request,
                                              Random seeds);
  [[nodiscard]] Status check_length(const Problem& problem, const Tokens& prompt) const;
  [[nodiscard]] Status score(const std::vector<Problem>& problems, std::uint32_t samples,
                             RolloutBatch& batch);

  Service& service_;
  OpMeter& meter_;
  Environment& environment_;
  const TextTokenizer& tokenizer_;
  const PromptFormat& format_;
  const TrainOptions& options_;
  AnswerLimits limits_;
  std::function<void()> when_device_free_;
};

}  // namespace plexrl::cli
