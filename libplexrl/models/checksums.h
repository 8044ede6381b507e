// SPDX-License-Identifier: Apache-2.0
// SHA256SUMS of a model directory: what `sha256sum` writes and checks, one file a line. Any thread;
// blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"

struct evp_md_ctx_st;

namespace plexrl::model {

inline constexpr const char* kChecksumFile = "SHA256SUMS";

using Checksums = std::map<std::string, std::string>;  // file name: 64 hexadecimal digits

class Sha256 {
 public:
  Sha256();
  void update(const void* data, std::size_t bytes);
  [[nodiscard]] std::string hex();  // once, at the end

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// Bytes done since the last call; false ends the work with CANCELLED.
using ByteProgress = std::function<bool(std::uint64_t bytes)>;

[[nodiscard]] Result<std::string> file_sha256(const std::string& path,
                                              const ByteProgress& progress);

// NOT_FOUND: there is none. CORRUPT: not such a file, or a name with a directory.
[[nodiscard]] Result<Checksums> read_checksums(const std::string& dir);
[[nodiscard]] std::string checksum_text(const Checksums& sums);

}  // namespace plexrl::model
