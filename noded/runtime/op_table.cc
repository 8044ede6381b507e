// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_table.h"

#include <algorithm>

#include "base/check.h"

namespace plexrl::runtime {

Status OpTable::room_for(TenantId tenant) const {
  if (count(tenant) < max_per_tenant_) return {};
  return error(Code::BUSY,
               "%zu ops of this job are queued, which is the limit; retry when one ended",
               max_per_tenant_);
}

Op& OpTable::add(Op op) {
  if (!op.id) op.id = OpId{next_.value++};
  ++counts_[op.tenant];
  by_model_[op.model].insert(op.id);
  if (op.training()) by_seq_.emplace(op.model, op.seq, op.id);
  if (op.known_sampling()) by_sampling_.emplace(op.model, op.sampling_client, op.number, op.id);
  for (const Waiter& waiter : op.waiters)
    by_request_.emplace(waiter.session, waiter.request_id, op.id);
  const OpId id = op.id;
  return ops_.insert_or_assign(id, std::move(op)).first->second;
}

std::vector<Waiter> OpTable::remove(OpId id) {
  const auto found = ops_.find(id);
  if (found == ops_.end()) return {};
  Op& op = found->second;
  const auto count = counts_.find(op.tenant);
  if (--count->second == 0) counts_.erase(count);
  by_seq_.erase({op.model, op.seq, id});
  by_sampling_.erase({op.model, op.sampling_client, op.number, id});
  const auto siblings = by_model_.find(op.model);
  siblings->second.erase(id);
  if (siblings->second.empty()) by_model_.erase(siblings);
  for (const Waiter& waiter : op.waiters)
    by_request_.erase({waiter.session, waiter.request_id, id});
  std::vector<Waiter> waiters = std::move(op.waiters);
  ops_.erase(found);
  return waiters;
}

void OpTable::join(Op& op, Waiter waiter) {
  by_request_.emplace(waiter.session, waiter.request_id, op.id);
  op.waiters.push_back(std::move(waiter));
}

Waiter OpTable::leave(Op& op, SessionId session, std::uint64_t request_id) {
  const auto found = std::find_if(op.waiters.begin(), op.waiters.end(), [&](const Waiter& w) {
    return w.session == session && w.request_id == request_id;
  });
  PLEXRL_CHECK(found != op.waiters.end(), "who leaves an op waits for it");
  Waiter gone = std::move(*found);
  op.waiters.erase(found);
  by_request_.erase({session, request_id, op.id});
  return gone;
}

std::set<OpId> OpTable::leave_all(SessionId session) {
  std::set<OpId> left;
  auto it = by_request_.lower_bound({session, 0, OpId{}});
  while (it != by_request_.end() && std::get<SessionId>(*it) == session) {
    left.insert(std::get<OpId>(*it));
    it = by_request_.erase(it);
  }
  for (const OpId id : left)
    std::erase_if(ops_.at(id).waiters, [&](const Waiter& w) { return w.session == session; });
  return left;
}

Op* OpTable::find(OpId id) {
  const auto found = ops_.find(id);
  return found == ops_.end() ? nullptr : &found->second;
}

Op* OpTable::find_seq(ModelId model, std::uint64_t seq) {
  for (auto it = by_seq_.lower_bound({model, seq, OpId{}}); it != by_seq_.end(); ++it) {
    const auto& [its_model, its_seq, id] = *it;
    if (its_model != model || its_seq != seq) break;
    Op& op = ops_.at(id);
    if (!op.replay) return &op;
  }
  return nullptr;
}

Op* OpTable::find_sampling(ModelId model, std::uint64_t client, std::uint64_t number) {
  auto it = by_sampling_.lower_bound({model, client, number, OpId{}});
  for (; it != by_sampling_.end(); ++it) {
    const auto& [its_model, its_client, its_number, id] = *it;
    if (its_model != model || its_client != client || its_number != number) break;
    Op& op = ops_.at(id);
    if (!op.cancelled) return &op;
  }
  return nullptr;
}

Op* OpTable::find_request(SessionId session, std::uint64_t request_id) {
  const auto it = by_request_.lower_bound({session, request_id, OpId{}});
  if (it == by_request_.end()) return nullptr;
  const auto& [its_session, its_request, id] = *it;
  const bool same = its_session == session && its_request == request_id;
  return same ? &ops_.at(id) : nullptr;
}

std::vector<Op*> OpTable::of_model(ModelId model) {
  std::vector<Op*> list;
  const auto found = by_model_.find(model);
  if (found == by_model_.end()) return list;
  for (const OpId id : found->second) list.push_back(&ops_.at(id));
  return list;
}

std::vector<Op*> OpTable::of_tenant(TenantId tenant) {
  std::vector<Op*> list;
  for (auto& [id, op] : ops_)
    if (op.tenant == tenant) list.push_back(&op);
  return list;
}

std::size_t OpTable::count(TenantId tenant) const {
  const auto found = counts_.find(tenant);
  return found == counts_.end() ? 0 : found->second;
}

std::size_t OpTable::running(TenantId tenant) const {
  return static_cast<std::size_t>(std::count_if(ops_.begin(), ops_.end(), [&](const auto& entry) {
    return entry.second.tenant == tenant && entry.second.state == OpState::kRunning;
  }));
}

}  // namespace plexrl::runtime
