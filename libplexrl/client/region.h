// SPDX-License-Identifier: Apache-2.0
// Region: memory of a lease holder that keeps its address and its contents while others have the
// device. Behind it is a sealed memfd that the service gave and that is charged to the job's grant;
// RegionMemory says what the process computes on. Guarded by its lease's mutex.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"

namespace plexrl::client {

// Address space that is usable only between resume and suspend; touching it at other times faults.
// Made suspended. `fd`: the region's memfd, which holds the contents while it is suspended.
class RegionMemory {
 public:
  virtual ~RegionMemory() = default;
  [[nodiscard]] virtual void* address() const = 0;
  // Contents as of the last suspend; zeros the first time. On an error it is as before.
  [[nodiscard]] virtual Status resume(int fd) = 0;
  [[nodiscard]] virtual Status suspend(int fd) = 0;
};
using RegionMemoryFactory =
    std::function<Result<std::unique_ptr<RegionMemory>>(std::uint64_t bytes)>;

// Memory of the process: the memfd itself is mapped while the lease is held, nothing is copied.
[[nodiscard]] Result<std::unique_ptr<RegionMemory>> make_mapped_memory(std::uint64_t bytes);

class Region {
 public:
  // PROTOCOL unless `fd` is a memfd of `bytes` that cannot shrink.
  [[nodiscard]] static Result<std::unique_ptr<Region>> make(std::uint64_t id, UniqueFd fd,
                                                            std::uint64_t bytes,
                                                            const RegionMemoryFactory& memory);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  [[nodiscard]] Status resume() { return memory_->resume(fd_.get()); }
  [[nodiscard]] Status suspend() { return memory_->suspend(fd_.get()); }

  [[nodiscard]] void* address() const { return memory_->address(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  void set_id(std::uint64_t id) { id_ = id; }  // after a reconnect
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Region(std::uint64_t id, UniqueFd fd, std::uint64_t bytes, std::unique_ptr<RegionMemory> memory)
      : id_(id), fd_(std::move(fd)), bytes_(bytes), memory_(std::move(memory)) {}

  std::uint64_t id_;
  UniqueFd fd_;
  std::uint64_t bytes_;
  std::unique_ptr<RegionMemory> memory_;
};

}  // namespace plexrl::client
