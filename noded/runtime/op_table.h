// SPDX-License-Identifier: Apache-2.0
// OpTable: every op that has no result yet. Bounded per tenant. Loop thread only. References stay
// valid until the op is removed.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/op.h"

namespace plexrl::runtime {

class OpTable {
 public:
  // `first`: op numbers above everything an earlier plexrld gave out (see Generation).
  OpTable(OpId first, std::size_t max_per_tenant) : next_(first), max_per_tenant_(max_per_tenant) {}

  // BUSY when the tenant's queue is full.
  [[nodiscard]] Status room_for(TenantId tenant) const;
  [[nodiscard]] OpId take_id() { return OpId{next_.value++}; }
  // The op gets its number unless it has one (an op from the log keeps its own).
  Op& add(Op op);
  // Gives back who waits for it.
  std::vector<Waiter> remove(OpId id);
  // One more waits for the op, or one no longer does; a waiter that is not there is a bug.
  void join(Op& op, Waiter waiter);
  [[nodiscard]] Waiter leave(Op& op, SessionId session, std::uint64_t request_id);
  // Nothing of the session waits any more. The ops it waited for, in order.
  [[nodiscard]] std::set<OpId> leave_all(SessionId session);
  [[nodiscard]] Op* find(OpId id);
  [[nodiscard]] Op* find_seq(ModelId model, std::uint64_t seq);  // not replays
  [[nodiscard]] Op* find_sampling(ModelId model, std::uint64_t client, std::uint64_t number);
  [[nodiscard]] Op* find_request(SessionId session, std::uint64_t request_id);
  [[nodiscard]] std::vector<Op*> of_model(ModelId model);  // in order of their numbers
  [[nodiscard]] std::vector<Op*> of_tenant(TenantId tenant);
  [[nodiscard]] std::map<OpId, Op>& all() { return ops_; }
  [[nodiscard]] std::size_t count(TenantId tenant) const;
  [[nodiscard]] std::size_t running(TenantId tenant) const;

 private:
  OpId next_;
  std::size_t max_per_tenant_;
  std::map<OpId, Op> ops_;
  std::map<TenantId, std::size_t> counts_;
  std::map<ModelId, std::set<OpId>> by_model_;
  // What makes a repeated request known. An op keeps these numbers for life.
  std::set<std::tuple<ModelId, std::uint64_t, OpId>> by_seq_;
  std::set<std::tuple<ModelId, std::uint64_t, std::uint64_t, OpId>> by_sampling_;
  std::set<std::tuple<SessionId, std::uint64_t, OpId>> by_request_;  // of all waiters
};

}  // namespace plexrl::runtime
