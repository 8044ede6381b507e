// SPDX-License-Identifier: Apache-2.0
// ModelState: one model over memory that somebody else maps. Plain data: no tensor outlives an op,
// so the memory may be unmapped between ops (and, for a yielded op, between its steps) as long as
// it comes back at the same addresses. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "engine_torch/arena_layout.h"
#include "engine_torch/bf16_gemm.h"

namespace plexrl::model {

// Each span has exactly ModelLayout::trainable.elements (`base`: full.elements), 64-byte aligned.
// A span is empty when the model has no such segment.
struct ModelMemory {
  std::span<float> weights;
  std::span<float> adam_m;
  std::span<float> adam_v;
  std::span<float> gradients;
  std::span<float> sampler;     // copy of weights at the last publish
  std::span<const float> base;  // Lora and None: weights of model 0; shared, never written by ops
  // With ModelLayout::type kBFloat16: instead of `base`, and of `sampler` of a Full model.
  std::span<const Bf16> base16;
  std::span<Bf16> sampler16;
};

// Where a model's memory is, and what computes on it.
struct ModelDevice {
  enum class Math : std::uint8_t {
    kKernels,  // host memory, our own kernels: the bits that kernels.h promises
    kAten      // memory of a LibTorch device, plain ATen operators: the same within rounding
  };
  Math math = Math::kKernels;
  int cuda = -1;  // kAten: number of the CUDA device; -1: the CPU, by which ATen's math is tested
};

struct ModelState {
  const ModelLayout* layout = nullptr;  // outlives the state
  ModelMemory memory;
  ModelDevice device;                 // of all of `memory`; the host touches it only on kKernels
  std::uint64_t step = 0;             // optimizer steps applied
  std::uint64_t sampler_version = 0;  // what `sampler` holds; 0 = nothing yet
  bool gradients_pending = false;     // `gradients` is not all zero by intent
};

// Spans of the right size for the mode? INTERNAL otherwise; for the engine's own use after mapping.
[[nodiscard]] Status check_memory(const ModelState& state);

// Fills weights by the counter-based generator: the same (layout, seed) gives the same bits
// everywhere. `weights` has layout.elements; gaps are zeroed. normal_std is for kNormal; adapters
// do not use it.
void initialise(const ArenaLayout& layout, std::int64_t layers, std::uint64_t seed,
                double normal_std, std::span<float> weights);

}  // namespace plexrl::model
