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

// Returns [tokens, count, dim], not rotated.
at::Tensor TrainDecoder::heads(const Layer& layer, int target, const at::Tensor& x,
                               std::int64_t count) const {
  at::Tensor y = project(layer, target, x);
  if (layer.bias[target].defined()) y = y + layer.bias[target];
  y = y.view({-1, count, config_.head_dim});
  if (target < 2 && layer.q_norm.defined()) y = norm(y, target == 0 ? layer.q_norm : layer.k_norm);
  return y;
}

at::Tensor TrainDecoder::norm(const at::Tensor& x, const at::Tensor& weight) const {
  return x * at::rsqrt(x.square().mean(-1, true) + config_.rms_norm_eps) * weight;
}

// x [tokens, heads, dim]
at::Tensor TrainDecoder::rotate(const at::Tensor& x) const {
  const std::int64_t half = config_.head_dim / 2;
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  return at::cat({first * cosine_ - second * sine_, second * cosine_ + first * sine_}, -1);
}

// q [rows, heads, length, dim], k and v [rows, kv_heads, keys, dim]. Query heads of one key head
// are stacked along the length, so keys and values are not repeated. Returns [rows * length,
// query].
at::Tensor TrainDecoder::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& mask) const {
  const std::int64_t rows = q.size(0);
  const std::int64_t length = q.size(2);
  const std::int64_t keys = k.size(2);
  const std::int64_t dim = config_.head_dim;
  const std::int64_t group = config_.heads / config_.kv_heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const at::Tensor scores = at::baddbmm(mask, q.reshape({-1, group * length, dim}),
                                        k.reshape({-1, keys, dim}).transpose(1, 2), 1.0, scale);
  return at::bmm(at::softmax(scores, -1), v.reshape({-1, keys, dim}))
      .view({rows, config_.heads, length, dim})
      .transpose(1, 2)
      .reshape({rows * length, config_.query_size()});
}

// x [tokens, hidden], normed.
at::Tensor TrainDecoder::attention(const Layer& layer, const at::Tensor& x,
                                   const PackedShape& shape) const {
  const at::Tensor q = rotate(heads(layer, 0, x, config_.heads));
  const at::Tensor k = rotate(heads(layer, 1, x, config_.kv_heads));
  const at::Tensor v = heads(layer, 2, x, config_.kv_heads);
  const std::int64_t shared = shape.prefix_tokens();
  const auto prefixes = [&](const at::Tensor& all) {
    return all.narrow(0, 0, shared)
        .view({-1, shape.prefix, all.size(1), all.size(2)})
        .transpose(1, 2);
  };
  const auto rows = [&](const at::Tensor& all) {
    return all.narrow(0, shared, all.size(0) - shared)
        .view({-1, shape.length, all.size(1), all.size(2)})
        .transpose(1, 2);
  };
  if (shape.prefix == 0) return project(layer, 3, attend(rows(q), rows(k), rows(v), row_mask_));
  // The keys or values of each row's prefix, then its own.
  const auto seen = [&](const at::Tensor& all) {
    const at::Tensor parts = prefixes(all);
    std::vector<at::Tensor> repeated;
    for (std::size_t g = 0; g < shape.group_sizes.size(); ++g)
      repeated.push_back(parts.narrow(0, static_cast<std::int64_t>(g), 1)
                             .expand({shape.group_sizes[g], -1, -1, -1}));
    return at::cat({at::cat(repeated, 0), rows(all)}, 2);
  };
  const at::Tensor mixed = at::cat({attend(prefixes(q), prefixes(k), prefixes(v), prefix_mask_),
                                    attend(rows(q), seen(k), seen(v), row_mask_)},
                                   0);
  return project(layer, 3, mixed);
}

at::Tensor TrainDecoder::feed_forward(const Layer& layer, const at::Tensor& x) const {
  return project(layer, 6, at::silu(project(layer, 4, x)) * project(layer, 5, x));
}

void TrainDecoder::prepare(const PackedShape& shape) const {
  const std::int64_t positions = shape.prefix + shape.length;
  std::vector<float> cosine, sine;
  rope_tables(config_, positions, &cosine, &sine);
  const std::int64_t half = config_.head_dim / 2;
  const at::Device where = torch_device(device_);
  // Row by row the positions of its tokens.
  const auto of_tokens = [&](std::vector<float>& table) {
    const at::Tensor all = at::from_blob(table.data(), {positions, 1, half}, at::kFloat);
    const auto groups = static_cast<std::int64_t>(shape.group_sizes.size());
    const at::Tensor in_prefix = all.narrow(0, 0, shape.prefix).repeat({groups, 1, 1});
    const at::Tensor in_row =
        all.narrow(0, shape.prefix, shape.length).repeat({shape.rows(), 1, 1});
    return at::cat({in_prefix, in_row}, 0).to(where);
  };
  cosine_ = of_tokens(cosine);
  sine_ = of_tokens(sine);
  const auto options = at::TensorOptions(at::kFloat).device(where);
  const at::Tensor future = at::ones({positions, positions}, options).triu(1) * kMasked;
  const std::int64_t group = config_.heads / config_.kv_heads;
  row_mask_ = future.narrow(0, shape.prefix, shape.length).repeat({group, 1}).unsqueeze(0);
  prefix_mask_ =
      future.narrow(0, 0, shape.prefix).narrow(1, 0, shape.prefix).repeat({group, 1}).unsqueeze(0);
}

at::Tensor TrainDecoder::hidden(const at::Tensor& ids, const PackedShape& shape) const {
  prepare(shape);
  at::Tensor x = embed(ids);
  for (const Layer& layer : layers_) {
    x = x + attention(layer, norm(x, layer.input_norm), shape);
    x = x + feed_forward(layer, norm(x, layer.post_norm));
  }
  return norm(x, final_norm_);
}

at::Tensor TrainDecoder::hidden(const at::Tensor& ids) const {
  const PackedShape shape{0, ids.size(1), {ids.size(0)}};
  return hidden(ids.reshape({-1}), shape).view({ids.size(0), ids.size(1), config_.hidden_size});
}

}  // namespace plexrl::model
