// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files for tests: what a test wants, right or wrong.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "models/gguf_file.h"

namespace plexrl::model {

class SmallGguf {
 public:
  template <class T>
  static std::string plain(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string text(const std::string& value) {
    return plain<std::uint64_t>(value.size()) + value;
  }

  SmallGguf& raw_key(const std::string& key, std::uint32_t kind, const std::string& value) {
    keys_ += text(key) + plain(kind) + value;
    ++key_count_;
    return *this;
  }
  SmallGguf& integer(const std::string& key, std::uint32_t value) {
    return raw_key(key, 4, plain(value));
  }
  SmallGguf& real(const std::string& key, float value) { return raw_key(key, 6, plain(value)); }
  SmallGguf& string(const std::string& key, const std::string& value) {
    return raw_key(key, 8, text(value));
  }
  SmallGguf& strings(const std::string& key, const std::vector<std::string>& values) {
    std::string items;
    for (const std::string& value : values) items += text(value);
    return raw_key(key, 9, plain<std::uint32_t>(8) + plain<std::uint64_t>(values.size()) + items);
  }
  SmallGguf& integers(const std::string& key, const std::vector<std::int32_t>& values) {
    std::string items;
    for (const std::int32_t value : values) items += plain(value);
    return raw_key(key, 9, plain<std::uint32_t>(5) + plain<std::uint64_t>(values.size()) + items);
  }
  // `shape` as PyTorch has it.
  SmallGguf& tensor(const std::string& name, std::vector<std::uint64_t> shape, GgufType type,
                    const std::string& bytes) {
    tensors_ += text(name) + plain(static_cast<std::uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) tensors_ += plain(*size);
    tensors_ += plain(static_cast<std::uint32_t>(type)) + plain<std::uint64_t>(data_.size());
    ++tensor_count_;
    data_ += bytes;
    data_.resize((data_.size() + 31) / 32 * 32, '\0');
    return *this;
  }
  // Values 0, 1, 2, ... times `scale`, in float32.
  SmallGguf& floats(const std::string& name, const std::vector<std::uint64_t>& shape, float scale) {
    std::uint64_t elements = 1;
    for (const std::uint64_t size : shape) elements *= size;
    std::string bytes;
    for (std::uint64_t i = 0; i < elements; ++i) bytes += plain(static_cast<float>(i) * scale);
    return tensor(name, shape, GgufType::kF32, bytes);
  }

  [[nodiscard]] std::string bytes() const {
    std::string file = "GGUF" + plain<std::uint32_t>(3) + plain<std::uint64_t>(tensor_count_) +
                       plain<std::uint64_t>(key_count_) + keys_ + tensors_;
    file.resize((file.size() + 31) / 32 * 32, '\0');
    return file + data_;
  }

  static UniqueFd file_of(const std::string& bytes) {
    UniqueFd fd(::memfd_create("gguf", MFD_CLOEXEC));
    EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return fd;
  }

 private:
  std::string keys_, tensors_, data_;
  std::uint64_t key_count_ = 0, tensor_count_ = 0;
};

}  // namespace plexrl::model
