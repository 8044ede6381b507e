// SPDX-License-Identifier: Apache-2.0
// TokenDecoder: the forward pass for sampling and log-probabilities, without gradients. A batch is
// a list of tokens, each with its row's cache and its position, so prefill and decode are the same
// code and rows of any lengths mix. Two of them: Decoder (own kernels, host memory; the bits of a
// token depend on its row only) and AtenDecoder (any device of LibTorch, agrees within rounding).
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine_torch/model_config.h"

namespace plexrl::model {

// The cache of one row: [layer][K, V][kv_head][capacity][head_dim], contiguous, on the device.
struct KvRow {
  float* data = nullptr;
  std::int64_t capacity = 0;  // positions
};

struct TokenAt {
  std::int32_t token = 0;
  std::int32_t position = 0;  // below the row's capacity
  KvRow row;
};

class TokenDecoder {
 public:
  // At most kChunk tokens per forward call.
  static constexpr std::int64_t kChunk = 256;

  virtual ~TokenDecoder() = default;
  // Takes the working memory and gives it back.
  [[nodiscard]] virtual Status acquire() = 0;
  virtual void release() = 0;
  // Memory for caches of rows that the caller has none for, until the next call or the end.
  [[nodiscard]] virtual Result<float*> make_cache(std::int64_t floats) = 0;

  // Adds the tokens to their rows' caches. Returns the final hidden states [tokens, hidden] on the
  // device, valid until the next call. Tokens of one row must be in order and follow what is
  // cached.
  [[nodiscard]] virtual const float* forward(std::span<const TokenAt> tokens) = 0;
  // hidden [rows, hidden], of forward, to logits [rows, vocab] in host memory.
  virtual void logits(const float* hidden, std::int64_t rows, float* out) const = 0;
  [[nodiscard]] virtual const ModelConfig& config() const noexcept = 0;
};

}  // namespace plexrl::model
