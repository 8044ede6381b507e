// SPDX-License-Identifier: Apache-2.0
#include "fakes/fake_model_code.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace plexrl::worker {
namespace {

using Step = std::function<bool(std::size_t index)>;  // true: that was the last

class FakeRun : public model::OpRun {
 public:
  FakeRun(FakeModelCode& code, Step step, std::function<wire::OpValueUnion()> result,
          std::function<void()> undo)
      : code_(code), step_(std::move(step)), result_(std::move(result)), undo_(std::move(undo)) {}

  Result<bool> step() override {
    code_.wait_for_step();
    ++code_.steps;
    if (code_.fail_step.exchange(false)) return error(Code::NO_CAPACITY, "fake: no activations");
    return advance();
  }
  bool advance() { return step_(index_++); }
  void abandon() override {
    ++code_.abandoned;
    undo_();
  }
  wire::OpValueUnion take_result() override { return result_(); }
  std::uint64_t tokens_done() const noexcept override { return index_; }
  [[nodiscard]] FakeModelCode& code() const { return code_; }

 private:
  FakeModelCode& code_;
  Step step_;
  std::function<wire::OpValueUnion()> result_;
  std::function<void()> undo_;
  std::size_t index_ = 0;
};

// A token of each run per step.
class FakeBatch final : public model::OpBatch {
 public:
  explicit FakeBatch(FakeModelCode& code) : code_(code) {}
  [[nodiscard]] bool fits(const model::OpRun&) const override { return true; }
  Status join(model::OpRun& run) override {
    runs_.push_back(&dynamic_cast<FakeRun&>(run));
    return {};
  }
  void leave(const model::OpRun& run) override { std::erase(runs_, &run); }
  Result<std::vector<Ended>> step() override {
    code_.wait_for_step();
    ++code_.steps;
    code_.largest_batch = std::max(code_.largest_batch.load(), static_cast<int>(runs_.size()));
    const bool several = runs_.size() > 1;
    if (several && code_.fail_batch.exchange(false))
      return error(Code::NO_CAPACITY, "fake: no activations");
    const bool fail_newest = several && code_.fail_newest.exchange(false);
    std::vector<Ended> ended;
    for (FakeRun* const run : runs_) {
      if (fail_newest && run == runs_.back())
        ended.push_back({run, error(Code::INVALID_ARGUMENT, "fake: not finite")});
      else if (run->advance())
        ended.push_back({run, {}});
    }
    for (const Ended& end : ended) leave(*end.run);
    return ended;
  }

 private:
  FakeModelCode& code_;
  std::vector<FakeRun*> runs_;
};

class FakeGenerate final : public FakeRun {
 public:
  using FakeRun::FakeRun;
  [[nodiscard]] std::unique_ptr<model::OpBatch> make_batch() const override {
    return std::make_unique<FakeBatch>(code());
  }
};

template <class ValueT>
wire::OpValueUnion value_of(ValueT value) {
  wire::OpValueUnion out;
  out.Set(std::move(value));
  return out;
}

std::unique_ptr<model::OpRun> forward_backward(FakeModelCode& code, model::ModelState& state,
                                               const wire::ForwardBackwardArgsT& args) {
  auto undo = std::make_shared<std::vector<float>>();
  const auto step = [&state, args, undo](std::size_t index) {
    const std::span<float> gradients = state.memory.gradients;
    if (index == 0) undo->assign(gradients.begin(), gradients.end());
    for (float& g : gradients) g += static_cast<float>(args.data[index]->tokens[0]);
    const bool last = index + 1 == args.data.size();
    if (last) state.gradients_pending = true;
    return last;
  };
  const auto result = [&state] {
    wire::ForwardBackwardResultT out;
    out.loss_sum = state.memory.gradients.back();
    return value_of(std::move(out));
  };
  return std::make_unique<FakeRun>(code, step, result, [&state, undo] {
    std::copy(undo->begin(), undo->end(), state.memory.gradients.begin());
  });
}

std::unique_ptr<model::OpRun> optim_step(FakeModelCode& code, model::ModelState& state,
                                         const wire::OptimStepArgsT& args) {
  const auto step = [&state, rate = static_cast<float>(args.learning_rate)](std::size_t) {
    for (std::size_t i = 0; i < state.memory.weights.size(); ++i) {
      state.memory.adam_m[i] += state.memory.gradients[i];
      state.memory.weights[i] -= rate * state.memory.gradients[i];
      state.memory.gradients[i] = 0;
    }
    ++state.step;
    state.gradients_pending = false;
    return true;
  };
  const auto result = [&state] {
    wire::OptimStepResultT out;
    out.step = state.step;
    out.grad_norm = state.memory.weights.back();
    return value_of(std::move(out));
  };
  return std::make_unique<FakeRun>(code, step, result, [] {});
}

std::unique_ptr<model::OpRun> save(FakeModelCode& code, const model::OpEnv& env) {
  model::ModelState& state = *env.state;
  const auto step = [&state, version = env.version_out](std::size_t) {
    std::copy(state.memory.weights.begin(), state.memory.weights.end(),
              state.memory.sampler.begin());
    state.sampler_version = version;
    return true;
  };
  const auto result = [&state] {
    wire::SaveResultT out;
    out.version = state.sampler_version;
    return value_of(std::move(out));
  };
  return std::make_unique<FakeRun>(code, step, result, [] {});
}

std::unique_ptr<model::OpRun> generate(FakeModelCode& code, const model::OpEnv& env,
                                       const wire::GenerateArgsT& args) {
  auto* const kv = reinterpret_cast<std::int32_t*>(env.kv.data());
  const auto step = [kv, args](std::size_t index) {
    kv[index] = kv[index] + static_cast<std::int32_t>(args.seed + index);  // memory was zero
    return index + 1 == args.max_new_tokens;
  };
  const auto result = [kv, args] {
    wire::GenerateResultT out;
    out.sequences.push_back(std::make_unique<wire::SequenceT>());
    out.sequences[0]->tokens.assign(kv, kv + args.max_new_tokens);
    return value_of(std::move(out));
  };
  return std::make_unique<FakeGenerate>(code, step, result, [] {});
}

}  // namespace

void FakeModelCode::wait_for_step() const {
  while (hold) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Result<wire::EngineDescriptionT> FakeModelCode::describe(wire::TrainMode mode, std::uint32_t rank) {
  PLEXRL_ASSIGN(const auto layout_of, layout(mode, rank));
  wire::EngineDescriptionT out;
  for (const auto& size : segments(*layout_of)) {
    auto row = std::make_unique<wire::SegmentSizeT>();
    row->kind = size.kind;
    row->bytes = size.bytes;
    row->committed = size.committed;
    out.segments.push_back(std::move(row));
  }
  return out;
}

Result<std::shared_ptr<const model::ModelLayout>> FakeModelCode::layout(wire::TrainMode mode,
                                                                        std::uint32_t rank) {
  if (rank == 999) return error(Code::INVALID_ARGUMENT, "fake: rank 999");
  auto out = std::make_shared<model::ModelLayout>();
  out->mode = mode;
  out->lora_rank = rank;
  out->trainable.elements = mode == wire::TrainMode::None ? 0 : kElements;
  out->full.elements = kElements;
  return std::shared_ptr<const model::ModelLayout>(std::move(out));
}

std::vector<model::SegmentBytes> FakeModelCode::segments(const model::ModelLayout& layout) const {
  const std::uint64_t bytes = kElements * sizeof(float);
  if (layout.mode == wire::TrainMode::None) return {{wire::SegmentKind::Base, bytes, false}};
  return {{wire::SegmentKind::Weights, bytes, true},
          {wire::SegmentKind::AdamM, bytes, true},
          {wire::SegmentKind::AdamV, bytes, true},
          {wire::SegmentKind::Gradients, bytes, false},
          {wire::SegmentKind::SamplerWeights, bytes, true}};
}

Status FakeModelCode::load_base(std::span<float> weights) {
  while (hold_base) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (fail_base) return error(Code::CORRUPT, "model.safetensors: fake damage");
  std::fill(weights.begin(), weights.end(), kBaseWeight);
  return {};
}

Status FakeModelCode::load_base16(std::span<model::Bf16> /*weights*/) {
  return error(Code::UNSUPPORTED, "the fake model has no bfloat16");
}

Status FakeModelCode::initialise(const model::ModelLayout& /*layout*/, std::uint64_t seed,
                                 std::span<float> weights) {
  std::fill(weights.begin(), weights.end(), static_cast<float>(seed));
  return {};
}

Result<std::unique_ptr<model::OpRun>> FakeModelCode::make_run(const model::OpEnv& env,
                                                              const wire::OpArgsUnion& args) {
  if (const auto* const a = args.AsForwardBackwardArgs())
    return forward_backward(*this, *env.state, *a);
  if (const auto* const a = args.AsOptimStepArgs()) return optim_step(*this, *env.state, *a);
  if (args.AsSaveArgs() != nullptr) return save(*this, env);
  if (const auto* const a = args.AsGenerateArgs()) {
    if (env.kv.size() < a->max_new_tokens * sizeof(std::int32_t))
      return error(Code::INVALID_ARGUMENT, "fake: KV of %zu bytes is too small", env.kv.size());
    return generate(*this, env, *a);
  }
  return error(Code::UNSUPPORTED, "fake: no such op");
}

bool FakeModelCode::writes_committed_state(const wire::OpArgsUnion& args) const {
  return args.AsOptimStepArgs() != nullptr || args.AsSaveArgs() != nullptr;
}

bool FakeModelCode::needs_whole_state(const wire::OpArgsUnion& args) const {
  return writes_committed_state(args);
}

}  // namespace plexrl::worker
