// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>

#include <cerrno>
#include <cstdlib>

#include "base/check.h"
#include "store/io_queue.h"

namespace plexrl::store {
namespace {

class UringQueue final : public IoQueue {
 public:
  UringQueue() = default;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  Status open(unsigned depth) {
    const int failed = ::io_uring_queue_init(depth, &ring_, 0);
    open_ = failed == 0;
    if (open_ && (ring_.features & IORING_FEAT_SUBMIT_STABLE) == 0)
      return error(Code::UNSUPPORTED, "io_uring: the kernel is older than 5.5");
    if (open_) return {};
    const Code code = failed == -ENOMEM ? Code::NO_CAPACITY : Code::UNSUPPORTED;
    return errno_error(code, -failed, "io_uring");
  }

  Status submit(const IoRequest& request) override {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    PLEXRL_CHECK(entry != nullptr, "more I/O under way than the queue is deep");
    // The kernel has copied them when submit is back (IORING_FEAT_SUBMIT_STABLE).
    iovec parts[2];
    const unsigned count = io_parts(request, parts);
    if (request.kind == IoRequest::Kind::kRead) {
      ::io_uring_prep_readv(entry, request.fd, parts, count, request.offset);
    } else {
      ::io_uring_prep_writev(entry, request.fd, parts, count, request.offset);
    }
    ::io_uring_sqe_set_data64(entry, request.tag);
    int taken = 0;
    do {
      taken = ::io_uring_submit(&ring_);
    } while (taken == -EINTR || taken == -EAGAIN || taken == -EBUSY);
    // An entry that the kernel has not taken would point to memory that its owner takes back.
    PLEXRL_CHECK(taken == 1, "io_uring takes what fits into its queue");
    return {};
  }

  IoCompletion wait() override {
    io_uring_cqe* entry = nullptr;
    int failed = 0;
    do {
      failed = ::io_uring_wait_cqe(&ring_, &entry);
    } while (failed == -EINTR);
    PLEXRL_CHECK(failed == 0, "io_uring gives a completion for what it took");
    return take(entry);
  }

  // What goes wrong here, wait() is told again.
  void sleep_for(unsigned count) override {
    io_uring_cqe* entry = nullptr;
    static_cast<void>(::io_uring_wait_cqe_nr(&ring_, &entry, count));
  }

  [[nodiscard]] int fd() const override { return ring_.ring_fd; }

  std::optional<IoCompletion> poll() override {
    io_uring_cqe* entry = nullptr;
    if (::io_uring_peek_cqe(&ring_, &entry) != 0) return std::nullopt;
    return take(entry);
  }

 private:
  IoCompletion take(io_uring_cqe* entry) {
    const IoCompletion done{::io_uring_cqe_get_data64(entry), entry->res};
    ::io_uring_cqe_seen(&ring_, entry);
    return done;
  }

  io_uring ring_{};
  bool open_ = false;
};

}  // namespace

Result<std::unique_ptr<IoQueue>> make_uring_queue(unsigned depth) {
  auto queue = std::make_unique<UringQueue>();
  PLEXRL_TRY(queue->open(depth));
  return std::unique_ptr<IoQueue>(std::move(queue));
}

}  // namespace plexrl::store
