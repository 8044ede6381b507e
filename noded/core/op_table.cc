// SPDX-License-Identifier: Apache-2.0
#include "core/op_table.h"

#include <algorithm>

#include "base/check.h"

namespace plexrl::core {

namespace {
std::size_t index_of(OpClass cls) { return static_cast<std::size_t>(cls); }
}  // namespace

void OpTable::add_model(ModelId model, TenantId tenant) {
  models_[model].tenant = tenant;
  ++tenants_[tenant].models;
}

void OpTable::remove_model(ModelId model) {
  const auto found = models_.find(model);
  PLEXRL_CHECK(found != models_.end(), "remove of an unknown model");
  set_runnable(model, false);
  for (const Queue& queue : found->second.queues)
    for (const auto& [order, id] : queue) {
      listener_.op_gone(found->second.tenant, ops_.at(id));
      ops_.erase(id);
    }
  for (const OpId id : found->second.too_large) ops_.erase(id);
  const auto tenant = tenants_.find(found->second.tenant);
  models_.erase(found);
  if (--tenant->second.models > 0) return;
  listener_.tenant_gone(tenant->first);
  tenants_.erase(tenant);
}

void OpTable::set_runnable(ModelId model, bool runnable) {
  ModelQueues& queues = models_.at(model);
  if (queues.runnable == runnable) return;
  queues.runnable = runnable;
  TenantHeads& tenant = tenants_.at(queues.tenant);
  bool changed = false;
  for (std::size_t cls = 0; cls < kOpClasses; ++cls) {
    if (queues.queues[cls].empty()) continue;
    const std::pair head{queues.queues[cls].begin()->first, model};
    if (runnable) tenant.heads[cls].insert(head);
    if (!runnable) tenant.heads[cls].erase(head);
    changed = true;
  }
  if (changed) tell(queues.tenant);
}

void OpTable::add(OpId id, Op op) {
  op.order = ++last_order_;
  const auto [entry, added] = ops_.emplace(id, op);
  PLEXRL_CHECK(added, "an op number arrived twice");
  ModelQueues& queues = models_.at(op.model);
  if (op.too_large) {
    queues.too_large.insert(id);
    return;
  }
  insert(queues, op.model, class_of(op.kind), op.order, id);
}

void OpTable::take(OpId id) {
  Op& op = ops_.at(id);
  ModelQueues& queues = models_.at(op.model);
  TenantHeads& tenant = tenants_.at(queues.tenant);
  const bool first = oldest_order(tenant) == op.order;
  tenant.bypassed = first ? 0 : std::min(tenant.bypassed + 1, kMaxBypassed);
  op.queued = false;
  remove(queues, op.model, class_of(op.kind), op.order);
}

void OpTable::put_back(OpId id, TimePoint now) {
  Op& op = ops_.at(id);
  op.queued = true;
  op.waits_since = now;
  // A lease never ends by itself: at its old place it would be the oldest op for ever.
  if (op.kind == OpKind::kLease) op.order = ++last_order_;
  insert(models_.at(op.model), op.model, class_of(op.kind), op.order, id);
}

void OpTable::erase(OpId id) {
  const auto found = ops_.find(id);
  PLEXRL_CHECK(found != ops_.end(), "erase of an unknown op");
  const Op& op = found->second;
  const auto queues = models_.find(op.model);
  if (queues != models_.end()) {
    if (op.too_large) queues->second.too_large.erase(id);
    if (op.queued && !op.too_large) remove(queues->second, op.model, class_of(op.kind), op.order);
    if (!op.too_large) listener_.op_gone(queues->second.tenant, op);
  }
  ops_.erase(found);
}

void OpTable::forget_started(ModelId model) {
  const auto found = models_.find(model);
  if (found == models_.end()) return;
  for (const Queue& queue : found->second.queues)
    for (const auto& [order, id] : queue) {
      ops_.at(id).started = false;
      ops_.at(id).ran = {};
    }
}

const Op* OpTable::find(OpId id) const {
  const auto found = ops_.find(id);
  return found == ops_.end() ? nullptr : &found->second;
}

OpId OpTable::pick(TenantId tenant_id, bool oldest_first) const {
  const TenantHeads& tenant = tenants_.at(tenant_id);
  const bool by_age = oldest_first || tenant.bypassed >= kMaxBypassed;
  const Heads* best = nullptr;
  for (const Heads& heads : tenant.heads) {
    if (heads.empty()) continue;
    if (best == nullptr || (by_age && heads.begin()->first < best->begin()->first)) best = &heads;
  }
  PLEXRL_CHECK(best != nullptr, "a tenant that waits has an op");
  const auto [order, model] = *best->begin();
  const std::size_t cls = static_cast<std::size_t>(best - tenant.heads.data());
  return models_.at(model).queues[cls].begin()->second;
}

std::optional<OpId> OpTable::pick_of(ModelId model, bool oldest_first) const {
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.runnable) return std::nullopt;
  const TenantHeads& tenant = tenants_.at(found->second.tenant);
  const bool by_age = oldest_first || tenant.bypassed >= kMaxBypassed;
  const Queue* best = best_queue(found->second, by_age);
  return best == nullptr ? std::nullopt : std::optional(best->begin()->second);
}

const OpTable::Queue* OpTable::best_queue(const ModelQueues& queues, bool oldest_first) const {
  const Queue* best = nullptr;
  for (const Queue& queue : queues.queues) {
    if (queue.empty()) continue;
    if (best == nullptr || (oldest_first && queue.begin()->first < best->begin()->first))
      best = &queue;
  }
  return best;
}

void OpTable::insert(ModelQueues& queues, ModelId model, OpClass cls, std::uint64_t order,
                     OpId id) {
  Queue& queue = queues.queues[index_of(cls)];
  const bool first = queue.empty() || order < queue.begin()->first;
  if (queues.runnable && first) {
    Heads& heads = tenants_.at(queues.tenant).heads[index_of(cls)];
    if (!queue.empty()) heads.erase({queue.begin()->first, model});
    heads.emplace(order, model);
  }
  queue.emplace(order, id);
  if (queues.runnable && first) tell(queues.tenant);
}

void OpTable::remove(ModelQueues& queues, ModelId model, OpClass cls, std::uint64_t order) {
  Queue& queue = queues.queues[index_of(cls)];
  const bool first = queue.begin()->first == order;
  queue.erase(order);
  if (!queues.runnable || !first) return;
  Heads& heads = tenants_.at(queues.tenant).heads[index_of(cls)];
  heads.erase({order, model});
  if (!queue.empty()) heads.emplace(queue.begin()->first, model);
  tell(queues.tenant);
}

std::optional<std::uint64_t> OpTable::oldest_order(const TenantHeads& tenant) {
  std::optional<std::uint64_t> found;
  for (const Heads& heads : tenant.heads)
    if (!heads.empty() && (!found || heads.begin()->first < *found)) found = heads.begin()->first;
  return found;
}

void OpTable::tell(TenantId tenant) {
  if (oldest_order(tenants_.at(tenant))) {
    listener_.tenant_waits(tenant);
  } else {
    listener_.tenant_rests(tenant);
  }
}

void OpTable::tell_again(TenantId tenant) {
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end() && oldest_order(found->second)) listener_.tenant_waits(tenant);
}

void OpTable::encode(ByteWriter& out) const {
  out.varint(last_order_);
  out.varint(tenants_.size());
  for (const auto& [tenant, heads] : tenants_) {
    out.varint(tenant.value);
    out.varint(heads.bypassed);
  }
  out.varint(ops_.size());
  for (const auto& [id, op] : ops_) {
    out.varint(id.value);
    out.varint(op.model.value);
    out.u8(static_cast<std::uint8_t>(op.kind));
    out.varint(op.device_bytes);
    out.varint(op.work_tokens);
    out.varint(op.rows);
    out.varint(static_cast<std::uint64_t>(op.slice.ns));
    out.varint(static_cast<std::uint64_t>(op.limit.ns));
    for (const std::int64_t ns : {op.waits_since.ns, op.expected.ns, op.ran.ns})
      out.varint(static_cast<std::uint64_t>(ns));
    out.varint(op.order);
    for (const bool value : {op.queued, op.started, op.cancelled, op.too_large, op.alone})
      out.flag(value);
  }
}

void OpTable::decode(ByteReader& in) {
  last_order_ = in.varint();
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const auto tenant = tenants_.find(TenantId{in.varint()});
    const std::uint64_t bypassed = in.varint();
    if (tenant == tenants_.end() || bypassed > kMaxBypassed) return in.fail();
    tenant->second.bypassed = static_cast<std::uint32_t>(bypassed);
  }
  std::set<std::uint64_t> orders;
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const OpId id{in.varint()};
    Op op;
    op.model = ModelId{in.varint()};
    const std::uint8_t kind = in.u8();
    op.kind = static_cast<OpKind>(kind);
    op.device_bytes = in.varint();
    op.work_tokens = in.varint();
    op.rows = in.varint();
    op.slice = decode_duration(in);
    op.limit = decode_duration(in);
    op.waits_since.ns = decode_duration(in).ns;
    op.expected = decode_duration(in);
    op.ran = decode_duration(in);
    op.order = in.varint();
    for (bool* value : {&op.queued, &op.started, &op.cancelled, &op.too_large, &op.alone})
      *value = in.flag();
    const auto model = models_.find(op.model);
    const bool known = model != models_.end();
    if (!in.ok() || kind == 0 || kind > static_cast<std::uint8_t>(OpKind::kLease) || !id ||
        op.rows == 0 || op.order == 0 || op.order > last_order_ ||
        !orders.insert(op.order).second || (!known && op.queued) || !ops_.emplace(id, op).second)
      return in.fail();
    if (op.too_large && known) model->second.too_large.insert(id);
    if (op.queued && !op.too_large)
      model->second.queues[index_of(class_of(op.kind))].emplace(op.order, id);
  }
}

}  // namespace plexrl::core
