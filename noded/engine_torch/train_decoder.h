// SPDX-License-Identifier: Apache-2.0
// TrainDecoder: the forward pass with gradients, in plain ATen operators. It makes leaf views of
// the model's arenas whose .grad is a view of the gradients arena, so backward() adds in place.
// A model of type kBFloat16 computes with what a decoder of its weights in bfloat16 would: float32
// masters are rounded on the way (see bf16_linear.h), and their gradients are float32.
// Includes ATen: for the few source files that need it.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "engine_torch/model_state.h"
#include "engine_torch/training_batch.h"

namespace plexrl::model {

class TrainDecoder {
 public:
  // Views only, nothing is copied; the state's memory must stay mapped while tensors are used. With
  // `gradients` the trained tensors are leaves that require grad.
  TrainDecoder(const ModelState& state, bool gradients);

  // ids [shape.tokens()] int64 on the model's device, padding is any token. Returns the states
  // after the final norm [shape.tokens(), hidden]; those of padding mean nothing.
  [[nodiscard]] at::Tensor hidden(const at::Tensor& ids, const PackedShape& shape) const;
  // The same for ids [rows, length], without sharing. Returns [rows, length, hidden].
  [[nodiscard]] at::Tensor hidden(const at::Tensor& ids) const;

  // As it is in memory: float32, or bfloat16.
  [[nodiscard]] const at::Tensor& head() const noexcept { return head_; }
  // states [rows, hidden]. Returns [rows, vocab]. Not for autograd.
  [[nodiscard]] at::Tensor logits(const at::Tensor& states) const;
  // `slopes` [rows, vocab]: gradients by the logits. Into out [rows, hidden]: those by the states.
  void logits_back(const at::Tensor& slopes, at::Tensor& out) const;
  // View of the head's part of the gradients arena; undefined when the head is frozen.
  [[nodiscard]] at::Tensor head_gradient() const {
    return head_.requires_grad() ? head_.grad() : at::Tensor();
  }

 private:
  struct Layer {
    at::Tensor input_norm, post_norm;
    at::Tensor weight[7];       // q k v o gate up down
    at::Tensor bias[3];         // of q, k and v; undefined without
    at::Tensor q_norm, k_norm;  // undefined without
    at::Tensor a[7], b[7];      // adapter; undefined without
  };
  [[nodiscard]] at::Tensor embed(const at::Tensor& ids) const;
  [[nodiscard]] at::Tensor project(const Layer& layer, int target, const at::Tensor& x) const;
  [[nodiscard]] at::Tensor heads(const Layer& layer, int target, const at::Tensor& x,
                                 std::int64_t count) const;
  [[nodiscard]] at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const;
  [[nodiscard]] at::Tensor rotate(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor attention(const Layer& layer, const at::Tensor& x,
                                     const PackedShape& shape) const;
  [[nodiscard]] at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& mask) const;
  [[nodiscard]] at::Tensor feed_forward(const Layer& layer, const at::Tensor& x) const;
  void prepare(const PackedShape& shape) const;

  ModelConfig config_;
  ModelDevice device_;
  double lora_scale_;
  bool half_;  // type kBFloat16
  at::Tensor embedding_, final_norm_, head_;
  at::Tensor head16_;  // with half_: what logits are computed by
  std::vector<Layer> layers_;
  // Of the pass: rotations [tokens, 1, dim / 2]; what queries of the prefixes and of the rows see.
  mutable at::Tensor cosine_, sine_, prefix_mask_, row_mask_;
};

}  // namespace plexrl::model
