// SPDX-License-Identifier: Apache-2.0
// OpResults: the end of an op. Makes the outcome with its timing, keeps a training op's outcome in
// the log before anybody hears of it, counts it, and tells everybody who asked. Loop thread only.
#pragma once

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
  // Removes the op from the table. `tokens`: what it computed. A training op's outcome that the
  // store does not take is told once retry() has stored it.
  void finish(Op& op, OpOutcome outcome, std::uint64_t tokens);
  // A replay: no outcome, only the table and the counts.
  void replayed(Op& op);
  // For a number that has a result: now, or once it is stored.
  void repeat(ModelId model, std::uint64_t seq, Waiter waiter);
  // Stores and tells what the store did not take before.
  void retry();
  [[nodiscard]] bool waiting() const { return !untold_.empty(); }

 private:
  struct Untold {
    ModelId model;
    std::uint64_t seq = 0;
    OpOutcome outcome;
    std::vector<Waiter> waiters;
  };

  [[nodiscard]] bool keep(const Op& op, const OpOutcome& outcome);
  void count(const Op& op, const OpOutcome& outcome, std::uint64_t tokens);
  const Clock& clock_;
  OpTable& ops_;
  OpLog& log_;
  Accounting& accounting_;
  std::vector<Untold> untold_;
};

}  // namespace plexrl::runtime
