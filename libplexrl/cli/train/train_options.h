// SPDX-License-Identifier: Apache-2.0
// What `plexrl train` was asked for. The defaults are the recipe of plexrl-train(1), section
// TRAINING.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plexrl::cli {

// Of --dynamic-sampling.
inline constexpr std::uint32_t kMaxResampleRounds = 63;

enum class SaveFormat : std::uint8_t { kCheckpoint, kWeights };

struct TrainOptions {
  // what to train
  std::string environment = "sort";  // sort, add, jsonl:FILE
  std::string model_name = "policy";
  bool requeued = false;   // the job was started again: what its model has learnt is this run's
  std::string base;        // empty: the grant's first
  std::string train_mode;  // empty: the grant's
  std::uint32_t lora_rank = 0;  // 0: the grant's
  std::uint64_t seed = 1;
  std::string env_command;        // of worker processes, in place of environment
  std::uint32_t env_workers = 8;  // episodes at a time
  double env_timeout_s = 60.0;    // of a worker's reply
  std::uint32_t max_turns = 8;    // answers of the model in an episode
  bool chat = false;              // prompts are messages of the model's chat template
  std::string system;             // with chat: the message before them; empty: none

  // policy gradient
  std::string algorithm = "grpo";  // see grpo.h
  std::uint32_t steps = 30;
  std::uint32_t prompts = 64;
  std::uint32_t samples = 8;  // per prompt: the group
  std::uint32_t minibatches = 2;
  double learning_rate = 0.0;  // 0: by train mode
  std::uint32_t warmup_updates = 0;
  double temperature = 1.0;
  double grad_clip_norm = 1.0;
  // What --algo decides when it is left out; see choose_objective.
  std::string loss;                // see objective.h
  std::optional<double> clip_low;  // of the ratio, for losses that clip
  std::optional<double> clip_high;
  std::optional<double> dro_beta;
  std::optional<std::uint32_t> resample_rounds;  // for groups without a signal
  std::optional<double> length_penalty;          // of the longest answer
  std::uint32_t overlong_buffer = 0;             // tokens; 0: all
  double kl_coefficient = 0.0;                   // 0: the divergence is not measured either
  std::uint32_t max_new_tokens = 0;              // 0: the environment's longest answer
  double tool_latency_s = 0.0;      // simulated waiting for tools, once per step: the mean
  double tool_latency_sd_s = 0.0;   // standard deviation
  std::uint32_t max_staleness = 0;  // steps a rollout's version may be behind; over 1 is as 1

  // supervised warm start
  std::uint32_t sft_steps = 0;
  double sft_target = 0.0;  // > 0: stop at this held-out reward, looked at every 25 steps
  std::uint32_t sft_batch = 256;
  double sft_learning_rate = 3e-3;
  std::uint32_t sft_warmup_updates = 30;

  // held-out evaluation
  std::uint32_t eval_every = 0;  // steps; 0: only at the end
  std::uint32_t eval_prompts = 256;

  // jsonl
  std::string verifier;  // command; empty: exact match
  double verifier_timeout_s = 10.0;
  std::uint32_t verifier_jobs = 1;
  std::string stop_text;  // one token that ends an answer; empty: the model's own

  // files
  std::string log;
  std::string tensorboard;  // directory
  std::string summary;
  std::string checkpoint;
  std::uint32_t checkpoint_every = 10;
  bool resume = false;
  std::string save;
  SaveFormat save_format = SaveFormat::kCheckpoint;
};

}  // namespace plexrl::cli
