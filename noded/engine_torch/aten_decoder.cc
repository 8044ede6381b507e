// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/aten_decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine_torch/aten_device.h"
#include "engine_torch/bf16_linear.h"
#include "engine_torch/decoder.h"

namespace plexrl::model {
namespace {

enum Target : int { kQ, kK, kV, kO, kGate, kUp, kDown, kTargets };

struct LayerTensors {
  at::Tensor input_norm, post_norm;
  at::Tensor weight[kTargets];
  at::Tensor bias[kO];        // of q, k and v; undefined without
  at::Tensor q_norm, k_norm;  // undefined without
};
struct LayerAdapter {
  at::Tensor a[kTargets], b[kTargets];
};
struct AtenAdapter final : public RowAdapter {
  std::vector<LayerAdapter> layers;
  double scale = 0;
};

// Hands out the tensors of an arena, float32 or bfloat16, in the layout's order. Vectors are
// float32 always.
class TensorCursor {
 public:
  TensorCursor(const ModelDevice& device, const ArenaLayout& layout, const float* arena,
               const Bf16* arena16)
      : device_(device), layout_(layout), arena_(arena), arena16_(arena16) {}
  at::Tensor next() {
    const TensorSlot& slot = layout_.slots.at(at_++);
    if (arena_ != nullptr) return tensor_at(device_, arena_, slot);
    const at::Tensor view = tensor_at(device_, arena16_, slot);
    return slot.vector ? view.to(at::kFloat) : view;
  }

 private:
  const ModelDevice& device_;
  const ArenaLayout& layout_;
  const float* arena_;
  const Bf16* arena16_;
  std::size_t at_ = 0;
};

// Tokens behind each other in a batch that have something in common.
struct Part {
  std::int64_t first = 0, count = 0;
};
template <class Alike>
std::vector<Part> parts_of(std::span<const TokenAt> tokens, Alike&& alike) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && alike(tokens[i], tokens[i - 1]))
      ++parts.back().count;
    else
      parts.push_back({static_cast<std::int64_t>(i), 1});
  }
  return parts;
}
bool same_row(const TokenAt& a, const TokenAt& b) { return a.row.data == b.row.data; }
bool same_adapter(const TokenAt& a, const TokenAt& b) { return a.adapter == b.adapter; }

class AtenDecoder final : public TokenDecoder {
 public:
  explicit AtenDecoder(const ModelState& state);

  [[nodiscard]] std::unique_ptr<const RowAdapter> bind_adapter(
      const ModelState& state) const override;
  void reach(std::int64_t positions) override;
  Status acquire() override { return {}; }
  void release() override { hidden_ = at::Tensor(); }
  Result<float*> make_cache(std::int64_t floats) override;
  void forward(std::span<const TokenAt> tokens) override;
  void logits(std::span<const std::int64_t> tokens, float* out) override;
  [[nodiscard]] const ModelConfig& config() const noexcept override { return config_; }

 private:
  void bind_full(const ArenaLayout& layout, const float* arena, const Bf16* arena16);
  [[nodiscard]] at::Tensor multiply(const at::Tensor& x, const at::Tensor& weight) const;
  [[nodiscard]] at::Tensor project(std::int64_t layer, int target, const at::Tensor& x) const;
  [[nodiscard]] at::Tensor heads(std::int64_t layer, int target, const at::Tensor& x,
                                 std::int64_t count) const;
  [[nodiscard]] at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const;
  [[nodiscard]] at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions) const;
  [[nodiscard]] at::Tensor attend(std::int64_t layer, std::span<const TokenAt> tokens,
                                  const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v) const;
  [[nodiscard]] at::Tensor attend_row(std::int64_t layer, const TokenAt& first, std::int64_t count,
                                      const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v) const;
  [[nodiscard]] at::Tensor on_device(const std::vector<std::int64_t>& numbers) const;

  struct AdapterRows {
    const AtenAdapter* adapter;
    Part rows;
  };

  ModelDevice device_;
  ModelConfig config_;
  WeightType type_;
  std::int64_t positions_ = 0;
  at::Tensor embedding_, final_norm_, head_, cosine_, sine_;
  std::vector<AdapterRows> groups_;  // of the batch, those with an adapter
  std::vector<LayerTensors> layers_;
  at::Tensor hidden_;  // of the last forward
  at::Tensor cache_;
};

AtenDecoder::AtenDecoder(const ModelState& state)
    : device_(state.device), config_(state.layout->config), type_(state.layout->type) {
  const bool full = state.layout->mode == wire::TrainMode::Full;
  const ModelMemory& memory = state.memory;
  bind_full(state.layout->full, full ? memory.sampler.data() : memory.base.data(),
            full ? std::span<const Bf16>(memory.sampler16).data() : memory.base16.data());
}

void AtenDecoder::reach(std::int64_t positions) {
  if (positions <= positions_) return;
  positions_ = positions;
  std::vector<float> cosine, sine;
  rope_tables(config_, positions, &cosine, &sine);
  const auto table = [&](const std::vector<float>& values) {
    return tensor_at(ModelDevice{}, values.data(), {positions, config_.head_dim / 2})
        .to(torch_device(device_), /*non_blocking=*/false, /*copy=*/true);
  };
  cosine_ = table(cosine);
  sine_ = table(sine);
}

void AtenDecoder::bind_full(const ArenaLayout& layout, const float* arena, const Bf16* arena16) {
  TensorCursor next(device_, layout, arena, arena16);
  embedding_ = next.next();
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    LayerTensors layer;
    layer.input_norm = next.next();
    for (int t = 0; t < kTargets; ++t) {
      if (t == kO && config_.qkv_bias)
        for (at::Tensor& bias : layer.bias) bias = next.next();
      if (t == kO && config_.head_norms) {
        layer.q_norm = next.next();
        layer.k_norm = next.next();
      }
      if (t == kGate) layer.post_norm = next.next();
      layer.weight[t] = next.next();
    }
    layers_.push_back(std::move(layer));
  }
  final_norm_ = next.next();
  head_ = config_.tied_head ? embedding_ : next.next();
}

std::unique_ptr<const RowAdapter> AtenDecoder::bind_adapter(const ModelState& state) const {
  TensorCursor next(device_, state.layout->trainable, state.memory.sampler.data(), nullptr);
  auto adapter = std::make_unique<AtenAdapter>();
  adapter->scale = static_cast<double>(state.layout->lora_scale());
  adapter->layers.resize(layers_.size());
  for (LayerAdapter& layer : adapter->layers)
    for (int t = 0; t < kTargets; ++t) {
      layer.a[t] = next.next();
      layer.b[t] = next.next();
    }
  return adapter;
}

Result<float*> AtenDecoder::make_cache(std::int64_t floats) {
  cache_ = at::empty({floats}, at::TensorOptions(at::kFloat).device(torch_device(device_)));
  return cache_.data_ptr<float>();
}

at::Tensor AtenDecoder::on_device(const std::vector<std::int64_t>& numbers) const {
  return at::tensor(numbers, at::kLong).to(torch_device(device_));
}

at::Tensor AtenDecoder::multiply(const at::Tensor& x, const at::Tensor& weight) const {
  if (type_ == WeightType::kFloat32) return at::mm(x, weight.t());
  return bf16_linear(x, weight, device_.math);
}

at::Tensor AtenDecoder::project(std::int64_t layer, int target, const at::Tensor& x) const {
  const auto number = static_cast<std::size_t>(layer);
  at::Tensor y = multiply(x, layers_[number].weight[target]);
  for (const AdapterRows& group : groups_) {
    const LayerAdapter& adapter = group.adapter->layers[number];
    const at::Tensor rows = x.narrow(0, group.rows.first, group.rows.count);
    y.narrow(0, group.rows.first, group.rows.count)
        .addmm_(at::mm(rows, adapter.a[target].t()), adapter.b[target].t(), 1.0,
                group.adapter->scale);
  }
  return y;
}

// [tokens, count, head_dim], not rotated.
at::Tensor AtenDecoder::heads(std::int64_t layer, int target, const at::Tensor& x,
                              std::int64_t count) const {
  const LayerTensors& of = layers_[static_cast<std::size_t>(layer)];
  at::Tensor y = project(layer, target, x);
  if (of.bias[target].defined()) y = y + of.bias[target];
  y = y.view({x.size(0), count, config_.head_dim});
  if (target == kV || !of.q_norm.defined()) return y;
  return norm(y, target == kQ ? of.q_norm : of.k_norm);
}

at::Tensor AtenDecoder::norm(const at::Tensor& x, const at::Tensor& weight) const {
  return x * at::rsqrt(x.square().mean(-1, true) + config_.rms_norm_eps) * weight;
}

// x [tokens, heads, dim]
at::Tensor AtenDecoder::rotate(const at::Tensor& x, const at::Tensor& positions) const {
  const std::int64_t half = config_.head_dim / 2;
  const at::Tensor cosine = cosine_.index_select(0, positions).unsqueeze(1);
  const at::Tensor sine = sine_.index_select(0, positions).unsqueeze(1);
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  return at::cat({first * cosine - second * sine, second * cosine + first * sine}, -1);
}

// q [count, heads, dim], k and v [count, kv_heads, dim], of `count` tokens of one row. Query heads
// of one key head lie behind each other, so keys and values are not repeated.
at::Tensor AtenDecoder::attend_row(std::int64_t layer, const TokenAt& first, std::int64_t count,
                                   const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v) const {
  const ModelConfig& c = config_;
  const std::int64_t group = c.heads / c.kv_heads;
  const std::int64_t end = first.position + count;
  float* const planes = first.row.data + layer * 2 * c.kv_size() * first.row.capacity;
  const auto cached = [&](float* at, const at::Tensor& fresh) {
    const at::Tensor all = tensor_at(device_, at, {c.kv_heads, first.row.capacity, c.head_dim});
    all.narrow(1, first.position, count).copy_(fresh.transpose(0, 1));
    return all.narrow(1, 0, end);
  };
  const at::Tensor keys = cached(planes, k);
  const at::Tensor values = cached(planes + c.kv_size() * first.row.capacity, v);
  const at::Tensor queries = q.view({count, c.kv_heads, group, c.head_dim})
                                 .permute({1, 2, 0, 3})
                                 .reshape({c.kv_heads, group * count, c.head_dim});
  at::Tensor scores = at::bmm(queries, keys.transpose(1, 2))
                          .mul_(1.0 / std::sqrt(static_cast<double>(c.head_dim)))
                          .view({c.kv_heads, group, count, end});
  if (count > 1) {
    const at::Tensor future =
        at::ones({count, end}, at::TensorOptions(at::kBool).device(torch_device(device_)))
            .triu(first.position + 1);
    scores.masked_fill_(future, -std::numeric_limits<float>::infinity());
  }
  const at::Tensor weights = at::softmax(scores, -1).view({c.kv_heads, group * count, end});
  return at::bmm(weights, values)
      .view({c.kv_heads, group, count, c.head_dim})
      .permute({2, 0, 1, 3})
      .reshape({count, c.query_size()});
}

at::Tensor AtenDecoder::attend(std::int64_t layer, std::span<const TokenAt> tokens,
                               const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v) const {
  std::vector<at::Tensor> out;
  for (const Part& part : parts_of(tokens, same_row))
    out.push_back(attend_row(layer, tokens[static_cast<std::size_t>(part.first)], part.count,
                             q.narrow(0, part.first, part.count),
                             k.narrow(0, part.first, part.count),
                             v.narrow(0, part.first, part.count)));
  return at::cat(out, 0);
}

void AtenDecoder::forward(std::span<const TokenAt> tokens) {
  const c10::NoGradGuard no_grad;
  const ModelConfig& c = config_;
  std::vector<std::int64_t> ids, places;
  for (const TokenAt& token : tokens) {
    ids.push_back(token.token);
    places.push_back(token.position);
  }
  groups_.clear();
  for (const Part& part : parts_of(tokens, same_adapter))
    if (const RowAdapter* adapter = tokens[static_cast<std::size_t>(part.first)].adapter)
      groups_.push_back({static_cast<const AtenAdapter*>(adapter), part});
  const at::Tensor positions = on_device(places);
  at::Tensor x = at::embedding(embedding_, on_device(ids)).to(at::kFloat);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const LayerTensors& layer = layers_[static_cast<std::size_t>(i)];
    const at::Tensor normed = norm(x, layer.input_norm);
    const at::Tensor q = rotate(heads(i, kQ, normed, c.heads), positions);
    const at::Tensor k = rotate(heads(i, kK, normed, c.kv_heads), positions);
    const at::Tensor v = heads(i, kV, normed, c.kv_heads);
    x = x + project(i, kO, attend(i, tokens, q, k, v));
    const at::Tensor wide = norm(x, layer.post_norm);
    x = x + project(i, kDown, at::silu(project(i, kGate, wide)) * project(i, kUp, wide));
  }
  hidden_ = norm(x, final_norm_).contiguous();
}

void AtenDecoder::logits(std::span<const std::int64_t> tokens, float* out) {
  const c10::NoGradGuard no_grad;
  const at::Tensor states = hidden_.index_select(0, on_device({tokens.begin(), tokens.end()}));
  tensor_at(ModelDevice{}, out, {states.size(0), config_.vocab_size})
      .copy_(multiply(states, head_));
}

}  // namespace

std::unique_ptr<TokenDecoder> make_aten_decoder(const ModelState& state) {
  return std::make_unique<AtenDecoder>(state);
}

}  // namespace plexrl::model
