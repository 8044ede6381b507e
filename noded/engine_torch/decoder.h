// SPDX-License-Identifier: Apache-2.0
// Decoder: TokenDecoder by our own kernels, in host memory. The bits of a token depend on its row
// only, never on the batch. Over bfloat16 weights the inputs of their products are rounded to
// bfloat16; everything else, adapters and caches with it, is float32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine_torch/arena_layout.h"
#include "engine_torch/bf16_gemm.h"
#include "engine_torch/kernels.h"
#include "engine_torch/row_lora.h"
#include "engine_torch/scratch.h"
#include "engine_torch/token_decoder.h"

namespace plexrl::model {

// A matrix as the arena has it: one of the two, the other null.
struct WeightMatrix {
  const float* full = nullptr;
  const Bf16* half = nullptr;
};
// Pointers into an arena of layout `full`. Norms and biases of a bfloat16 arena are widened copies.
struct LayerWeights {
  WeightMatrix q, k, v, o, gate, up, down;
  const float *input_norm, *post_norm;
  const float *q_bias, *k_bias, *v_bias;  // null without
  const float *q_norm, *k_norm;           // null without
};
struct FullWeights {
  WeightMatrix embedding;
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;
  WeightMatrix head;
  std::unique_ptr<float[]> widened;
};
// One of the arenas is null.
[[nodiscard]] FullWeights bind_full(const ModelLayout& layout, const float* arena,
                                    const Bf16* half_arena);

// An adapter for the kernels: A as it lies in the arena, B transposed in a copy, because an adapter
// is small.
class KernelAdapter final : public RowAdapter {
 public:
  KernelAdapter(const ModelLayout& layout, const float* arena);
  // target: 0..6, q k v o gate up down
  [[nodiscard]] const LoraMatrix& matrix(std::int64_t layer, int target) const {
    return matrices_[static_cast<std::size_t>(layer * 7 + target)];
  }

 private:
  std::vector<float> transposed_;
  std::vector<LoraMatrix> matrices_;
};

class Decoder final : public TokenDecoder {
 public:
  // What `weights` points to is borrowed.
  Decoder(const ModelConfig& config, FullWeights weights);

  [[nodiscard]] std::unique_ptr<const RowAdapter> bind_adapter(
      const ModelState& state) const override;
  void reach(std::int64_t positions) override;
  // All working memory is of the activation arena.
  [[nodiscard]] Status acquire() override;
  void release() override { scratch_ = Scratch(); }
  [[nodiscard]] Result<float*> make_cache(std::int64_t floats) override;
  void forward(std::span<const TokenAt> tokens) override;
  void logits(std::span<const std::int64_t> tokens, float* out) override;
  [[nodiscard]] const ModelConfig& config() const noexcept override { return config_; }

 private:
  struct Buffers {
    float *x, *normed, *q, *k, *v, *attended, *gate, *up, *z, *scores;
    float* rounded;  // memory of the input of a product in bfloat16
  };
  [[nodiscard]] std::int64_t scratch_floats(Buffers* out) const;
  [[nodiscard]] std::int64_t rounded_floats() const;
  void multiply(const WeightMatrix& weight, const float* x, float* y, std::int64_t rows,
                std::int64_t in, std::int64_t out) const;
  void group_rows(std::span<const TokenAt> tokens);
  void project(std::int64_t layer, int target, const WeightMatrix& weight, const float* x, float* y,
               std::int64_t rows, std::int64_t in, std::int64_t out);
  void attention(std::int64_t layer, std::span<const TokenAt> tokens);
  void finish_heads(const LayerWeights& weights, std::int64_t rows);
  void cache_and_attend(std::int64_t layer, std::span<const TokenAt> tokens);
  void feed_forward(std::int64_t layer, std::int64_t rows);

  // Rows of the batch that have an adapter, by neighbours with the same.
  struct AdapterRows {
    const KernelAdapter* adapter;
    std::int64_t first, count;
  };

  ModelConfig config_;
  FullWeights weights_;
  std::vector<AdapterRows> groups_;
  std::vector<LoraRows> lora_;  // the same for one matrix
  std::int64_t positions_ = 0;
  std::vector<float> cosine_, sine_;  // [positions, head_dim / 2]
  Scratch scratch_;
  Scratch cache_;
  Buffers buffers_{};
};

// cos and sin of position * theta^(-2 i / dim), [positions, dim / 2], in the rounding of Hugging
// Face: the angle is a float32 product. With the config's scaling.
void rope_tables(const ModelConfig& config, std::int64_t positions, std::vector<float>* cosine,
                 std::vector<float>* sine);

}  // namespace plexrl::model
