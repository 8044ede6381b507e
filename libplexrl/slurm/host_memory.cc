// SPDX-License-Identifier: Apache-2.0
#include "slurm/host_memory.h"

namespace plexrl::slurm {
namespace {

std::uint64_t training_bytes(std::uint64_t parameters, std::uint64_t bytes_per_parameter,
                             std::uint64_t chunk) {
  const auto chunks = [&](std::uint64_t bytes) { return (bytes + chunk - 1) / chunk * chunk; };
  const std::uint64_t weights = bytes_per_parameter == 4 ? 4 : bytes_per_parameter + 4;
  const std::uint64_t committed = chunks(weights * parameters) + 2 * chunks(4 * parameters) +
                                  chunks(bytes_per_parameter * parameters);
  return 2 * committed + chunks(4 * parameters);
}

}  // namespace

std::uint64_t adapter_parameters(const config::ModelEntry& model, std::uint32_t rank) {
  const std::uint64_t h = model.hidden_size;
  const std::uint64_t q = model.attention_size != 0 ? model.attention_size : h;
  const std::uint64_t k = model.kv_size != 0 ? model.kv_size : q;
  const std::uint64_t i = model.intermediate_size;
  return rank * std::uint64_t{model.layers} * (2 * (h + q) + 2 * (h + k) + 3 * (h + i));
}

std::uint64_t model_host_bytes(const config::ModelEntry& model, const std::string& train_mode,
                               std::uint32_t rank, std::uint64_t chunk_bytes) {
  if (train_mode == "full")
    return training_bytes(model.parameters, model.bytes_per_parameter, chunk_bytes);
  if (train_mode == "lora") return training_bytes(adapter_parameters(model, rank), 4, chunk_bytes);
  return 0;
}

}  // namespace plexrl::slurm
