// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/model_state.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine_torch/compute_threads.h"
#include "engine_torch/counter_rng.h"

namespace plexrl::model {
namespace {

constexpr std::uint32_t kInitDomain = 0x696e6974;  // keeps the stream apart from sampling

Status check_span(const char* name, std::size_t have, std::uint64_t want) {
  if (have == want) return {};
  return error(Code::INTERNAL, "segment %s has %zu elements, the layout says %llu", name, have,
               static_cast<unsigned long long>(want));
}

// Two normal numbers of one block (Box and Muller). A number depends on its place alone, so threads
// share the work without a trace in the bits.
void fill_normal(std::uint64_t seed, std::uint32_t tensor, double std, std::span<float> out) {
#pragma omp parallel for schedule(static) if (out.size() > 1 << 16)
  for (std::size_t i = 0; i < out.size(); i += 2) {
    const PhiloxBlock r = philox(seed, {static_cast<std::uint32_t>(i),
                                        static_cast<std::uint32_t>(i >> 32), tensor, kInitDomain});
    const double radius = std * std::sqrt(-2.0 * std::log(uniform53(r[0], r[1])));
    const double angle = 2.0 * std::numbers::pi * uniform53(r[2], r[3]);
    out[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < out.size()) out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

double std_of(const TensorSlot& slot, std::int64_t layers, double normal_std) {
  if (slot.init == TensorInit::kNormalLoraA) return 1.0 / std::sqrt(static_cast<double>(slot.cols));
  if (slot.init == TensorInit::kNormalOutput)
    return normal_std / std::sqrt(2.0 * static_cast<double>(layers));
  return normal_std;
}

}  // namespace

Status check_memory(const ModelState& state) {
  const ModelLayout& layout = *state.layout;
  const bool trains = layout.mode != wire::TrainMode::None;
  const std::uint64_t trained = trains ? layout.trainable.elements : 0;
  const bool full = layout.mode == wire::TrainMode::Full;
  const bool half = layout.type == WeightType::kBFloat16;
  const std::uint64_t base = full ? 0 : layout.full.elements;
  PLEXRL_TRY(check_span("weights", state.memory.weights.size(), trained));
  PLEXRL_TRY(check_span("adam_m", state.memory.adam_m.size(), trained));
  PLEXRL_TRY(check_span("adam_v", state.memory.adam_v.size(), trained));
  PLEXRL_TRY(check_span("gradients", state.memory.gradients.size(), trained));
  PLEXRL_TRY(check_span("sampler", state.memory.sampler.size(), half && full ? 0 : trained));
  PLEXRL_TRY(check_span("sampler16", state.memory.sampler16.size(), half && full ? trained : 0));
  PLEXRL_TRY(check_span("base16", state.memory.base16.size(), half ? base : 0));
  return check_span("base", state.memory.base.size(), half ? 0 : base);
}

void initialise(const ArenaLayout& layout, std::int64_t layers, std::uint64_t seed,
                double normal_std, std::span<float> weights) {
  apply_compute_threads();
  std::fill(weights.begin(), weights.end(), 0.0F);
  for (std::size_t i = 0; i < layout.slots.size(); ++i) {
    const TensorSlot& slot = layout.slots[i];
    const std::span<float> tensor = weights.subspan(slot.offset, slot.elements());
    if (slot.init == TensorInit::kZeros) continue;
    if (slot.init == TensorInit::kOnes)
      std::fill(tensor.begin(), tensor.end(), 1.0F);
    else
      fill_normal(seed, static_cast<std::uint32_t>(i), std_of(slot, layers, normal_std), tensor);
  }
}

}  // namespace plexrl::model
