// SPDX-License-Identifier: Apache-2.0
// OpRun: one op on one model, run in steps. The engine's op thread calls step() until it says
// "finished"; between steps it may stop, suspend the model (same addresses afterwards), or forget
// it.
//
// Between steps a run owns ordinary heap memory only, plus, for forward_backward inside an
// accumulation, a copy of the earlier gradients in the activation arena.
// One thread at a time. Results do not depend on where a run was interrupted: bits are equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine_torch/model_state.h"
#include "ops_generated.h"

namespace plexrl::model {

class OpBatch;

class OpRun {
 public:
  virtual ~OpRun() = default;  // touches no model memory

  // Runs to the next yield point: a token of all rows, a micro-batch. True: finished, take_result.
  // An error ends the run: the model is as it was before the op (gradients included). The model
  // must be resident. NO_CAPACITY: the activation arena is too small for this op.
  [[nodiscard]] virtual Result<bool> step() = 0;

  // Undoes partial effects of a run that will not go on (gradients of the micro-batches done). The
  // model must be resident. Needed only after a step() that returned false.
  virtual void abandon() {}

  // Once, after step() returned true.
  [[nodiscard]] virtual wire::OpValueUnion take_result() = 0;

  // Tokens computed up to now; grows with each step.
  [[nodiscard]] virtual std::uint64_t tokens_done() const noexcept = 0;

  // An empty batch that this run fits; null: its kind of op runs by itself.
  [[nodiscard]] virtual std::unique_ptr<OpBatch> make_batch() const { return nullptr; }
};

// Generate ops of one base that run together, in place of their own step(). Each gives the result
// that it gives alone. One thread at a time.
class OpBatch {
 public:
  virtual ~OpBatch() = default;

  [[nodiscard]] virtual bool fits(const OpRun& run) const = 0;
  // Between two steps. Borrowed until it leaves; it must fit, and its model be resident. After an
  // error it is not in the batch.
  [[nodiscard]] virtual Status join(OpRun& run) = 0;
  // Between two steps; it may go on in any batch that it fits.
  virtual void leave(const OpRun& run) = 0;

  // A run that has left: it is finished, or cannot go on, which touches none of the others.
  struct Ended {
    const OpRun* run;
    Status status;
  };
  // A token of every row. An error is the batch's: none of its runs may go on.
  [[nodiscard]] virtual Result<std::vector<Ended>> step() = 0;
};

struct OpEnv {
  ModelState* state = nullptr;  // outlives the run
  std::span<std::byte> kv;      // generate only: at least kv_bytes(), 64-byte aligned, same address
                                // in every step, contents kept over a suspend
  std::uint64_t version_out = 0;  // number for a Sampler save, > 0
  int fd = -1;                    // save/load of Store or ClientFd; borrowed until the run is gone
};

// Checks every argument before anything is touched: token range, lengths against max_positions,
// array sizes, row counts, NaN. INVALID_ARGUMENT or TOO_LARGE name the argument; NOT_FOUND: the
// version is neither 0 (of a model with a base) nor the published one; UNSUPPORTED: the model's
// mode has no such op.
[[nodiscard]] Result<std::unique_ptr<OpRun>> make_op_run(const OpEnv& env,
                                                         const wire::OpArgsUnion& args);

// Does the op write a segment that commits copy (weights, m, v, sampler weights)? Such an op must
// wait for a commit copy in flight.
[[nodiscard]] bool writes_committed_state(const wire::OpArgsUnion& args);

// Does the op touch the optimizer's moments, or sampler weights before a version is published? All
// but sampling, log-probabilities and forward_backward.
[[nodiscard]] bool needs_whole_state(const wire::OpArgsUnion& args);

// Limits on one op; larger is TOO_LARGE.
inline constexpr std::size_t kMaxRows = 8192;         // rows of generate, sequences, data
inline constexpr std::size_t kMaxOpTokens = 1 << 22;  // tokens of one op, prompt and new ones

}  // namespace plexrl::model
