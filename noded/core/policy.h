// SPDX-License-Identifier: Apache-2.0
// Policy: whose turn it is on a device group. The scheduler says which tenants have ops that could
// run and how long each held the device; the policy orders them. It knows neither memory nor ops.
// Integers and ordered containers only: the same calls give the same answers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/strong_id.h"
#include "core/byte_codec.h"
#include "core/cost_model.h"
#include "core/op_class.h"
#include "core/types.h"

namespace plexrl::core {

// What a tenant that waits would run next, and what is known of it. A function of what has
// happened, never of the time of day, so that a restored scheduler offers the same.
struct Offer {
  std::uint64_t oldest = 0;  // arrival number of the tenant's oldest op
  TimePoint since;           // when that op arrived, or yielded
  OpClass cls = OpClass::kTrain;
  Duration service;              // the next op is expected to take so long; 0: not known
  Duration phase;                // as for what is left of the phase; at least `service`
  Duration whole;                // a whole phase usually takes so long; 0: not known
  Duration period;               // from one such phase to the next when alone; 0: not known
  std::uint64_t move_bytes = 0;  // to be copied in before the op can start
  TimePoint late_at;             // its slowdown passes its bound then
  std::uint32_t share_percent = 100;
};

// Who has the device, or had it last.
struct Runner {
  TenantId tenant;
  std::uint32_t share_percent = 100;
  Duration phase_left;  // expected of the phase it is in; 0: not known
  Duration whole;       // as in its offer
  Duration period;      // as in its offer
  // Of a batch: it is charged for its rows of all of them.
  std::uint64_t rows = 1;
  std::uint64_t batch_rows = 1;

  [[nodiscard]] bool in_batch() const { return batch_rows > rows; }
  // How long it runs until it was charged for so much, rounded up.
  [[nodiscard]] std::int64_t wall_ns(std::uint64_t charged_ns) const;
};

struct Moment {
  TimePoint now;
  std::uint64_t free_bytes = 0;  // of the device, not in use
};

class Policy {
 public:
  virtual ~Policy() = default;

  // The tenant has ops that could run (a running one not counted). Told again at every change.
  virtual void waiting(TenantId tenant, const Offer& offer) = 0;
  virtual void not_waiting(TenantId tenant) = 0;
  virtual void gone(TenantId tenant) = 0;

  // An op of the tenant begins, and with it a turn. Device time is charged in pieces: to each
  // tenant of a batch its part, and the turn all of it.
  virtual void started(TenantId tenant) = 0;
  // An op of the tenant begins beside those that run, in their turn.
  virtual void joined(TenantId tenant) = 0;
  virtual void charge(TenantId tenant, std::uint32_t share_percent, Duration used) = 0;
  virtual void turn_ran(Duration used) = 0;

  // The waiting tenant whose op is next; none when nobody waits.
  [[nodiscard]] virtual std::optional<TenantId> next(const Moment& moment) const = 0;
  // How much longer the running op may go on before it is asked to yield to one of `waiter` (which
  // may be the same tenant); none: it is never asked. Who is behind the waiter may catch up; in a
  // batch, where that takes longer than alone, for a quantum beyond the turn at most.
  [[nodiscard]] virtual std::optional<Duration> turn_left(const Runner& runner, TenantId waiter,
                                                          const Moment& moment) const = 0;
  // Whose turn it is: it would be next if it had an op, as far as the policy can tell now; none
  // where the policy does not know turns that outlive an op.
  [[nodiscard]] virtual std::optional<TenantId> holder() const { return std::nullopt; }
  // Whether the holder, which is away for a moment, would still go before the waiter when it is
  // back; `holder.phase_left` is what is expected to follow.
  [[nodiscard]] virtual bool stays_ahead(const Runner&, TenantId, const Moment&) const {
    return true;
  }
  // Whether the scheduler acts on what it expects: evicts whom it expects last, brings in whom it
  // expects next, holds the device for the holder. Without: least recently used, and nothing ahead.
  [[nodiscard]] virtual bool foresees() const { return false; }
  // Inside a tenant: the oldest op first, or train before logprobs before rollout.
  [[nodiscard]] virtual bool oldest_op_first() const = 0;

  // What waiting() and not_waiting() told is not part of it; the scheduler tells it again.
  virtual void encode(ByteWriter& out) const = 0;
  virtual void decode(ByteReader& in) = 0;
};

// None for a name that is not a policy. `costs` must outlive it.
[[nodiscard]] std::unique_ptr<Policy> make_policy(std::string_view name, Duration quantum,
                                                  const CostModel& costs);

}  // namespace plexrl::core
