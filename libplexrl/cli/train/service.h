// SPDX-License-Identifier: Apache-2.0
// Service: what the training controller needs of the node service, for one model. PlexrlService
// (plexrl_service.h) is the real one; tests have a fake. One thread for the training ops and
// model(), and another may call generate() meanwhile; logprobs() from either.
//
// Training ops (forward_backward, optim_step, publish, save_fd, load_fd) run in the order of their
// submission, exactly once, also when this process is started again: ModelFacts::next_seq tells how
// many were accepted so far. The version that a publish makes has the sequence number of that
// publish (doc/service.md), which is how a restarted controller knows it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/train/tokenizer.h"
#include "cli/train/train_options.h"

namespace plexrl::cli {

struct ModelFacts {
  std::uint64_t id = 0;
  std::string base;
  std::string train_mode;
  std::uint32_t lora_rank = 0;
  std::uint32_t max_positions = 0;
  std::uint64_t step = 0;
  std::uint64_t next_seq = 1;
  std::uint64_t latest_version = 0;
  std::string tokenizer;  // JSON
};

// How long an op did what; nanoseconds.
struct OpTiming {
  std::uint64_t queued_ns = 0;
  std::uint64_t other_tenants_ns = 0;
  std::uint64_t switch_ns = 0;
  std::uint64_t run_ns = 0;
};

struct GenerateRequest {
  std::uint64_t version = 0;
  std::vector<Tokens> prompts;
  std::uint32_t samples_per_prompt = 1;
  std::uint32_t max_new_tokens = 1;
  double temperature = 1.0;
  std::uint64_t seed = 0;
  Tokens stop_tokens;
};

struct Sequence {
  Tokens tokens;  // new ones; the stop token is the last when `stopped`
  std::vector<float> logprobs;
  bool stopped = false;
  // By token: the model wrote it, not its environment, which is not trained on; empty: all.
  std::vector<bool> own = {};
  [[nodiscard]] std::size_t own_tokens() const {
    if (own.empty()) return tokens.size();
    return static_cast<std::size_t>(std::count(own.begin(), own.end(), true));
  }
};

enum class Loss : std::uint8_t { kCrossEntropy, kImportanceSampling, kPpo, kCispo, kDro };

struct LossRequest {
  LossRequest(Loss kind_in) : kind(kind_in) {}  // NOLINT: a loss alone is a request
  Loss kind;
  double clip_low = 0.8;  // of the ratio, ppo and cispo
  double clip_high = 1.2;
  double beta = 0.01;  // dro
};

// Position i of tokens predicts targets[i]; all used arrays have the length of tokens. Cross
// entropy reads weights, the others read logprobs and advantages.
struct Datum {
  Tokens tokens;
  Tokens targets;
  std::vector<float> weights;
  std::vector<float> logprobs;
  std::vector<float> advantages;
};

struct LossResult {
  double loss_sum = 0.0;
  double ratio_mean = 1.0;
  double clip_fraction = 0.0;
  double logprob_drop_mean = 0.0;
  double entropy_mean = 0.0;  // nats per token
};

struct OptimRequest {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double grad_clip_norm = 1.0;
};

struct OptimResult {
  std::uint64_t step = 0;
  double grad_norm = 0.0;
};

struct SaveResult {
  std::uint64_t version = 0;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  std::string sha256;
};

template <class T>
struct Timed {
  T value;
  OpTiming timing;
};

// The result of a submitted op. wait() blocks until it ended and is called once.
template <class T>
class Future {
 public:
  virtual ~Future() = default;
  [[nodiscard]] virtual Result<Timed<T>> wait() = 0;
};
template <class T>
using FuturePtr = std::unique_ptr<Future<T>>;

class Service {
 public:
  virtual ~Service() = default;
  [[nodiscard]] virtual Result<ModelFacts> model() = 0;
  [[nodiscard]] virtual Result<FuturePtr<std::vector<Sequence>>> generate(
      const GenerateRequest& request) = 0;
  // Under `version`, of each sequence's tokens from the second on. 0: the base, which for a
  // full-parameter model is there when the options have a KL coefficient.
  [[nodiscard]] virtual Result<FuturePtr<std::vector<std::vector<float>>>> logprobs(
      std::uint64_t version, const std::vector<Tokens>& sequences) = 0;
  [[nodiscard]] virtual Result<FuturePtr<LossResult>> forward_backward(
      const LossRequest& loss, const std::vector<Datum>& data) = 0;
  [[nodiscard]] virtual Result<FuturePtr<OptimResult>> optim_step(const OptimRequest& request) = 0;
  [[nodiscard]] virtual Result<FuturePtr<SaveResult>> publish() = 0;
  // The fd stays the caller's.
  [[nodiscard]] virtual Result<FuturePtr<SaveResult>> save_fd(int fd, SaveFormat format) = 0;
  [[nodiscard]] virtual Result<FuturePtr<SaveResult>> load_fd(int fd) = 0;
};

}  // namespace plexrl::cli
