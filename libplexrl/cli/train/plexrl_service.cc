// SPDX-License-Identifier: Apache-2.0
#include "cli/train/plexrl_service.h"

#include <cstdlib>
#include <optional>

#include "plexrl/plexrl.hpp"

namespace plexrl::cli {
namespace {

// Calls `call` and turns what libplexrl throws into a Status.
template <class Call>
auto guarded(Call call) -> Result<decltype(call())> {
  try {
    return call();
  } catch (const plexrl::Error& failure) {
    // what() begins with the name of the code, which a Status has anyway.
    const std::string text = failure.what();
    const auto colon = text.find(": ");
    return Status(code_from_wire(failure.code()),
                  colon == text.npos ? text : text.substr(colon + 2));
  }
}

std::uint64_t ns(std::chrono::nanoseconds time) { return static_cast<std::uint64_t>(time.count()); }

void convert(std::vector<plexrl::Sequence> from, std::vector<Sequence>& to) {
  to.reserve(from.size());
  for (plexrl::Sequence& sequence : from)
    to.push_back({std::move(sequence.tokens), std::move(sequence.logprobs), sequence.stopped});
}
void convert(std::vector<std::vector<float>> from, std::vector<std::vector<float>>& to) {
  to = std::move(from);
}
void convert(const plexrl::TrainResult& from, LossResult& to) {
  to = {from.loss_sum, from.ratio_mean, from.clip_fraction, from.logprob_drop_mean,
        from.entropy_mean};
}
void convert(const plexrl::OptimResult& from, OptimResult& to) { to = {from.step, from.grad_norm}; }
void convert(const plexrl::SaveResult& from, SaveResult& to) {
  to = {from.version, from.step, from.bytes, from.sha256};
}

template <class From, class To>
class PlexrlFuture final : public Future<To> {
 public:
  explicit PlexrlFuture(plexrl::Future<From> future) : future_(std::move(future)) {}

  [[nodiscard]] Result<Timed<To>> wait() override {
    return guarded([this] {
      Timed<To> result;
      convert(future_.get(), result.value);
      const plexrl::Timing timing = future_.timing();
      result.timing = {ns(timing.queued), ns(timing.other_tenants), ns(timing.switching),
                       ns(timing.run)};
      return result;
    });
  }

 private:
  plexrl::Future<From> future_;
};

// Submits by `call`; the future converts the result when it is taken.
template <class From, class To, class Call>
Result<FuturePtr<To>> submit(Call call) {
  return guarded(
      [&]() -> FuturePtr<To> { return std::make_unique<PlexrlFuture<From, To>>(call()); });
}

plexrl::Datum to_library(const Datum& datum) {
  return {datum.tokens, datum.targets, datum.weights, datum.logprobs, datum.advantages};
}

plexrl_loss to_library(Loss loss) {
  switch (loss) {
    case Loss::kCrossEntropy:
      return PLEXRL_LOSS_CROSS_ENTROPY;
    case Loss::kImportanceSampling:
      return PLEXRL_LOSS_IMPORTANCE_SAMPLING;
    case Loss::kCispo:
      return PLEXRL_LOSS_CISPO;
    case Loss::kDro:
      return PLEXRL_LOSS_DRO;
    case Loss::kPpo:
      break;
  }
  return PLEXRL_LOSS_PPO;
}

class PlexrlService final : public Service {
 public:
  PlexrlService(plexrl::Session session, plexrl::Model model, std::optional<plexrl::Model> base)
      : session_(std::move(session)), model_(std::move(model)), base_(std::move(base)) {}

  Result<ModelFacts> model() override {
    return guarded([this] {
      const plexrl::ModelInfo info = model_.info();
      return ModelFacts{info.id,        info.base,           info.train_mode,
                        info.lora_rank, info.max_positions,  info.step,
                        info.next_seq,  info.latest_version, info.tokenizer};
    });
  }

  Result<FuturePtr<std::vector<Sequence>>> generate(const GenerateRequest& request) override {
    plexrl::GenerateOptions options;
    options.version = request.version;
    options.prompts = request.prompts;
    options.samples_per_prompt = request.samples_per_prompt;
    options.max_new_tokens = request.max_new_tokens;
    options.temperature = static_cast<float>(request.temperature);
    options.seed = request.seed;
    options.stop_tokens = request.stop_tokens;
    return submit<std::vector<plexrl::Sequence>, std::vector<Sequence>>(
        [&] { return model_.generate(options); });
  }

  Result<FuturePtr<std::vector<std::vector<float>>>> logprobs(
      std::uint64_t version, const std::vector<Tokens>& sequences) override {
    using Logprobs = std::vector<std::vector<float>>;
    plexrl::Model& model = version == 0 && base_ ? *base_ : model_;
    return submit<Logprobs, Logprobs>([&] { return model.logprobs(version, sequences); });
  }

  Result<FuturePtr<LossResult>> forward_backward(const LossRequest& loss,
                                                 const std::vector<Datum>& data) override {
    plexrl::ForwardBackwardOptions options;
    options.loss = to_library(loss.kind);
    options.clip_low = loss.clip_low;
    options.clip_high = loss.clip_high;
    options.beta = loss.beta;
    options.data.reserve(data.size());
    for (const Datum& datum : data) options.data.push_back(to_library(datum));
    return submit<plexrl::TrainResult, LossResult>(
        [&] { return model_.forward_backward(options); });
  }

  Result<FuturePtr<OptimResult>> optim_step(const OptimRequest& request) override {
    plexrl::OptimOptions options;
    options.learning_rate = request.learning_rate;
    options.beta1 = request.beta1;
    options.beta2 = request.beta2;
    options.grad_clip_norm = request.grad_clip_norm;
    return submit<plexrl::OptimResult, OptimResult>([&] { return model_.optim_step(options); });
  }

  Result<FuturePtr<SaveResult>> publish() override {
    return submit<plexrl::SaveResult, SaveResult>([&] { return model_.publish(); });
  }
  Result<FuturePtr<SaveResult>> save_fd(int fd, SaveFormat format) override {
    const auto file_format =
        format == SaveFormat::kCheckpoint ? PLEXRL_FILE_CHECKPOINT : PLEXRL_FILE_WEIGHTS;
    return submit<plexrl::SaveResult, SaveResult>([&] { return model_.save_fd(fd, file_format); });
  }
  Result<FuturePtr<SaveResult>> load_fd(int fd) override {
    return submit<plexrl::SaveResult, SaveResult>([&] { return model_.load_fd(fd, true); });
  }

 private:
  plexrl::Session session_;
  plexrl::Model model_;
  std::optional<plexrl::Model> base_;  // of a full-parameter model, whose version 0 is no base
};

// A model that only samples is the base itself, which its tenants share.
plexrl::Model base_of(plexrl::Session& session, const TrainOptions& options,
                      const std::string& base) {
  plexrl::ModelOptions sampler;
  sampler.name = options.model_name + ".base";
  sampler.base = base;
  sampler.train_mode = "none";
  return session.create_model(sampler);
}

}  // namespace

Result<std::unique_ptr<Service>> connect_service(const TrainOptions& options) {
  if (std::getenv("PLEXRL_SOCKET") == nullptr)
    return error(Code::UNAVAILABLE,
                 "PLEXRL_SOCKET is not set: run this in a job that was submitted with "
                 "--plexrl-pool=NAME");
  return guarded([&]() -> std::unique_ptr<Service> {
    plexrl::ConnectOptions connection;
    connection.client_name = "plexrl train";
    plexrl::Session session = plexrl::Session::connect(connection);
    plexrl::ModelOptions model;
    model.name = options.model_name;
    model.base = options.base;
    model.train_mode = options.train_mode;
    model.lora_rank = options.lora_rank;
    model.seed = options.seed;
    plexrl::Model policy = session.create_model(model);
    const plexrl::ModelInfo info = policy.info();
    std::optional<plexrl::Model> base;
    if (options.kl_coefficient > 0.0 && info.train_mode == "full")
      base = base_of(session, options, info.base);
    return std::make_unique<PlexrlService>(std::move(session), std::move(policy), std::move(base));
  });
}

}  // namespace plexrl::cli
