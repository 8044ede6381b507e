// SPDX-License-Identifier: Apache-2.0
// What was trained, in the formats of others: an adapter as a PEFT directory, a full model as a
// Hugging Face directory, an adapter merged into its base. Each directory appears when it is whole,
// with SHA256SUMS. Any thread; blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/safetensors.h"

namespace plexrl::model {

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
};

struct ModelExport {
  std::string from;            // the file of a save, or for a merge also a PEFT directory
  std::string base;            // directory of the base
  std::string to;              // EXISTS when it is there; its parent must exist
  std::optional<DType> dtype;  // of the weights; without: as the base has them
  // What the base's configuration asks for, in the order of the result. Not for PEFT.
  std::vector<TensorShape> tensors;
};

struct ExportedModel {
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of the weight file
  DType dtype = DType::kF32;
};

using ExportProgress = std::function<bool(std::uint64_t done, std::uint64_t all)>;  // bytes

enum class SavedKind : std::uint8_t { kFull, kAdapter };
// Of the file of a save. INVALID_ARGUMENT: it is not one.
[[nodiscard]] Result<SavedKind> saved_kind(const std::string& path);

// Tensors stay float32. `base` may be "": then adapter_config.json names none.
[[nodiscard]] Result<ExportedModel> export_peft(const ModelExport& request,
                                                const ExportProgress& progress);
// config.json and tokenizer are the base's. CORRUPT, NOT_FOUND, INVALID_ARGUMENT name the tensor
// that does not fit the base's configuration.
[[nodiscard]] Result<ExportedModel> export_full(const ModelExport& request,
                                                const ExportProgress& progress);
// W + scale * B A in float32, then rounded to the dtype. Memory: two of the largest tensor.
// UNSUPPORTED: the adapter has what the base has not. INVALID_ARGUMENT: a number is too large for
// F16.
[[nodiscard]] Result<ExportedModel> merge_adapter(const ModelExport& request,
                                                  const ExportProgress& progress);

}  // namespace plexrl::model
