// SPDX-License-Identifier: Apache-2.0
// Safetensors on a file descriptor: 8-byte little-endian header length, JSON header padded with
// spaces to a multiple of 8, then data; data_offsets count from the header's end.
// Reads with pread and writes with pwrite at absolute offsets; never maps a foreign file, so a file
// that shrinks meanwhile is an error, not a signal. The header is bounded and checked in full
// before any data is read: ranges inside the file, no overlap, dtype and shape agree with the size,
// no name twice.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::model {

enum class DType : std::uint8_t { kF32, kF16, kBF16, kU64 };
[[nodiscard]] std::string_view dtype_name(DType type) noexcept;
[[nodiscard]] std::size_t dtype_bytes(DType type) noexcept;

struct StoredTensor {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // absolute file offset
  std::uint64_t bytes = 0;
};

inline constexpr std::uint64_t kMaxSafetensorsHeader = 16ULL << 20;

class SafetensorsFile {
 public:
  // The fd is borrowed and must stay open. CORRUPT: truncated, overlapping, contradictory, twice
  // the same name; UNSUPPORTED: a dtype other than DType; IO: what the system said.
  [[nodiscard]] static Result<SafetensorsFile> open(int fd);

  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const noexcept {
    return tensors_;
  }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept {
    return metadata_;
  }

  // The tensors cover the data without a gap, as the safetensors library wants it. CORRUPT. The
  // engine does not need it.
  [[nodiscard]] Status check_cover() const;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return size_; }  // of the file

  // NOT_FOUND, INVALID_ARGUMENT (shape), UNSUPPORTED (dtype) name the tensor. F16 and BF16 are
  // converted. out.size() must be the product of shape.
  [[nodiscard]] Status check(const std::string& name, std::span<const std::int64_t> shape) const;
  [[nodiscard]] Status read_f32(const std::string& name, std::span<const std::int64_t> shape,
                                std::span<float> out) const;
  [[nodiscard]] Result<std::uint64_t> read_u64(const std::string& name) const;

 private:
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::uint64_t data_at_ = 0;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// One that is open for as long as this lives.
struct OpenSafetensors {
  UniqueFd fd;
  SafetensorsFile file;
};
// NOT_FOUND and IO name the path; what is wrong with the file is said of `called`.
[[nodiscard]] Result<OpenSafetensors> open_safetensors(const std::string& path,
                                                       const std::string& called);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

// A file of which not all tensors are in memory at once. Writes from offset 0; does not sync.
class SafetensorsWriter {
 public:
  // The fd is borrowed and must stay open. `keep_equal`: what the file has already and is equal is
  // read instead of written; the fd must allow both.
  [[nodiscard]] static Result<SafetensorsWriter> begin(
      int fd, std::vector<TensorSpec> tensors, const std::map<std::string, std::string>& metadata,
      bool keep_equal = false);
  // The next tensor, contiguous and little-endian.
  [[nodiscard]] Status append(const void* data, std::uint64_t bytes);
  // When all are written: truncates the file to what was written; returns that size.
  [[nodiscard]] Result<std::uint64_t> finish();

 private:
  SafetensorsWriter(int fd, std::vector<TensorSpec> tensors, std::uint64_t at, bool keep_equal)
      : fd_(fd), tensors_(std::move(tensors)), keep_equal_(keep_equal), at_(at) {}
  int fd_;
  std::vector<TensorSpec> tensors_;
  bool keep_equal_;
  std::uint64_t at_;
  std::size_t next_ = 0;
};

struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;  // contiguous, little-endian; borrowed
  std::uint64_t bytes = 0;
};
// Writes from offset 0 and truncates the file to what it wrote; returns that size. Does not sync.
[[nodiscard]] Result<std::uint64_t> write_safetensors(
    int fd, std::span<const TensorToWrite> tensors,
    const std::map<std::string, std::string>& metadata);

}  // namespace plexrl::model
