// SPDX-License-Identifier: Apache-2.0
// ArenaLayout: where each tensor of a model lies in its flat arenas. A pure function of (config,
// mode, rank, type); plexrld sizes segments by it and the engine makes its views by it.
//
// Every tensor starts at a multiple of 64 elements; an arena's bytes are a multiple of 4 KiB. The
// gap after a tensor is zero, always. Weights, m, v, gradients and sampler weights of a model share
// one layout. Matrices are [out, in], row-major. Elements are float32; with kBFloat16 those of the
// base, and of a full-parameter model's sampler weights, are bfloat16.
//
// Order: full weights: embedding; per layer: input norm, q, k, v, their biases, norms of the heads
// of q and k, o, post-attention norm, gate, up, down; final norm; head unless tied. Biases and head
// norms where the model has them. Adapter: per layer and target (q, k, v, o, gate, up, down):
// A [rank, in], B [out, rank].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine_generated.h"
#include "engine_torch/model_config.h"

namespace plexrl::model {

// LoRA alpha, whatever the rank; scale = alpha / rank (Tinker's convention).
inline constexpr double kLoraAlpha = 32.0;
inline constexpr std::uint32_t kMaxLoraRank = 256;

enum class TensorInit : std::uint8_t {
  kNormal,        // std of the model
  kNormalOutput,  // the same / sqrt(2 * layers): o and down
  kOnes,          // norms
  kNormalLoraA,   // 1 / sqrt(in)
  kZeros          // LoRA B, biases
};

// What the weights are that matrix products read.
enum class WeightType : std::uint8_t { kFloat32, kBFloat16 };

struct TensorSlot {
  std::string name;          // Hugging Face or PEFT name
  std::int64_t rows = 0;     // 1 for a vector
  std::int64_t cols = 0;     // in
  bool vector = false;       // shape [cols] instead of [rows, cols]
  std::uint64_t offset = 0;  // elements from the arena's start
  TensorInit init = TensorInit::kZeros;
  [[nodiscard]] std::uint64_t elements() const noexcept {
    return static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(cols);
  }
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    if (vector) return {cols};
    return {rows, cols};
  }
};

struct ArenaLayout {
  std::vector<TensorSlot> slots;
  std::uint64_t elements = 0;    // of the arena, gaps included, a multiple of 1024
  std::uint64_t parameters = 0;  // without gaps
  [[nodiscard]] std::uint64_t bytes() const noexcept { return elements * sizeof(float); }
  [[nodiscard]] std::uint64_t bytes_as(WeightType type) const noexcept {
    return type == WeightType::kFloat32 ? bytes() : (bytes() / 2 + 4095) / 4096 * 4096;
  }
};

// Everything about the memory of one model. Shared read-only by all models of the same kind.
struct ModelLayout {
  ModelConfig config;
  wire::TrainMode mode = wire::TrainMode::None;  // None: the base alone, sampling only
  std::uint32_t lora_rank = 0;                   // Lora only
  WeightType type = WeightType::kFloat32;
  ArenaLayout full;       // the base's weights; of a full-parameter model also its trained ones
  ArenaLayout trainable;  // Full: the same as `full`; Lora: the adapter; None: empty
  [[nodiscard]] float lora_scale() const noexcept {
    return lora_rank == 0 ? 0.0F : static_cast<float>(kLoraAlpha / lora_rank);
  }
};

// INVALID_ARGUMENT: rank 0 or above kMaxLoraRank with Lora; a rank with another mode.
[[nodiscard]] Result<ModelLayout> make_model_layout(const ModelConfig& config, wire::TrainMode mode,
                                                    std::uint32_t lora_rank,
                                                    WeightType type = WeightType::kFloat32);

// The segments that a model of this layout owns. Lora: the five training segments (the base belongs
// to model 0). None: Base only. Full: the five, no Base. Kv is per op, never listed here.
struct SegmentBytes {
  wire::SegmentKind kind = wire::SegmentKind::Weights;
  std::uint64_t bytes = 0;
  bool committed = false;  // gradients are not: they are parked only inside an accumulation
};
[[nodiscard]] std::vector<SegmentBytes> segment_sizes(const ModelLayout& layout);

// K and V of one position of one row, over all layers.
[[nodiscard]] std::uint64_t kv_bytes_per_position(const ModelConfig& config);

// What a generate op needs in its Kv segment: sum over rows of (prompt + max_new_tokens) positions.
// TOO_LARGE when that does not fit 2^48 bytes. Does not check the tokens.
[[nodiscard]] Result<std::uint64_t> kv_bytes(const ModelConfig& config,
                                             const wire::GenerateArgsT& args);

}  // namespace plexrl::model
