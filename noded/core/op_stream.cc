// SPDX-License-Identifier: Apache-2.0
#include "core/op_stream.h"

#include "base/check.h"

namespace plexrl::core {

OpStream::OpStream(OpStreamLimits limits, std::uint64_t finished)
    : limits_(limits), finished_(finished), next_(finished + 1) {}

OpStream::Answer OpStream::offer(std::uint64_t seq) {
  if (seq == 0) return Answer::kInvalid;
  if (seq <= finished_) return seq >= oldest_kept() ? Answer::kDone : Answer::kTooOld;
  if (const auto found = open_.find(seq); found != open_.end())
    return found->second == State::kFinished ? Answer::kDone : Answer::kDuplicate;
  // The next number in turn is let in even when waiting ones fill the window: only it can empty it.
  const bool in_turn = seq == next_;
  if (seq - finished_ > limits_.max_open) return Answer::kFull;
  if (!in_turn && open_.size() >= limits_.max_open) return Answer::kFull;
  open_.emplace(seq, in_turn ? State::kQueued : State::kWaiting);
  if (in_turn) ++next_;
  return in_turn ? Answer::kAccepted : Answer::kWaits;
}

std::optional<std::uint64_t> OpStream::next_ready() {
  const auto found = open_.find(next_);
  if (found == open_.end()) return std::nullopt;
  found->second = State::kQueued;
  return next_++;
}

void OpStream::start(std::uint64_t seq) {
  const auto found = open_.find(seq);
  PLEXRL_CHECK(found != open_.end() && found->second == State::kQueued,
               "only a queued training op can start");
  found->second = State::kRunning;
}

void OpStream::finish(std::uint64_t seq) {
  const auto found = open_.find(seq);
  PLEXRL_CHECK(found != open_.end() && seq < next_ && found->second != State::kFinished,
               "only an accepted, unfinished training op can finish");
  found->second = State::kFinished;
  advance();
}

void OpStream::requeue(std::uint64_t seq) {
  const auto found = open_.find(seq);
  PLEXRL_CHECK(found != open_.end() && found->second == State::kRunning,
               "only a running training op can be queued again");
  found->second = State::kQueued;
}

bool OpStream::cancel(std::uint64_t seq) {
  const auto found = open_.find(seq);
  if (found == open_.end()) return false;
  if (found->second == State::kWaiting) {
    open_.erase(found);
    return true;
  }
  if (found->second != State::kQueued) return false;
  finish(seq);
  return true;
}

std::uint64_t OpStream::oldest_kept() const {
  return finished_ > limits_.kept_results ? finished_ - limits_.kept_results + 1 : 1;
}

void OpStream::advance() {
  while (!open_.empty() && open_.begin()->first == finished_ + 1 &&
         open_.begin()->second == State::kFinished) {
    open_.erase(open_.begin());
    ++finished_;
  }
}

}  // namespace plexrl::core
