// SPDX-License-Identifier: Apache-2.0
// OpResults: the end of an op. Makes the outcome with its timing, keeps a training op's outcome in
// the log before anybody hears of it, counts it, and tells everybody who asked. Loop thread only.
#pragma once

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

 private:
  void count(const Op& op, const OpOutcome& outcome, std::uint64_t tokens);
  const Clock& clock_;
  OpTable& ops_;
  OpLog& log_;
  Accounting& accounting_;
};

}  // namespace plexrl::runtime
