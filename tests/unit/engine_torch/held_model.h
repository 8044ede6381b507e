// SPDX-License-Identifier: Apache-2.0
// For the tests: a model in ordinary memory, and ops run to their end.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <new>
#include <random>
#include <vector>

#include "engine_torch/model_state.h"
#include "engine_torch/op_run.h"

namespace plexrl::model {

// The demo model's shape, smaller when asked.
inline ModelConfig demo_config() {
  ModelConfig c;
  c.vocab_size = 32, c.hidden_size = 128, c.layers = 3, c.heads = 4, c.kv_heads = 2;
  c.head_dim = 32, c.intermediate_size = 384, c.max_positions = 64, c.tied_head = true;
  return c;
}
inline ModelConfig tiny_config() {
  ModelConfig c;
  c.vocab_size = 19, c.hidden_size = 24, c.layers = 2, c.heads = 4, c.kv_heads = 2;
  c.head_dim = 10, c.intermediate_size = 36, c.max_positions = 32, c.tied_head = false;
  return c;
}

// The same with what the other families add.
inline ModelConfig tiny_config(Family family) {
  ModelConfig c = tiny_config();
  c.family = family;
  c.qkv_bias = family == Family::kQwen2;
  c.head_norms = family == Family::kQwen3;
  return c;
}

inline ModelLayout layout_of(const ModelConfig& config, wire::TrainMode mode,
                             std::uint32_t rank = 0, WeightType type = WeightType::kFloat32) {
  return std::move(make_model_layout(config, mode, rank, type)).value();
}

struct AlignedFree {
  void operator()(float* p) const { ::operator delete (p, std::align_val_t{64}); }
};
// Zeroed, 64-byte aligned floats.
class Arena {
 public:
  explicit Arena(std::uint64_t elements)
      : data_(static_cast<float*>(::operator new (elements * 4 + 64, std::align_val_t{64}))),
        span_(data_.get(), elements) {
    std::fill(span_.begin(), span_.end(), 0.0F);
  }
  [[nodiscard]] std::span<float> span() const { return span_; }
  [[nodiscard]] std::vector<float> copy() const { return {span_.begin(), span_.end()}; }

 private:
  std::unique_ptr<float, AlignedFree> data_;
  std::span<float> span_;
};

class HeldModel {
 public:
  explicit HeldModel(ModelLayout layout_in, std::uint64_t seed = 7)
      : layout(std::move(layout_in)),
        base(layout.full.elements),
        weights(layout.trainable.elements),
        m(layout.trainable.elements),
        v(layout.trainable.elements),
        gradients(layout.trainable.elements),
        sampler(layout.trainable.elements) {
    initialise(layout.full, layout.config.layers, seed, 0.1, base.span());
    shake_vectors(seed);
    const bool full = layout.mode == wire::TrainMode::Full;
    if (full) std::copy(base.span().begin(), base.span().end(), weights.span().begin());
    if (layout.mode == wire::TrainMode::Lora)
      initialise(layout.trainable, layout.config.layers, seed + 1, 0.1, weights.span());
    state.layout = &layout;
    state.memory = {weights.span(),
                    m.span(),
                    v.span(),
                    gradients.span(),
                    sampler.span(),
                    full ? std::span<float>() : base.span(),
                    {},
                    {}};
    if (layout.type == WeightType::kBFloat16) hold_half(full);
  }
  HeldModel(const HeldModel&) = delete;
  HeldModel& operator=(const HeldModel&) = delete;

  // Makes B of an adapter other than zero.
  void shake(double std, std::uint64_t seed = 99) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::normal_distribution<float> normal(0, static_cast<float>(std));
    for (const TensorSlot& slot : layout.trainable.slots)
      for (float& x : weights.span().subspan(slot.offset, slot.elements())) x += normal(random);
  }
  // Biases other than zero and norms other than one.
  void shake_vectors(std::uint64_t seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::normal_distribution<float> normal(0, 0.2F);
    for (const TensorSlot& slot : layout.full.slots)
      if (slot.vector && slot.name.find("self_attn") != std::string::npos)
        for (float& x : base.span().subspan(slot.offset, slot.elements())) x += normal(random);
  }
  void publish(std::uint64_t version) {
    if (state.memory.sampler16.empty())
      std::copy(weights.span().begin(), weights.span().end(), sampler.span().begin());
    else
      round_bf16(weights.span().data(), half.data(), static_cast<std::int64_t>(half.size()));
    state.sampler_version = version;
  }

  // Instead of the base's arena, or of the sampler's of a full-parameter model.
  void hold_half(bool full) {
    half.resize(layout.full.elements);
    if (full) {
      state.memory.sampler = {};
      state.memory.sampler16 = half;
      return;
    }
    round_bf16(base.span().data(), half.data(), static_cast<std::int64_t>(half.size()));
    state.memory.base = {};
    state.memory.base16 = half;
  }

  ModelLayout layout;
  std::vector<Bf16> half;
  Arena base, weights, m, v, gradients, sampler;
  ModelState state;
};

template <class Args>
wire::OpArgsUnion args_union(Args args) {
  wire::OpArgsUnion value;
  value.Set(std::move(args));
  return value;
}

// Runs an op to its end; generate gets cache memory of its own, filled with NaN bytes so that
// reading what was not written shows.
inline Result<wire::OpValueUnion> run_op(HeldModel& model, const wire::OpArgsUnion& args,
                                         int fd = -1, std::uint64_t version_out = 0,
                                         const std::function<void()>& between = {}) {
  std::uint64_t kv = 0;
  if (args.type == wire::OpArgs::GenerateArgs) {
    const auto need = kv_bytes(model.layout.config, *args.AsGenerateArgs());
    kv = need.has_value() && *need < (1ULL << 30) ? *need / sizeof(float) : 0;
  }
  const Arena cache(kv);
  std::fill(cache.span().begin(), cache.span().end(), std::nanf(""));
  OpEnv env;
  env.state = &model.state;
  env.kv = std::as_writable_bytes(cache.span());
  env.version_out = version_out;
  env.fd = fd;
  PLEXRL_ASSIGN(const std::unique_ptr<OpRun> run, make_op_run(env, args));
  for (;;) {
    PLEXRL_ASSIGN(const bool finished, run->step());
    if (finished) return run->take_result();
    if (between) between();
  }
}

inline std::unique_ptr<wire::PromptT> prompt(std::vector<std::int32_t> tokens) {
  auto p = std::make_unique<wire::PromptT>();
  p->tokens = std::move(tokens);
  return p;
}

inline std::vector<std::int32_t> random_tokens(std::mt19937& random, std::size_t count,
                                               std::int64_t vocab) {
  std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(vocab - 1));
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& t : tokens) t = token(random);
  return tokens;
}

}  // namespace plexrl::model
