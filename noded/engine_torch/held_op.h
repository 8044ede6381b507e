// SPDX-License-Identifier: Apache-2.0
// HeldOp: one op that the engine runs or that has yielded; and the piece of work that the compute
// thread does on it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "engine_torch/model_table.h"
#include "engine_torch/ticket.h"

namespace plexrl::worker {

// Set by the protocol thread, read by the compute thread between steps.
struct StopSignal {
  std::atomic<bool> yield{false};
  std::atomic<bool> drop{false};
};

struct HeldOp {
  wire::EngineRunOpT request;
  UniqueFd fd;                        // of a save or load on a client's file
  std::unique_ptr<model::OpRun> run;  // null until it has begun; the compute thread's while it runs
  bool writes_committed = false;
  bool computing = false;  // the compute thread has it
  StopSignal stop;

  Ticket ticket;               // of the latest EngineRunOp
  std::optional<Ticket> drop;  // of an EngineDropOp
  TimePoint arrived;           // of the latest EngineRunOp
  std::uint64_t commit_stall_ns = 0;
  std::uint64_t switch_stall_ns = 0;
};

struct OpOutcome {
  enum class Kind : std::uint8_t { kFinished, kFailed, kYielded, kDropped };
  Kind kind = Kind::kFailed;
  Status error;              // kFailed
  wire::OpValueUnion value;  // kFinished
  std::uint64_t tokens = 0;
  std::uint64_t run_ns = 0;
};

// Maps its KV memory and makes its run. Compute thread, as the next two.
[[nodiscard]] Status begin_op(ModelTable& table, HeldModel& model, HeldOp& op);
// It does not go on: its KV memory is given back.
void end_op(HeldModel& model, HeldOp& op);
// An op by itself: begins it if it has not begun, steps until it is finished, fails, or is told to
// stop, and ends it unless it yields. `progress` grows with each step.
[[nodiscard]] OpOutcome run_op(ModelTable& table, HeldModel& model, HeldOp& op,
                               std::atomic<std::uint64_t>& progress);
// The op has finished: what it wrote, and where training is now. Protocol thread.
void note_position(HeldModel& model, const HeldOp& op);

}  // namespace plexrl::worker
