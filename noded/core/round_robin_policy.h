// SPDX-License-Identifier: Apache-2.0
// RoundRobinPolicy: turns of one quantum between tenants, ordered by device time used over share.
//
// A tenant keeps its turn while it has ops and the turn's quantum is not used up, so that a switch
// pays for more than one small op. The next turn goes to the waiting tenant with the least virtual
// time (device time * 100 / share). A tenant that comes back from idling starts at the virtual time
// of the tenant in service: start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), so nobody
// saves up time and nobody waits for more than the others' turns.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "core/policy.h"

namespace plexrl::core {

class RoundRobinPolicy final : public Policy {
 public:
  explicit RoundRobinPolicy(Duration quantum) : quantum_(quantum) {}
  void waiting(TenantId tenant, const Offer& offer) override;
  void not_waiting(TenantId tenant) override;
  void gone(TenantId tenant) override;
  void started(TenantId tenant) override;
  void joined(TenantId tenant) override;
  void charge(TenantId tenant, std::uint32_t share_percent, Duration used) override;
  void turn_ran(Duration used) override { turn_used_ns_ += used.ns; }
  [[nodiscard]] std::optional<TenantId> next(const Moment&) const override;
  [[nodiscard]] std::optional<Duration> turn_left(const Runner& runner, TenantId waiter,
                                                  const Moment&) const override;
  [[nodiscard]] bool oldest_op_first() const override { return false; }
  void encode(ByteWriter& out) const override;
  void decode(ByteReader& in) override;

 private:
  struct Account {
    std::uint64_t virtual_ns = 0;
    bool waiting = false;
    bool was_waiting = false;  // when the snapshot was taken
  };
  [[nodiscard]] std::uint64_t virtual_ns(TenantId tenant) const;
  [[nodiscard]] std::int64_t quantum_left() const { return quantum_.ns - turn_used_ns_; }

  Duration quantum_;
  std::map<TenantId, Account> accounts_;
  std::set<std::pair<std::uint64_t, TenantId>> queue_;  // (virtual_ns, tenant) of those that wait
  TenantId turn_;
  std::int64_t turn_used_ns_ = 0;
  std::uint64_t service_ns_ = 0;  // virtual time of the tenant in service
};

}  // namespace plexrl::core
