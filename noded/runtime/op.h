// SPDX-License-Identifier: Apache-2.0
// Op: one accepted function call on its way through the daemon. Owned by the OpTable.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "base/unique_fd.h"
#include "core/types.h"
#include "plexrl_generated.h"

namespace plexrl::runtime {

// What the client gets: a value when the status is ok.
struct OpOutcome {
  Status status;
  std::uint32_t retry_after_ms = 0;
  wire::OpReplyT reply;
};
using OpHandler = std::function<void(const OpOutcome&)>;

// A connection's request that wants the result of an op. Several may wait for one op.
struct Waiter {
  SessionId session;
  std::uint64_t request_id = 0;
  OpHandler handler;
};

enum class OpState : std::uint8_t {
  kGap,        // a smaller number is missing
  kHeld,       // its turn in the stream has not come, or the model is being recovered
  kQueued,     // the scheduler has it
  kRunning,    // the engine has it
  kYielded,    // the engine keeps its progress
  kCommitting  // a load that waits until the loaded state is committed
};
[[nodiscard]] const char* op_state_name(OpState state) noexcept;
[[nodiscard]] const char* op_kind_name(core::OpKind kind) noexcept;

struct OpSize {
  std::uint64_t kv_bytes = 0;     // generate only
  std::uint64_t work_tokens = 0;  // positions that are computed, at most
  std::uint64_t rows = 1;         // of a generate: prompts times samples
};

// A client's op in what the engine was sent of its leader.
struct SharedPart {
  OpId op;
  std::uint64_t prompts = 0;
  std::uint64_t samples = 0;  // of each
  std::uint64_t prompt_tokens = 0;
};

struct Op {
  OpId id;
  ModelId model;
  TenantId tenant;
  core::OpKind kind = core::OpKind::kNone;
  std::uint64_t seq = 0;              // > 0: training
  std::uint64_t sampling_client = 0;  // with `number` > 0: a retried sampling op is recognised
  std::uint64_t number = 0;
  std::uint64_t version = 0;  // sampling: the version it names
  wire::OpArgsUnion args;
  UniqueFd fd;  // save to and load from a client's file
  std::string client;

  OpState state = OpState::kHeld;
  bool reader = false;     // sampling of the model's newest version
  bool replay = false;     // has a result already; run again to rebuild the state
  bool cancelled = false;  // its result is CANCELLED whatever the engine says
  bool started = false;    // the engine has seen it
  bool in_doubt = false;   // of before a restart: whether it has is known when the engine answers
  unsigned deaths = 0;     // engines that died while it ran

  std::uint64_t kv_bytes = 0;
  std::uint64_t work_tokens = 0;
  std::uint64_t rows = 1;  // as in OpSize
  // Of a generate; see SamplingGroups. The three above are those of all that ride with it.
  OpSize own;
  OpId leader;  // it goes with that op, and is kHeld
  std::vector<OpId> riders;
  std::vector<SharedPart> shared;  // what the engine has; empty: the op as it came
  wire::OpArgsUnion shared_args;
  bool alone = false;  // neither leads nor rides
  Duration slice{};    // of a lease, as in core::OpArrived
  Duration limit{};
  TimePoint accepted;
  TimePoint running_since;
  std::int64_t first_run_ns = 0;  // from accepted; 0 = never ran
  std::int64_t run_ns = 0;
  std::int64_t others_before_ns = 0;  // the tenant's totals when it was accepted
  std::int64_t switch_before_ns = 0;
  wire::OpTimingT timing;

  Status refusal;  // not ok: it will not run, this is its result when its turn comes
  std::vector<Waiter> waiters;
  wire::OpValueUnion result;  // of a load that is being committed

  [[nodiscard]] bool training() const { return seq > 0; }
  // Sampling that a retry is recognised of.
  [[nodiscard]] bool known_sampling() const { return sampling_client > 0 && number > 0; }
  [[nodiscard]] bool publish() const;
  // A save to or load from a client's file, which comes with the request only.
  [[nodiscard]] bool needs_client_fd() const;
  // Changes the model's state or its gradients when it succeeds.
  [[nodiscard]] bool has_effect() const;
  [[nodiscard]] bool fed() const {
    return state == OpState::kQueued || state == OpState::kRunning || state == OpState::kYielded;
  }
};

}  // namespace plexrl::runtime
