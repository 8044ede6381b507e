// SPDX-License-Identifier: Apache-2.0
// OpStream: the ordered, exactly-once training stream of one model (forward_backward, optim_step,
// save, load). Sequence numbers start at 1. Every number is accepted once, in order; a number that
// comes again is recognised, whatever became of the first one; a number that comes early waits.
// Knows numbers only: the caller keeps ops and results. Pure; owned by the loop thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace plexrl::core {

struct OpStreamLimits {
  std::uint32_t max_open = 256;      // accepted and not finished, plus waiting
  std::uint32_t kept_results = 256;  // newest finished numbers whose results the caller keeps
};

class OpStream {
 public:
  enum class Answer : std::uint8_t {
    kAccepted,   // its turn: pass it on, then drain next_ready()
    kWaits,      // a smaller number is missing; next_ready() gives it later
    kDuplicate,  // the same number is waiting, queued or running: attach to it
    kDone,       // finished before: the caller has the result
    kTooOld,     // finished, and its result is no longer kept
    kFull,       // max_open numbers are open, or it lies further ahead than that: BUSY
    kInvalid,    // number 0
  };

  // `finished`: all numbers up to it are finished (from the store after a restart).
  explicit OpStream(OpStreamLimits limits = {}, std::uint64_t finished = 0);

  [[nodiscard]] Answer offer(std::uint64_t seq);
  // The waiting number whose turn has come, now accepted; none when the next one has not come yet.
  [[nodiscard]] std::optional<std::uint64_t> next_ready();
  // An accepted number begins to run; from now on it cannot be cancelled.
  void start(std::uint64_t seq);
  // An accepted number has a result, good or bad. A queued one may finish without having run.
  void finish(std::uint64_t seq);
  // The engine died while it ran: it is queued again and may be started again.
  void requeue(std::uint64_t seq);
  // True when it is gone: a waiting number is forgotten and may be offered again; a queued one
  // counts as finished (the caller stores CANCELLED as its result). False: unknown, running or
  // finished.
  [[nodiscard]] bool cancel(std::uint64_t seq);

  // The first number that was not accepted yet.
  [[nodiscard]] std::uint64_t next_seq() const { return next_; }
  // All numbers up to it are finished.
  [[nodiscard]] std::uint64_t finished() const { return finished_; }
  // Results below this number may be dropped.
  [[nodiscard]] std::uint64_t oldest_kept() const;
  [[nodiscard]] std::size_t open() const { return open_.size(); }

 private:
  enum class State : std::uint8_t { kWaiting, kQueued, kRunning, kFinished };
  void advance();

  OpStreamLimits limits_;
  std::uint64_t finished_;
  std::uint64_t next_;
  std::map<std::uint64_t, State> open_;  // numbers above finished_
};

}  // namespace plexrl::core
