// SPDX-License-Identifier: Apache-2.0
// A Service without a model: its "weights" are a hash over all training ops in order, so two runs
// agree in the hash exactly when they applied the same ops; its answers to `sort` prompts are right
// with a probability that grows with every optimizer step. The state outlives the controller, like
// a node's.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/train/random.h"
#include "cli/train/service.h"

namespace plexrl::cli {

template <class T>
class ReadyFuture final : public Future<T> {
 public:
  explicit ReadyFuture(T value) : value_(std::move(value)) {}
  Result<Timed<T>> wait() override {
    return Timed<T>{std::move(value_), {.queued_ns = 5'000, .run_ns = 1'000'000}};
  }

 private:
  T value_;
};

class FakeService : public Service {
 public:
  struct Weights {
    std::uint64_t hash = 1;
    std::uint64_t pending = 0;  // gradients
    std::uint64_t step = 0;
  };

  std::uint64_t model_id = 7;
  std::string train_mode = "full";
  std::uint64_t next_seq = 1;
  std::uint64_t latest_version = 0;
  double logprob_drop = 0.05;
  std::uint64_t max_next_seq = UINT64_MAX;  // accepts no training op from this number on
  bool lose_next_op = false;
  std::optional<std::uint64_t> right_percent;  // of the answers; by default more with every step
  std::string tokenizer = R"({"type":"char","alphabet":"0123456789+=>;ab?","vocab_size":32})";
  Weights weights;
  std::map<std::uint64_t, Weights> versions;
  std::vector<LossRequest> losses;
  std::vector<double> entropies;         // of the first forward_backward ops
  std::vector<double> positions;         // of each policy gradient op, whose advantage is not 0
  std::vector<std::size_t> policy_rows;  // data of each policy gradient op
  std::vector<GenerateRequest> requests;
  std::vector<std::size_t> reference_rows;  // of each logprobs op
  double grad_norm = 1.0;

  Result<ModelFacts> model() override {
    ModelFacts facts;
    facts.id = model_id;
    facts.base = "demo";
    facts.train_mode = train_mode;
    facts.max_positions = 64;
    facts.step = weights.step;
    facts.next_seq = next_seq;
    facts.latest_version = latest_version;
    facts.tokenizer = tokenizer;
    return facts;
  }

  Result<FuturePtr<std::vector<Sequence>>> generate(const GenerateRequest& request) override {
    if (!versions.contains(request.version)) return error(Code::NOT_FOUND, "version");
    const Weights& sampled = versions.at(request.version);
    requests.push_back(request);
    std::vector<Sequence> rows;
    for (std::size_t p = 0; p < request.prompts.size(); ++p)
      for (std::uint32_t s = 0; s < request.samples_per_prompt; ++s)
        rows.push_back(answer(request, sampled, p, rows.size()));
    return FuturePtr<std::vector<Sequence>>(
        std::make_unique<ReadyFuture<std::vector<Sequence>>>(rows));
  }

  // Of version 0 only, a tenth per value of the token.
  Result<FuturePtr<std::vector<std::vector<float>>>> logprobs(
      std::uint64_t version, const std::vector<Tokens>& sequences) override {
    if (version != 0) return error(Code::NOT_FOUND, "version");
    std::vector<std::vector<float>> rows;
    for (const Tokens& sequence : sequences) {
      rows.emplace_back();
      for (std::size_t i = 1; i < sequence.size(); ++i)
        rows.back().push_back(-static_cast<float>(sequence[i]) / 10.0F);
    }
    reference_rows.push_back(rows.size());
    return FuturePtr<std::vector<std::vector<float>>>(
        std::make_unique<ReadyFuture<std::vector<std::vector<float>>>>(std::move(rows)));
  }

  Result<FuturePtr<LossResult>> forward_backward(const LossRequest& loss,
                                                 const std::vector<Datum>& data) override {
    PLEXRL_TRY(accept());
    losses.push_back(loss);
    if (loss.kind != Loss::kCrossEntropy) {
      positions.push_back(0.0);
      policy_rows.push_back(data.size());
    }
    for (const Datum& datum : data) {
      for (const float advantage : datum.advantages) positions.back() += advantage != 0.0F ? 1 : 0;
      fold(weights.pending, datum.tokens);
      fold(weights.pending, datum.targets);
      fold(weights.pending, loss.kind == Loss::kCrossEntropy ? datum.weights : datum.advantages);
      fold(weights.pending, datum.logprobs);
    }
    LossResult result;
    result.logprob_drop_mean = logprob_drop;
    if (losses.size() <= entropies.size()) result.entropy_mean = entropies[losses.size() - 1];
    return FuturePtr<LossResult>(std::make_unique<ReadyFuture<LossResult>>(result));
  }

  Result<FuturePtr<OptimResult>> optim_step(const OptimRequest& request) override {
    PLEXRL_TRY(accept());
    fold(weights.hash, std::vector<double>{request.learning_rate, request.beta2});
    fold(weights.hash, std::vector<std::uint64_t>{weights.pending});
    weights.pending = 0;
    ++weights.step;
    return FuturePtr<OptimResult>(
        std::make_unique<ReadyFuture<OptimResult>>(OptimResult{weights.step, grad_norm}));
  }

  Result<FuturePtr<SaveResult>> publish() override {
    const std::uint64_t number = next_seq;
    PLEXRL_TRY(accept());
    latest_version = number;
    versions = {{number, weights}};  // only the latest is kept, as in the service
    return saved({number, weights.step, 0, ""});
  }

  Result<FuturePtr<SaveResult>> save_fd(int fd, SaveFormat) override {
    PLEXRL_TRY(accept());
    if (::pwrite(fd, &weights, sizeof weights, 0) != sizeof weights)
      return error(Code::IO, "pwrite");
    return saved({0, weights.step, sizeof weights, sha()});
  }

  Result<FuturePtr<SaveResult>> load_fd(int fd) override {
    PLEXRL_TRY(accept());
    if (::pread(fd, &weights, sizeof weights, 0) != sizeof weights)
      return error(Code::CORRUPT, "short");
    return saved({0, weights.step, sizeof weights, sha()});
  }

  [[nodiscard]] std::string sha() const { return std::to_string(weights.hash); }

 private:
  Status accept() {
    if (lose_next_op) {
      lose_next_op = false;
      weights = Weights{};
      ++next_seq;
      return error(Code::LOST, "the state is gone");
    }
    if (next_seq >= max_next_seq) return error(Code::UNAVAILABLE, "cut");
    ++next_seq;
    return {};
  }

  static Result<FuturePtr<SaveResult>> saved(SaveResult result) {
    return FuturePtr<SaveResult>(std::make_unique<ReadyFuture<SaveResult>>(std::move(result)));
  }

  template <class T>
  static void fold(std::uint64_t& hash, const std::vector<T>& values) {
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                 values.size() * sizeof(T));
    hash = hash_text(std::to_string(hash) + std::string(bytes));
  }

  Sequence answer(const GenerateRequest& request, const Weights& sampled, std::size_t prompt,
                  std::size_t row) const {
    Sequence sequence;
    const Tokens& tokens = request.prompts[prompt];
    sequence.tokens.assign(tokens.begin(), tokens.end() - 1);
    std::sort(sequence.tokens.begin(), sequence.tokens.end());
    sequence.tokens.push_back(request.stop_tokens.front());
    sequence.stopped = true;
    Random random(request.seed ^ sampled.hash, Stream::kRolloutSeed, row);
    const std::uint64_t chance =
        right_percent.value_or(std::min<std::uint64_t>(40 + 2 * sampled.step, 95));
    if (random.below(100) >= chance) sequence.tokens.front() = 9;
    for (std::size_t i = 0; i < sequence.tokens.size(); ++i)
      sequence.logprobs.push_back(-static_cast<float>(random.below(100)) / 100.0F);
    return sequence;
  }
};

}  // namespace plexrl::cli
