// SPDX-License-Identifier: Apache-2.0
// Pools with contents, a disk and a store, and a StateManager over them that can be killed.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>

#include "fakes/faulty_store.h"
#include "fakes/queued_store.h"
#include "state/state_manager.h"
#include "store/memory_blob_store.h"

namespace plexrl::state {

inline constexpr std::uint64_t kTestChunk = 8;

using Bytes = std::vector<std::byte>;

// The host pool, and its chunks as a blob's memory.
class TestPool {
 public:
  explicit TestPool(std::uint32_t chunks) : bytes_(chunks * kTestChunk) {}
  std::byte* at(std::uint32_t chunk) { return bytes_.data() + chunk * kTestChunk; }
  void put(const Chunks& chunks, const Bytes& from) {
    for (std::size_t i = 0; i < chunks.size(); ++i)
      std::memcpy(at(chunks[i]), from.data() + i * kTestChunk, kTestChunk);
  }
  Bytes get(const Chunks& chunks) {
    Bytes to(chunks.size() * kTestChunk);
    for (std::size_t i = 0; i < chunks.size(); ++i)
      std::memcpy(to.data() + i * kTestChunk, at(chunks[i]), kTestChunk);
    return to;
  }

 private:
  Bytes bytes_;
};

class PoolMemory final : public store::BlobMemory {
 public:
  PoolMemory(TestPool& pool, Chunks chunks) : pool_(pool), chunks_(std::move(chunks)) {}
  Result<std::byte*> map(std::uint64_t, std::size_t, Access access) override {
    buffer_ = pool_.get(chunks_);
    access_ = access;
    return buffer_.data();
  }
  void unmap(std::byte*, std::size_t) override {
    if (access_ == Access::kWrite) pool_.put(chunks_, buffer_);
  }

 private:
  TestPool& pool_;
  Chunks chunks_;
  Bytes buffer_;
  Access access_ = Access::kRead;
};

// Survives crash(): the host pool, the disk, what the store had written.
class TierWorld {
 public:
  TierWorld(std::uint32_t device_chunks, std::uint32_t host_chunks, std::uint32_t disk_chunks,
            std::uint32_t kv_chunks)
      : sizes{kTestChunk, device_chunks, host_chunks},
        disk_chunks_(disk_chunks),
        kv_chunks_(kv_chunks),
        host(host_chunks),
        device(device_chunks) {}

  Status open(bool host_pool_is_new = false) {
    posted.clear();
    manager.reset();
    blobs_.reset();
    queue.reset();
    queue = std::make_unique<store::QueuedStore>(faulty);
    const auto post = [this](std::function<void()> work) { posted.push_back(std::move(work)); };
    blobs_ = store::make_memory_blob_store(disk, post);
    DiskOptions options;
    if (disk_chunks_ > 0) options.blobs = blobs_.get();
    options.memory = [this](const Chunks& chunks) {
      return std::make_shared<PoolMemory>(host, chunks);
    };
    options.post = post;
    options.chunks = disk_chunks_;
    options.kv_chunks = kv_chunks_;
    auto opened = open_state_manager(sizes, queue->queue, host_pool_is_new, std::move(options));
    if (opened) manager = std::move(opened).value();
    return opened.status();
  }
  // kill -9: what waits for the disk never reaches it.
  void kill() {
    if (queue) queue->queue.drop();
  }
  // One thing that is under way goes on; false when there is none.
  bool turn(bool store_first) {
    if (store_first && queue->queue.write_group()) {
      queue->tell();
      return true;
    }
    if (!posted.empty()) {
      const auto work = std::move(posted.front());
      posted.pop_front();
      work();
      return true;
    }
    const bool wrote = queue->queue.write_group();
    queue->tell();
    return wrote;
  }
  void run() {
    while (turn(true)) {
    }
  }
  [[nodiscard]] nlohmann::json table() const {
    return nlohmann::json::parse(manager->table_json());
  }

  PoolSizes sizes;

 private:
  std::uint32_t disk_chunks_;
  std::uint32_t kv_chunks_;

 public:
  TestPool host;
  TestPool device;
  std::shared_ptr<store::MemoryDisk> disk = std::make_shared<store::MemoryDisk>();
  std::unique_ptr<store::StateStore> memory = store::make_memory_store();
  store::FaultyStore faulty{*memory};
  std::unique_ptr<store::QueuedStore> queue;
  std::deque<std::function<void()>> posted;

 private:
  std::unique_ptr<store::BlobStore> blobs_;

 public:
  std::unique_ptr<StateManager> manager;
};

}  // namespace plexrl::state
