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

namespace plexrl::core {

class Policy {
 public:
  virtual ~Policy() = default;

  // The tenant has ops that could run (a running one not counted); `oldest` is the arrival number
  // of the first. Told again at every change.
  virtual void waiting(TenantId tenant, std::uint64_t oldest) = 0;
  virtual void not_waiting(TenantId tenant) = 0;
  virtual void gone(TenantId tenant) = 0;

  // An op of the tenant begins. Its device time is charged in pieces while it runs.
  virtual void started(TenantId tenant) = 0;
  virtual void charge(TenantId tenant, std::uint32_t share_percent, Duration used) = 0;

  // The waiting tenant whose op is next; none when nobody waits.
  [[nodiscard]] virtual std::optional<TenantId> next() const = 0;
  // How much longer `running` may go on before its op is asked to yield to one of `waiter` (which
  // may be the same tenant); none: it is never asked.
  [[nodiscard]] virtual std::optional<Duration> turn_left(TenantId running,
                                                          std::uint32_t share_percent,
                                                          TenantId waiter) const = 0;
  // Inside a tenant: the oldest op first, or train before logprobs before rollout.
  [[nodiscard]] virtual bool oldest_op_first() const = 0;

  // What waiting() and not_waiting() told is not part of it; the scheduler tells it again.
  virtual void encode(ByteWriter& out) const = 0;
  virtual void decode(ByteReader& in) = 0;
};

// None for a name that is not a policy.
[[nodiscard]] std::unique_ptr<Policy> make_policy(std::string_view name, Duration quantum);

}  // namespace plexrl::core
