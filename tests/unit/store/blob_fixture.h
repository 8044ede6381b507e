// SPDX-License-Identifier: Apache-2.0
// What tests of blob stores share: completions that wait to be run, and memory with known bytes.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>

#include "store/blob_store.h"

namespace plexrl::store {

// The caller's loop: callbacks come from any thread and run in turn().
class Posts {
 public:
  BlobStore::Post post() {
    return [this](std::function<void()> callback) {
      const std::lock_guard lock(mutex_);
      callbacks_.push_back(std::move(callback));
      there_.notify_one();
    };
  }
  // Runs one; false when none came within 10 s.
  bool turn() {
    std::unique_lock lock(mutex_);
    if (!there_.wait_for(lock, std::chrono::seconds(10), [this] { return !callbacks_.empty(); }))
      return false;
    const auto callback = std::move(callbacks_.front());
    callbacks_.pop_front();
    lock.unlock();
    callback();
    return true;
  }
  template <class Call>
  Status wait(const Call& call) {
    std::optional<Status> outcome;
    call([&](const Status& status) { outcome = status; });
    while (!outcome)
      if (!turn()) return error(Code::TIMEOUT, "no completion");
    return *outcome;
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  std::deque<std::function<void()>> callbacks_;
};

class TestMemory final : public BlobMemory {
 public:
  explicit TestMemory(std::size_t bytes, unsigned seed = 0)
      : bytes_(bytes),
        padded_((bytes + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment),
        at_(static_cast<std::byte*>(std::aligned_alloc(kBlobAlignment, padded_))) {
    // By pages, as sanitizers make single bytes slow.
    for (std::size_t page = 0; page < padded_ / kBlobAlignment; ++page) {
      std::byte* const at = at_ + page * kBlobAlignment;
      std::memset(at, static_cast<int>(page * 7 + seed), kBlobAlignment);
      std::memcpy(at, &page, sizeof page);
    }
  }
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;
  ~TestMemory() override { std::free(at_); }
  Result<std::byte*> map(std::uint64_t offset, std::size_t bytes, Access) override {
    if (fail_at == offset) return error(Code::NO_CAPACITY, "no address space");
    EXPECT_LE(offset + bytes, bytes_);
    mapped += bytes;
    most_mapped = std::max(most_mapped, mapped);
    return at_ + offset;
  }
  void unmap(std::byte*, std::size_t bytes) override { mapped -= bytes; }
  [[nodiscard]] bool equals(const TestMemory& other) const {
    return bytes_ == other.bytes_ && std::memcmp(at_, other.at_, bytes_) == 0;
  }

  std::size_t mapped = 0;
  std::size_t most_mapped = 0;
  std::optional<std::uint64_t> fail_at;

 private:
  std::size_t bytes_;
  std::size_t padded_;
  std::byte* at_;
};

inline std::string make_test_folder() {
  std::string pattern = testing::TempDir() + "plexrl_blob_XXXXXX";
  EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
  return pattern;
}

}  // namespace plexrl::store
