// SPDX-License-Identifier: Apache-2.0
// OpResults: the end of an op. Makes the outcome with its timing, counts it, and tells everybody
// who asked: a training op's outcome once the log has it on disk. Loop thread only.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "runtime/accounting.h"
#include "runtime/op_log.h"
#include "runtime/op_table.h"

namespace plexrl::runtime {

class OpResults {
 public:
  OpResults(const Clock& clock, OpTable& ops, OpLog& log, Accounting& accounting)
      : clock_(clock), ops_(ops), log_(log), accounting_(accounting) {}

  void accepted(Op& op);       // takes the tenant's totals
  void first_started(Op& op);  // the waiting is over
  // Removes the op from the table. `tokens`: what it computed.
  void finish(Op& op, OpOutcome outcome, std::uint64_t tokens);
  // A replay: no outcome, only the table and the counts.
  void replayed(Op& op);
  // For a number that has a result: now, or once it is stored.
  void repeat(ModelId model, std::uint64_t seq, Waiter waiter);
  // The number has a result, stored or not yet.
  [[nodiscard]] bool knows(ModelId model, std::uint64_t seq) const {
    return untold_.contains({model, seq}) || log_.has_result(model, seq);
  }
  // Some outcome is not on disk yet.
  [[nodiscard]] bool waiting() const { return !untold_.empty(); }

 private:
  struct Untold {
    OpOutcome outcome;
    std::vector<Waiter> waiters;
  };

  void tell(ModelId model, std::uint64_t seq);
  void tell_unkept(ModelId model, const OpOutcome& outcome, std::vector<Waiter> waiters);
  void count(const Op& op, const OpOutcome& outcome, std::uint64_t tokens);
  const Clock& clock_;
  OpTable& ops_;
  OpLog& log_;
  Accounting& accounting_;
  std::map<std::pair<ModelId, std::uint64_t>, Untold> untold_;
};

}  // namespace plexrl::runtime
