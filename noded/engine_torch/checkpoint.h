// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a model on a file descriptor.
//
// Weights: the model's tensors under their Hugging Face (full) or PEFT (lora) names.
// Checkpoint: the same, plus "plexrl.adam_m.<name>", "plexrl.adam_v.<name>" and "plexrl.step" (U64
// [1]): a bit-exact resume at a step boundary. Both carry metadata: format "pt", plexrl_mode,
// plexrl_rank, plexrl_alpha. Gradients are never stored: saving inside an accumulation stores the
// last step.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine_torch/model_state.h"
#include "ops_generated.h"

namespace plexrl::model {

// SHA-256 in lower-case hex over the weights, m and v arenas (in this order, gaps, which are zero,
// included) and the step as 8 little-endian bytes.
[[nodiscard]] Result<std::string> state_sha256(const ModelState& state);

struct SavedFile {
  std::uint64_t bytes = 0;
  std::string sha256;  // of the state, not of the file
};
[[nodiscard]] Result<SavedFile> save_checkpoint(int fd, const ModelState& state,
                                                wire::FileFormat format);

// Reads weights and, with_optimizer, m, v and step; without it m and v become zero and step 0.
// Pending gradients are dropped. Everything is checked before the first byte of the model is
// written; when a read fails after that the model is undefined and the error is LOST (load again).
// CORRUPT, INVALID_ARGUMENT, NOT_FOUND name the tensor.
[[nodiscard]] Status load_checkpoint(int fd, ModelState& state, bool with_optimizer);

}  // namespace plexrl::model
