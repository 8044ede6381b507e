// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/train_decoder.h"

#include <cmath>

#include "engine_torch/aten_device.h"
#include "engine_torch/bf16_linear.h"
#include "engine_torch/decoder.h"

namespace plexrl::model {
namespace {

constexpr double kMasked = -1e30;  // finite: a row that is all masked gives no NaN

// Where the tensors of an arena come from.
struct ViewSource {
  std::span<const float> weights;
  std::span<const Bf16> weights16;  // instead
  std::span<float> gradients;       // empty: frozen
  bool round_vectors = false;       // float32 masters of a model that computes in bfloat16
};

// Hands out the views in the layout's order. Vectors are float32 always.
class ViewCursor {
 public:
  ViewCursor(const ModelDevice& device, const ArenaLayout& layout, ViewSource source)
      : device_(device), layout_(layout), source_(source) {}

  at::Tensor next() {
    const TensorSlot& slot = layout_.slots.at(at_++);
    if (!source_.weights16.empty()) {
      const at::Tensor view = tensor_at(device_, source_.weights16.data(), slot);
      return slot.vector ? view.to(at::kFloat) : view;
    }
    at::Tensor view = tensor_at(device_, source_.weights.data(), slot);
    if (!source_.gradients.empty()) {
      view.set_requires_grad(true);
      view.mutable_grad() = tensor_at(device_, source_.gradients.data(), slot);
    }
    return source_.round_vectors && slot.vector ? round_through(view) : view;
  }

 private:
  const ModelDevice& device_;
  const ArenaLayout& layout_;
  ViewSource source_;
  std::size_t at_ = 0;
};

ViewSource base_source(const ModelState& state, std::span<float> gradients) {
  ViewSource source;
  if (state.layout->mode != wire::TrainMode::Full) {
    source.weights = state.memory.base;
    source.weights16 = state.memory.base16;
    return source;
  }
  source.weights = state.memory.weights;
  source.gradients = gradients;
  source.round_vectors = state.layout->type == WeightType::kBFloat16;
  return source;
}

}  // namespace

TrainDecoder::TrainDecoder(const ModelState& state, bool gradients)
    : config_(state.layout->config),
      device_(state.device),
      lora_scale_(static_cast<double>(state.layout->lora_scale())),
      half_(state.layout->type == WeightType::kBFloat16) {
  const ModelLayout& layout = *state.layout;
  const c10::AutoGradMode grad_mode(gradients);
  const std::span<float> grads = gradients ? state.memory.gradients : std::span<float>();
  ViewCursor base(device_, layout.full, base_source(state, grads));
  embedding_ = base.next();
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    Layer layer;
    layer.input_norm = base.next();
    for (int t = 0; t < 7; ++t) {
      if (t == 3 && config_.qkv_bias)
        for (at::Tensor& bias : layer.bias) bias = base.next();
      if (t == 3 && config_.head_norms) {
        layer.q_norm = base.next();
        layer.k_norm = base.next();
      }
      if (t == 4) layer.post_norm = base.next();
      layer.weight[t] = base.next();
    }
    layers_.push_back(std::move(layer));
  }
  final_norm_ = base.next();
  head_ = config_.tied_head ? embedding_ : base.next();
  if (half_) head16_ = head_.detach().to(at::kBFloat16);
  if (layout.mode != wire::TrainMode::Lora) return;
  ViewCursor adapter(device_, layout.trainable, {state.memory.weights, {}, grads, false});
  for (Layer& layer : layers_)
    for (int t = 0; t < 7; ++t) {
      layer.a[t] = adapter.next();
      layer.b[t] = adapter.next();
    }
}

at::Tensor TrainDecoder::embed(const at::Tensor& ids) const {
  const at::Tensor x = at::embedding(embedding_, ids);
  if (!half_) return x;
  return x.scalar_type() == at::kFloat ? round_through(x) : x.to(at::kFloat);
}

at::Tensor TrainDecoder::logits(const at::Tensor& states) const {
  return half_ ? bf16_linear(states, head16_, device_.math) : at::mm(states, head_.t());
}

void TrainDecoder::logits_back(const at::Tensor& slopes, at::Tensor& out) const {
  if (half_)
    bf16_linear_back(slopes, head16_, out, device_.math);
  else
    at::mm_out(out, slopes, head_);
}

at::Tensor TrainDecoder::project(const Layer& layer, int target, const at::Tensor& x) const {
  const at::Tensor& weight = layer.weight[target];
  const at::Tensor y = half_ ? bf16_linear(x, weight, device_.math) : at::mm(x, weight.t());
  if (!layer.a[target].defined()) return y;
  return y.addmm(at::mm(x, layer.a[target].t()), layer.b[target].t(), 1.0, lora_scale_);
}

// flat [rows * length, hidden]. Returns [rows, count, length, dim], not rotated.
at::Tensor TrainDecoder::heads(const Layer& layer, int target, const at::Tensor& flat,
                               std::int64_t rows, std::int64_t count) const {
  at::Tensor y = project(layer, target, flat);
  if (layer.bias[target].defined()) y = y + layer.bias[target];
  y = y.view({rows, -1, count, config_.head_dim});
  if (target < 2 && layer.q_norm.defined()) y = norm(y, target == 0 ? layer.q_norm : layer.k_norm);
  return y.transpose(1, 2);
}

at::Tensor TrainDecoder::norm(const at::Tensor& x, const at::Tensor& weight) const {
  return x * at::rsqrt(x.square().mean(-1, true) + config_.rms_norm_eps) * weight;
}

// x [rows, heads, length, dim]
at::Tensor TrainDecoder::rotate(const at::Tensor& x) const {
  const std::int64_t half = config_.head_dim / 2;
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  return at::cat({first * cosine_ - second * sine_, second * cosine_ + first * sine_}, -1);
}

// x [rows, length, hidden], normed. Query heads of one key head are stacked along the length, so
// keys and values are not repeated.
at::Tensor TrainDecoder::attention(const Layer& layer, const at::Tensor& x) const {
  const std::int64_t rows = x.size(0);
  const std::int64_t length = x.size(1);
  const std::int64_t dim = config_.head_dim;
  const std::int64_t group = config_.heads / config_.kv_heads;
  const at::Tensor flat = x.reshape({rows * length, config_.hidden_size});
  const auto heads_of = [&](int target, std::int64_t count) {
    return heads(layer, target, flat, rows, count);
  };
  const at::Tensor q = rotate(heads_of(0, config_.heads)).reshape({-1, group * length, dim});
  const at::Tensor k = rotate(heads_of(1, config_.kv_heads)).reshape({-1, length, dim});
  const at::Tensor v = heads_of(2, config_.kv_heads).reshape({-1, length, dim});
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const at::Tensor scores = at::baddbmm(mask_, q, k.transpose(1, 2), 1.0, scale);
  const at::Tensor mixed = at::bmm(at::softmax(scores, -1), v)
                               .view({rows, config_.heads, length, dim})
                               .transpose(1, 2)
                               .reshape({rows * length, config_.query_size()});
  return project(layer, 3, mixed).view({rows, length, config_.hidden_size});
}

at::Tensor TrainDecoder::feed_forward(const Layer& layer, const at::Tensor& x) const {
  const at::Tensor flat = x.reshape({-1, config_.hidden_size});
  const at::Tensor gated = at::silu(project(layer, 4, flat)) * project(layer, 5, flat);
  return project(layer, 6, gated).view(x.sizes());
}

void TrainDecoder::prepare(std::int64_t length) const {
  if (mask_.defined() && cosine_.size(0) == length) return;
  std::vector<float> cosine, sine;
  rope_tables(config_, length, &cosine, &sine);
  const std::int64_t half = config_.head_dim / 2;
  const at::Device where = torch_device(device_);
  cosine_ = at::from_blob(cosine.data(), {length, half}, at::kFloat).to(where, false, true);
  sine_ = at::from_blob(sine.data(), {length, half}, at::kFloat).to(where, false, true);
  const auto options = at::TensorOptions(at::kFloat).device(where);
  const at::Tensor future = at::ones({length, length}, options).triu(1) * kMasked;
  mask_ = future.repeat({config_.heads / config_.kv_heads, 1}).unsqueeze(0);
}

at::Tensor TrainDecoder::hidden(const at::Tensor& ids) const {
  prepare(ids.size(1));
  at::Tensor x = embed(ids);
  for (const Layer& layer : layers_) {
    x = x + attention(layer, norm(x, layer.input_norm));
    x = x + feed_forward(layer, norm(x, layer.post_norm));
  }
  return norm(x, final_norm_);
}

}  // namespace plexrl::model
