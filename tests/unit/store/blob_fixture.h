// SPDX-License-Identifier: Apache-2.0
// What tests of blob stores share: completions that wait to be run, and memory with known bytes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "base/unique_fd.h"
#include "store/blob_store.h"

namespace plexrl::store {

// The caller's loop: callbacks come from any thread and run in turn(), as does what is watched.
class Posts {
 public:
  BlobStore::Post post() {
    return [this](std::function<void()> callback) {
      const std::lock_guard lock(mutex_);
      callbacks_.push_back(std::move(callback));
      ::eventfd_write(wakeup_.get(), 1);
    };
  }
  BlobStoreOptions::Watch watch() {
    return [this](int fd, std::function<void()> ready) -> Result<std::shared_ptr<void>> {
      if (refuse_watch) return error(Code::IO, "not watched");
      ready_ = std::move(ready);
      watched_ = fd;
      return std::shared_ptr<void>(this, [](Posts* posts) { posts->watched_ = -1; });
    };
  }
  // Runs what is there; false when nothing came within 10 s.
  bool turn() {
    std::array<pollfd, 2> fds = {pollfd{wakeup_.get(), POLLIN, 0}, pollfd{watched_, POLLIN, 0}};
    const int there = ::poll(fds.data(), fds.size(), 10'000);
    if (there <= 0) return there < 0 && errno == EINTR;
    if (fds[1].revents != 0) ready_();
    eventfd_t count = 0;
    if (fds[0].revents != 0) ::eventfd_read(wakeup_.get(), &count);
    std::deque<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      callbacks.swap(callbacks_);
    }
    for (const auto& callback : callbacks) callback();
    return true;
  }
  bool refuse_watch = false;
  template <class Call>
  Status wait(const Call& call) {
    std::optional<Status> outcome;
    call([&](const Status& status) { outcome = status; });
    while (!outcome)
      if (!turn()) return error(Code::TIMEOUT, "no completion");
    return *outcome;
  }

 private:
  UniqueFd wakeup_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  int watched_ = -1;
  std::function<void()> ready_;
  std::mutex mutex_;
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
    if (before_map) before_map();
    if (fail_at == offset) return error(Code::NO_CAPACITY, "no address space");
    EXPECT_LE(offset + bytes, bytes_);
    mapped_by = std::this_thread::get_id();
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
  std::thread::id mapped_by;
  std::function<void()> before_map;

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
