// SPDX-License-Identifier: Apache-2.0
#include "runtime/op_table.h"

#include <algorithm>

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
  const OpId id = op.id;
  return ops_.insert_or_assign(id, std::move(op)).first->second;
}

void OpTable::remove(OpId id) {
  const auto found = ops_.find(id);
  if (found == ops_.end()) return;
  const auto count = counts_.find(found->second.tenant);
  if (--count->second == 0) counts_.erase(count);
  const auto siblings = by_model_.find(found->second.model);
  siblings->second.erase(id);
  if (siblings->second.empty()) by_model_.erase(siblings);
  ops_.erase(found);
}

Op* OpTable::find(OpId id) {
  const auto found = ops_.find(id);
  return found == ops_.end() ? nullptr : &found->second;
}

Op* OpTable::find_seq(ModelId model, std::uint64_t seq) {
  for (Op* const op : of_model(model))
    if (op->seq == seq && !op->replay) return op;
  return nullptr;
}

Op* OpTable::find_sampling(ModelId model, std::uint64_t client, std::uint64_t number) {
  if (client == 0 || number == 0) return nullptr;
  for (Op* const op : of_model(model))
    if (op->sampling_client == client && op->number == number && !op->cancelled) return op;
  return nullptr;
}

Op* OpTable::find_request(SessionId session, std::uint64_t request_id) {
  for (auto& [id, op] : ops_) {
    const bool waits = std::any_of(op.waiters.begin(), op.waiters.end(), [&](const Waiter& w) {
      return w.session == session && w.request_id == request_id;
    });
    if (waits) return &op;
  }
  return nullptr;
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
