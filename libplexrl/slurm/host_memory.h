// SPDX-License-Identifier: Apache-2.0
// Host memory of a grant: never less than what StateManager::add_model reserves for the same model.
//
// P = parameters, b = bytes_per_parameter (4, or 2 with float32 masters), R = round up to a chunk.
//   none:  0
//   full:  2 * (R(w P) + R(4 P) + R(4 P) + R(b P)) + R(4 P)      w = 4 for b = 4, else 6
//          the committed segments weights, m, v and sampler weights, twice (state and shadow copy
//          of the next commit), and the gradients once, parked inside an accumulation.
//   lora:  the same with A for P, in float32 (w = b = 4), where A counts an adapter of rank r on
//   the
//          seven matrices of each layer, each of r * (inputs + outputs) parameters:
//          A = r * layers * (2 (h + q) + 2 (h + k) + 3 (h + i))
//          h = hidden_size, q = attention_size, k = kv_size, i = intermediate_size; query and
//          output: h+q, key and value: h+k, gate, up and down: h+i.
// The pool's kv_host_mib comes on top once per job. Without bias: the adapters have none.
#pragma once

#include <cstdint>

#include "config/site_config.h"

namespace plexrl::slurm {

[[nodiscard]] std::uint64_t adapter_parameters(const config::ModelEntry& model, std::uint32_t rank);
// Of one model of a job, in whole chunks. `train_mode` is lora, full or none.
[[nodiscard]] std::uint64_t model_host_bytes(const config::ModelEntry& model,
                                             const std::string& train_mode, std::uint32_t rank,
                                             std::uint64_t chunk_bytes);

}  // namespace plexrl::slurm
