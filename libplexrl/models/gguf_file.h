// SPDX-License-Identifier: Apache-2.0
// GGUF, versions 2 and 3, on a file descriptor: metadata and where each tensor is. Reads with pread
// and never maps, so a file that shrinks meanwhile is an error, not a signal. The header is bounded
// and checked in full before any data is read: counts, lengths, types, names, ranges inside the
// file. Source: ggml's docs/gguf.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "models/gguf_blocks.h"

namespace plexrl::model {

using GgufValue = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

struct GgufTensor {
  GgufType type = GgufType::kF32;
  std::vector<std::int64_t> shape;  // the last dimension is contiguous, as in PyTorch
  std::uint64_t begin = 0;          // absolute file offset
  std::uint64_t bytes = 0;
  [[nodiscard]] std::int64_t elements() const;
};

class GgufFile {
 public:
  // The fd is borrowed and must stay open. CORRUPT: truncated or contradictory; UNSUPPORTED:
  // another version, byte order or tensor type; TOO_LARGE: a header beyond belief; IO: what the
  // system said.
  [[nodiscard]] static Result<GgufFile> open(int fd);

  [[nodiscard]] const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  [[nodiscard]] const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }

  // INVALID_ARGUMENT names the key when it is missing or of another kind.
  [[nodiscard]] Result<std::string> text(const std::string& key) const;
  [[nodiscard]] Result<std::int64_t> integer(const std::string& key) const;
  [[nodiscard]] Result<double> real(const std::string& key) const;
  [[nodiscard]] Result<std::vector<std::string>> texts(const std::string& key) const;
  [[nodiscard]] Result<std::vector<std::int64_t>> integers(const std::string& key) const;
  [[nodiscard]] bool has(const std::string& key) const { return metadata_.count(key) != 0; }

  // All of the tensor in float32. NOT_FOUND names it.
  [[nodiscard]] Result<std::vector<float>> read(const std::string& name) const;

 private:
  int fd_ = -1;
  std::map<std::string, GgufValue> metadata_;
  std::map<std::string, GgufTensor> tensors_;
};

}  // namespace plexrl::model
