// SPDX-License-Identifier: Apache-2.0
// Trainer: one model learns to sort digits on a LocalEngine: a supervised warm start, then GRPO, as
// `plexrl train` does it over the service. A step depends on (seed, step, the model's state) only.
// The model must be resident.
#pragma once

#include <vector>

#include "cli/train/environment.h"
#include "cli/train/service.h"
#include "cli/train/sort_environment.h"
#include "gpu/local_engine.h"

namespace plexrl::gpu {

struct TrainPlan {
  std::uint32_t sft_steps = 0, sft_batch = 256;
  double sft_rate = 3e-3;
  std::uint32_t steps = 0, prompts = 32, samples = 8, minibatches = 2;
  double rate = 2e-4;
  // Share of the answer's characters that are right, instead of 1 for a right answer: a signal for
  // models that know little.
  bool partial_reward = false;
};

class Trainer {
 public:
  // `engine` and `plan` must live longer.
  [[nodiscard]] static Result<Trainer> make(LocalEngine& engine, const TrainPlan& plan,
                                            std::uint64_t model, std::uint64_t seed);

  // Both end with a publish, so that a commit that follows has all of the next sampling to run
  // beside. Version step + 1 is what step `step` (from 0) samples.
  [[nodiscard]] Status warm_start();
  // Mean reward of step `step`.
  [[nodiscard]] Result<double> grpo_step(std::uint64_t step);
  [[nodiscard]] std::uint64_t model() const noexcept { return model_; }

 private:
  Trainer(LocalEngine& engine, const TrainPlan& plan, std::uint64_t model, std::uint64_t seed,
          cli::CharTokenizer tokenizer)
      : engine_(&engine),
        plan_(&plan),
        model_(model),
        seed_(seed),
        tokenizer_(std::move(tokenizer)) {}
  [[nodiscard]] Status publish(std::uint64_t version);
  [[nodiscard]] Result<wire::GenerateResultT> generate(const std::vector<cli::Problem>& problems,
                                                       std::uint64_t step);
  [[nodiscard]] Result<std::vector<double>> score(const std::vector<cli::Problem>& problems,
                                                  const wire::GenerateResultT& answers);
  [[nodiscard]] Status update(wire::LossKind loss, const std::vector<cli::Datum>& data,
                              double rate);

  LocalEngine* engine_;
  const TrainPlan* plan_;
  std::uint64_t model_;
  std::uint64_t seed_;
  cli::CharTokenizer tokenizer_;
  cli::SortEnvironment environment_;
};

}  // namespace plexrl::gpu
