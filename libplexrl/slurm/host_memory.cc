// SPDX-License-Identifier: Apache-2.0
#include "slurm/host_memory.h"

namespace plexrl::slurm {
namespace {

constexpr std::uint64_t kTensorAlign = 64;
constexpr std::uint64_t kArenaAlign = 1024;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

std::uint64_t adapter_elements(const config::ModelEntry& model, std::uint64_t rank) {
  const std::uint64_t h = model.hidden_size;
  const std::uint64_t q = model.attention_size != 0 ? model.attention_size : h;
  const std::uint64_t k = model.kv_size != 0 ? model.kv_size : q;
  const std::uint64_t i = model.intermediate_size;
  const auto side = [&](std::uint64_t size) { return round_up(rank * size, kTensorAlign); };
  const std::uint64_t layer =
      2 * (side(h) + side(q)) + 2 * (side(h) + side(k)) + 3 * (side(h) + side(i));
  return model.layers * layer;
}

std::uint64_t full_elements(const config::ModelEntry& model) {
  return model.parameters + kTensorAlign * (9ULL * model.layers + 3);
}

}  // namespace

std::uint64_t arena_elements(const config::ModelEntry& model, const std::string& train_mode,
                             std::uint32_t rank) {
  if (train_mode == "full") return round_up(full_elements(model), kArenaAlign);
  if (train_mode == "lora") return round_up(adapter_elements(model, rank), kArenaAlign);
  return 0;
}

std::uint64_t model_host_bytes(const config::ModelEntry& model, const std::string& train_mode,
                               std::uint32_t rank, std::uint64_t chunk_bytes) {
  const std::uint64_t elements = arena_elements(model, train_mode, rank);
  const std::uint64_t arena = round_up(sizeof(float) * elements, chunk_bytes);
  const bool half = train_mode == "full" && model.dtype == "bfloat16";
  const std::uint64_t sampler = half ? round_up(2 * elements, chunk_bytes) : arena;
  return 2 * (3 * arena + sampler) + arena;
}

}  // namespace plexrl::slurm
