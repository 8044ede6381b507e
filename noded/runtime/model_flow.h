// SPDX-License-Identifier: Apache-2.0
// ModelFlow: which op of one model may go to the scheduler now. Training goes in the order of its
// numbers; a publish waits until nobody samples the version that it replaces, and a load is a wall:
// nothing is fed behind it until its state is committed. During recovery only replays go.
// Knows op numbers only; pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>

#include "base/strong_id.h"
#include "core/op_stream.h"

namespace plexrl::runtime {

class ModelFlow {
 public:
  enum class Gate : std::uint8_t { kNone, kPublish, kLoad };

  explicit ModelFlow(core::OpStream training) : stream(std::move(training)) {}

  core::OpStream stream;

  // An accepted training op, in order.
  void push(OpId op, Gate gate) { ready_.push_back({op, gate}); }
  // The next training op that may be fed, now counted as fed; none when it has to wait.
  [[nodiscard]] OpId next_to_feed();
  void training_ended(OpId op);
  // A queued op is gone.
  void training_cancelled(OpId op);

  // Accepted sampling ops of the model's newest version.
  void reader_arrived() { ++readers_; }
  void reader_left() { --readers_; }
  // A publish is next: the newest version gets no new readers.
  [[nodiscard]] bool replacing() const { return replacing_; }

  // After a restart nothing is fed until the engine has said what it holds: begin_recovery().
  void wait_for_engine() { waits_for_engine_ = true; }
  // Recovery: everything that was fed or waits is forgotten; push() again in order.
  void begin_recovery();
  void expect_replay(OpId op) { replays_.insert(op); }
  // True when that was the last one.
  [[nodiscard]] bool replay_ended(OpId op);
  [[nodiscard]] bool recovering() const { return !replays_.empty(); }
  // What the model holds is not known yet, or being made again: a version may still come.
  [[nodiscard]] bool unsettled() const { return waits_for_engine_ || recovering(); }

 private:
  struct Entry {
    OpId op;
    Gate gate = Gate::kNone;
  };
  std::deque<Entry> ready_;
  std::map<OpId, Gate> fed_;
  std::set<OpId> replays_;
  std::uint64_t readers_ = 0;
  bool replacing_ = false;
  bool waits_for_engine_ = false;
};

}  // namespace plexrl::runtime
