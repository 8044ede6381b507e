// SPDX-License-Identifier: Apache-2.0
// TenantLedger: what each tenant has done on the device group, and what follows from it: how much
// of its time it is busy, how much others slow it down, when it will come back. Part of the
// scheduler's snapshot. Times are those of the events; integers only.
//
// A phase is a stretch of ops of one class (training; logprobs; rollout) with short pauses. "Alone"
// is the time that the tenant would have needed by itself: wall time less the time in which all of
// its ops waited for other tenants or for a move.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "core/byte_codec.h"
#include "core/op_class.h"
#include "core/recent.h"
#include "core/types.h"

namespace plexrl::core {

class TenantLedger {
 public:
  static constexpr TimePoint kNever{INT64_MAX};

  void add(TenantId tenant) { (void)rows_[tenant]; }
  void forget(TenantId tenant) { rows_.erase(tenant); }
  void set_bound(TenantId tenant, std::uint32_t permille) { rows_[tenant].bound = permille; }

  void op_arrived(TenantId tenant, OpKind kind, TimePoint now);
  // It ended or was cancelled. `kind` of the last one tells when the next will come.
  void op_left(TenantId tenant, OpKind kind, TimePoint now);
  // Whether ops of the tenant that could run wait.
  void set_waiting(TenantId tenant, bool waiting, TimePoint now);
  void started(TenantId tenant, TimePoint now);
  void stopped(TenantId tenant, OpKind kind, Duration ran, TimePoint now);

  [[nodiscard]] std::optional<TenantView> view(TenantId tenant, TimePoint now) const;
  // When the tenant's slowdown passes its bound if all of its ops go on waiting; kNever without a
  // bound and while an op of it runs.
  [[nodiscard]] TimePoint late_at(TenantId tenant) const;
  // A tenant's next op: `since` its last one left it has had none, and `pause` is what usually
  // follows an op of that kind; none before that was seen. Of the phase under way or just over, it
  // was at work for `used` and paused for `paused` so far.
  struct Rest {
    TimePoint since;
    std::optional<Duration> pause;
    OpKind last = OpKind::kNone;
    Duration used;
    Duration paused;
  };
  // None while the tenant has ops, and before its first.
  [[nodiscard]] std::optional<Rest> rest(TenantId tenant) const;
  // Device time that the tenant's phase of this class will still take, when its running op has run
  // for `running`; at least `least`.
  [[nodiscard]] Duration phase_left(TenantId tenant, OpClass cls, Duration least,
                                    Duration running) const;
  // Device time of a whole phase of this class.
  [[nodiscard]] std::optional<Duration> whole_phase(TenantId tenant, OpClass cls) const;
  // Alone, from one phase of this class to the next.
  [[nodiscard]] std::optional<Duration> period(TenantId tenant, OpClass cls) const;

  void encode(ByteWriter& out) const;
  void decode(ByteReader& in);

 private:
  struct Phase {
    Recent service;  // device time of whole ones
    Recent period;
    std::uint64_t open_ops = 0;
    bool begun = false;
    Duration used;      // by the one under way or the last
    Duration began;     // on the tenant's own clock
    Duration ended;     // when its last op left
    Duration last_ran;  // an op of it
  };
  struct Row {
    std::uint32_t bound = 0;
    bool over = false;  // the slowdown was above the bound when it last began or ceased to wait
    std::uint64_t violations = 0;
    std::uint64_t open_ops = 0;
    bool seen = false;  // an op has come
    TimePoint first;
    TimePoint idle_since;
    OpKind last_kind = OpKind::kNone;
    bool waiting = false;
    std::uint64_t running = 0;  // ops of it
    bool blocked = false;
    TimePoint blocked_since;
    Duration blocked_for;
    Duration device;
    std::array<Phase, kOpClasses> phases;
    std::array<Recent, kOpKinds> pauses;  // from the last op, by its kind, to the next
  };
  static void update_blocked(Row& row, TimePoint now);
  static void look_at_bound(Row& row, TimePoint now);
  // The tenant's own clock: stands still while it is blocked.
  [[nodiscard]] static Duration alone(const Row& row, TimePoint now);
  static void maybe_new_phase(Phase& phase, Duration own);
  static void encode_row(ByteWriter& out, const Row& row);
  static void encode_phase(ByteWriter& out, const Phase& phase);
  [[nodiscard]] static Row decode_row(ByteReader& in);
  [[nodiscard]] static Phase decode_phase(ByteReader& in);
  [[nodiscard]] const Row* find(TenantId tenant) const;

  std::map<TenantId, Row> rows_;
};

}  // namespace plexrl::core
