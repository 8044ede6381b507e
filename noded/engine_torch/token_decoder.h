// SPDX-License-Identifier: Apache-2.0
// TokenDecoder: the forward pass for sampling and log-probabilities, without gradients. A batch is
// a list of tokens, each with its row's cache, its position and its adapter, so prefill and decode
// are the same code and rows of any lengths and versions mix. Two of them: Decoder (own kernels,
// host memory; the bits of a token depend on its row only) and AtenDecoder (any device of LibTorch,
// agrees within rounding).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "engine_torch/model_state.h"

namespace plexrl::model {

// An adapter as the decoder that bound it reads it. Used with that decoder only.
class RowAdapter {
 public:
  virtual ~RowAdapter() = default;
};

// The cache of one row: [layer][K, V][kv_head][capacity][head_dim], contiguous, on the device.
struct KvRow {
  float* data = nullptr;
  std::int64_t capacity = 0;  // positions
};

struct TokenAt {
  std::int32_t token = 0;
  std::int32_t position = 0;  // below the row's capacity
  KvRow row;
  const RowAdapter* adapter = nullptr;  // null: the base alone
};

class TokenDecoder {
 public:
  // At most kChunk tokens per forward call.
  static constexpr std::int64_t kChunk = 256;

  virtual ~TokenDecoder() = default;
  // The published adapter of a model on this decoder's base. Views and a copy: the model's sampler
  // weights must be mapped, and not be written, while rows with it are decoded.
  [[nodiscard]] virtual std::unique_ptr<const RowAdapter> bind_adapter(
      const ModelState& state) const = 0;
  // Positions below `positions` may occur from now on; never fewer than before.
  virtual void reach(std::int64_t positions) = 0;
  // Takes the working memory and gives it back.
  [[nodiscard]] virtual Status acquire() = 0;
  virtual void release() = 0;
  // Memory for caches of rows that the caller has none for, until the next call or the end.
  [[nodiscard]] virtual Result<float*> make_cache(std::int64_t floats) = 0;

  // Adds the tokens to their rows' caches and keeps their final hidden states for `logits`. Tokens
  // of one row must be in order and follow what is cached. Neighbours with the same adapter are
  // computed together.
  virtual void forward(std::span<const TokenAt> tokens) = 0;
  // Of the tokens with these numbers in the last forward: [tokens, vocab] in host memory. At most
  // kChunk.
  virtual void logits(std::span<const std::int64_t> tokens, float* out) = 0;
  [[nodiscard]] virtual const ModelConfig& config() const noexcept = 0;
};

// A decoder over the full weights by which rows of the model are decoded: the base, or the
// published weights of a full-parameter model. On the model's device. The same for all adapters of
// a base. Views only: that memory must be mapped while the decoder is used.
[[nodiscard]] std::unique_ptr<TokenDecoder> make_decoder(const ModelState& state);
// The adapter of a checked version; null when it has none.
[[nodiscard]] std::unique_ptr<const RowAdapter> bind_version(const TokenDecoder& decoder,
                                                             const ModelState& state,
                                                             std::uint64_t version);

}  // namespace plexrl::model
