// SPDX-License-Identifier: Apache-2.0
// EpisodeRollout: lets the model act in episodes of an EnvPool, in rounds: all seated episodes get
// the environment's word, then the model answers them together. An episode's tokens only grow: what
// the model is asked next is, token for token, what it was asked before, what it said, and what
// the environment said, which is not trained on. One thread; for one batch.
//
// An episode whose worker fails in a step is dropped: none of its tokens is trained on, and its
// reward is the mean of its group's others (of all, when none is left), so that
// their mean stays. A reset is tried again, by a fresh worker: the model had no part in it.
#pragma once

#include <deque>
#include <vector>

#include "cli/train/env_pool.h"
#include "cli/train/rollout.h"

namespace plexrl::cli {

struct EnvReply;  // command_environment.h

class EpisodeRollout {
 public:
  static constexpr std::uint32_t kMaxResets = 3;

  EpisodeRollout(Service& service, OpMeter& meter, EnvPool& pool, const TextTokenizer& tokenizer,
                 const PromptFormat& format, const TrainOptions& options,
                 const AnswerLimits& limits)
      : service_(service),
        meter_(meter),
        pool_(pool),
        tokenizer_(tokenizer),
        format_(format),
        options_(options),
        limits_(limits) {}

  // request.samples_per_prompt episodes for each of `seeds`. `random` gives each round its seed.
  [[nodiscard]] Result<RolloutBatch> run(const std::vector<std::uint64_t>& seeds, bool held_out,
                                         const GenerateRequest& request, Random random);

 private:
  struct Episode {
    std::size_t prompt = 0;  // index
    std::uint32_t resets = 0;
    std::uint32_t turns = 0;  // answers of the model
    Tokens context;           // all that the model was asked and said
    Sequence said;            // what follows the first prompt
    std::string action;       // the last answer
    double reward = 0.0;
    bool over = false;
    bool failed = false;
  };
  void seat_waiting();
  [[nodiscard]] Status ask_workers(const std::vector<std::uint64_t>& seeds, bool held_out);
  [[nodiscard]] Status take(std::size_t place, const Result<nlohmann::json>& reply);
  [[nodiscard]] Status failed(std::size_t place, const Status& why);
  [[nodiscard]] Status begin(Episode& episode, const EnvReply& reply);
  [[nodiscard]] Status go_on(Episode& episode, const EnvReply& reply);
  [[nodiscard]] Status ask_model(GenerateRequest request);
  [[nodiscard]] Result<RolloutBatch> collect(std::uint32_t samples);

  Service& service_;
  OpMeter& meter_;
  EnvPool& pool_;
  const TextTokenizer& tokenizer_;
  const PromptFormat& format_;
  const TrainOptions& options_;
  const AnswerLimits& limits_;

  std::vector<Tokens> prompts_;
  std::vector<Episode> episodes_;
  std::deque<std::size_t> waiting_;
  std::vector<Episode*> seats_;  // by worker; nullptr: free
  Status first_failure_;
  double env_s_ = 0.0;
};

}  // namespace plexrl::cli
