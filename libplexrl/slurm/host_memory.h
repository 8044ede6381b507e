// SPDX-License-Identifier: Apache-2.0
// Host memory of a grant: never less than what StateManager::add_model reserves for the same model.
//
// The engine keeps a model's training state in five float32 arenas of E elements each: weights, m,
// v, sampler weights, gradients (arena_layout.h of the engine; adapters also on bases in bfloat16).
// With R = round up to a chunk:
//   full, lora:  2 * 4 R(4 E) + R(4 E)
//          the first four are committed, so they exist twice (state and shadow copy of the next
//          commit); the gradients once, parked inside an accumulation.
//   full in bfloat16:  2 * (3 R(4 E) + R(2 E)) + R(4 E)
//          the sampler's weights are bfloat16; weights, m and v are the float32 masters
//   none:  0
// Every tensor starts at a multiple of 64 elements, an arena has a multiple of 1024:
//   full:  E = P + 64 * (9 layers + 3), rounded up to 1024; at most nine tensors in a layer, and
//          embedding, final norm and head; an upper bound
//   lora:  E = sum over the seven matrices [out, in] of each layer of r * in and out * r, each
//          rounded up to 64, all to 1024; query and output: [q, h], [h, q]; key and value: [k, h];
//          gate and up: [i, h]; down: [h, i]
// P = parameters, r = rank, h = hidden_size, q = attention_size, k = kv_size, i =
// intermediate_size. The pool's kv_host_mib comes on top once per job.
#pragma once

#include <cstdint>

#include "config/site_config.h"

namespace plexrl::slurm {

// Elements of one arena, gaps included; 0 for mode none.
[[nodiscard]] std::uint64_t arena_elements(const config::ModelEntry& model,
                                           const std::string& train_mode, std::uint32_t rank);
// Of one model of a job, in whole chunks. `train_mode` is lora, full or none.
[[nodiscard]] std::uint64_t model_host_bytes(const config::ModelEntry& model,
                                             const std::string& train_mode, std::uint32_t rank,
                                             std::uint64_t chunk_bytes);

}  // namespace plexrl::slurm
