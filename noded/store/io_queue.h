// SPDX-License-Identifier: Apache-2.0
// IoQueue: reads and writes of buffers at offsets, many under way at once. io_uring, or
// threads where the kernel or a container refuses it. Made, used and destroyed by one thread at a
// time. Part of the file BlobStore; tests put faults in between.
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"

namespace plexrl::store {

struct IoRequest {
  enum class Kind : std::uint8_t { kRead, kWrite };
  Kind kind = Kind::kRead;
  int fd = -1;
  std::byte* data = nullptr;  // stays in place until the completion
  std::size_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t tag = 0;  // comes back with the completion
  // A second buffer, for what follows in the file.
  std::byte* more = nullptr;
  std::size_t more_bytes = 0;
};

// For readv and writev. `parts` has room for two; how many are used.
inline unsigned io_parts(const IoRequest& request, iovec* parts) {
  parts[0] = {request.data, request.bytes};
  parts[1] = {request.more, request.more_bytes};
  return request.more_bytes > 0 ? 2 : 1;
}

struct IoCompletion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;  // bytes, maybe fewer than asked for; below 0: -errno
};

class IoQueue {
 public:
  // Nothing may be under way.
  virtual ~IoQueue() = default;
  // At most `depth` may be under way. An error (IO): this one was not taken.
  [[nodiscard]] virtual Status submit(const IoRequest& request) = 0;
  // Blocks for one that was submitted.
  [[nodiscard]] virtual IoCompletion wait() = 0;
  // A hint before wait(): nothing can be done before `count` of those under way have completed, so
  // one sleep is enough for all of them. Each sleep costs a turn on a busy processor.
  virtual void sleep_for(unsigned /*count*/) {}
  // For a caller that may not block: readable when a completion may be there. -1: wait() only.
  [[nodiscard]] virtual int fd() const { return -1; }
  // One that is there.
  [[nodiscard]] virtual std::optional<IoCompletion> poll() { return std::nullopt; }
};

// What the operating system says of a file: NO_CAPACITY when there is no room, else IO.
[[nodiscard]] inline Status disk_error(int number, const char* what) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  return errno_error(full ? Code::NO_CAPACITY : Code::IO, number, "%s", what);
}

// UNSUPPORTED: io_uring is not there or not permitted. NO_CAPACITY: no memory for it.
[[nodiscard]] Result<std::unique_ptr<IoQueue>> make_uring_queue(unsigned depth);
// A thread for each request that may be under way.
[[nodiscard]] std::unique_ptr<IoQueue> make_thread_queue(unsigned depth);

}  // namespace plexrl::store
