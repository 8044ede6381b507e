// SPDX-License-Identifier: Apache-2.0
// Import of a GGUF file: its weights, dequantised once to float32, its configuration and its
// tokenizer become a model directory in Hugging Face layout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"

namespace plexrl::model {

struct ImportedModel {
  std::string architecture;  // of the GGUF: llama, qwen2, qwen3
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of model.safetensors
};

// Called after each tensor, with bytes of float32; false ends the import with CANCELLED.
using ImportProgress = std::function<bool(std::uint64_t done, std::uint64_t all)>;

// Makes the directory `to`, whose parent must exist; EXISTS when it is there. It is a
// PartialDirectory until then; what an import that was cancelled or failed by IO left of the
// weights and is equal is not written again. BUSY: another import. UNSUPPORTED names the
// architecture, key or tensor that is not known; CORRUPT and INVALID_ARGUMENT what is wrong with
// the file. Memory: the largest tensor twice.
[[nodiscard]] Result<ImportedModel> import_gguf(const std::string& from, const std::string& to,
                                                const ImportProgress& progress);

}  // namespace plexrl::model
