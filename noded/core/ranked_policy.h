// SPDX-License-Identifier: Apache-2.0
// RankedPolicy: what policies share that compare every tenant that waits. Whose op is next:
//
// 1. a tenant that has waited for very long (a bound, hardly ever needed): the oldest op;
// 2. of those that are not ahead of their fair share: one whose slowdown is above its bound, again
//    the oldest op; else whom the derived policy ranks first;
// 3. but whoever has the device keeps it, while it has ops, for a quantum, and for a multiple of
//    what the switch would cost; and, where the policy says so, while what is left of its phase
//    would be ranked before the others.
//
// Fair share: virtual time = device time * 100 / share, as in start-time fair queueing; who comes
// back from idling has saved up half a lag at most. A tenant is ahead when its virtual time is more
// than a lag above the least one of those that wait. The lag lets a phase go through in one piece.
#pragma once

#include <map>
#include <vector>

#include "core/policy.h"

namespace plexrl::core {

class RankedPolicy : public Policy {
 public:
  RankedPolicy(Duration quantum, const CostModel& costs) : quantum_(quantum), costs_(costs) {}

  void waiting(TenantId tenant, const Offer& offer) override;
  void not_waiting(TenantId tenant) override;
  void gone(TenantId tenant) override;
  void started(TenantId tenant) override;
  void joined(TenantId tenant) override;
  void charge(TenantId tenant, std::uint32_t share_percent, Duration used) override;
  void turn_ran(Duration used) override { turn_used_.ns += used.ns; }
  [[nodiscard]] std::optional<TenantId> next(const Moment& moment) const override;
  [[nodiscard]] std::optional<Duration> turn_left(const Runner& runner, TenantId waiter,
                                                  const Moment& moment) const override;
  [[nodiscard]] std::optional<TenantId> holder() const override;
  [[nodiscard]] bool stays_ahead(const Runner& holder, TenantId waiter,
                                 const Moment& moment) const override;
  [[nodiscard]] bool foresees() const override { return true; }
  [[nodiscard]] bool oldest_op_first() const override { return false; }
  void encode(ByteWriter& out) const override;
  void decode(ByteReader& in) override;

 protected:
  struct Candidate {
    const Offer* offer = nullptr;
    TenantId tenant;
    Duration waited;
    Duration switching;  // to have the tenant's model resident
    // For the derived policy, set by weigh(): larger is better, compared by
    // gain * other.price > other.gain * price.
    std::uint64_t gain = 0;
    std::uint64_t price = 1;
  };
  // Fills in gain and price. Classes are compared first when by_class().
  virtual void weigh(Candidate& candidate) const = 0;
  [[nodiscard]] virtual bool by_class() const = 0;
  // Whether a running op goes on beyond its turn while it would be ranked before the waiter.
  [[nodiscard]] virtual bool finishes_first() const { return false; }

  // The op's predicted time, or a guess.
  [[nodiscard]] static Duration known(Duration predicted);

 private:
  struct Row {
    TenantId tenant;
    Offer offer;
    std::uint64_t virtual_ns = 0;
  };
  struct Account {
    std::uint64_t virtual_ns = 0;
    std::size_t row = kNoRow;  // while it waits
    bool was_waiting = false;  // when the snapshot was taken
  };
  static constexpr std::size_t kNoRow = ~std::size_t{0};

  void come_back(Account& account, const Offer& offer) const;
  [[nodiscard]] Duration switch_cost(const Offer& offer, std::uint64_t free_bytes) const;
  [[nodiscard]] std::uint64_t least_virtual() const;
  [[nodiscard]] std::uint64_t lag_ns(const Offer& offer) const;
  [[nodiscard]] bool goes_first(const Runner& runner, const Row& waiter,
                                const Moment& moment) const;
  [[nodiscard]] Candidate candidate(const Row& row, const Moment& moment) const;
  [[nodiscard]] int rank(const Row& row, const Candidate& candidate, std::uint64_t least,
                         TimePoint now) const;
  [[nodiscard]] bool before(int rank, const Candidate& a, int rank_b, const Candidate& b) const;
  [[nodiscard]] const Row* row_of(TenantId tenant) const;
  [[nodiscard]] std::uint64_t virtual_ns(TenantId tenant) const;

  Duration quantum_;
  const CostModel& costs_;
  std::map<TenantId, Account> accounts_;
  std::vector<Row> rows_;  // in no order: what is chosen does not depend on it
  TenantId turn_;
  Duration turn_used_;
  std::uint64_t floor_ns_ = 0;  // least virtual time of those with work, when an op last began
};

}  // namespace plexrl::core
