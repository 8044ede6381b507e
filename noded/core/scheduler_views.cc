// SPDX-License-Identifier: Apache-2.0
// What the scheduler expects, told to the policy, to people and to the host tier.
#include <algorithm>

#include "core/device_scheduler.h"

namespace plexrl::core {
namespace {

// An op that runs for longer than expected may do so for a while yet.
Duration left_of(const Op& op) {
  if (op.expected.ns == 0) return {};
  return Duration{std::max({op.expected.ns - op.ran.ns, op.expected.ns / 8, op.ran.ns / 2})};
}

}  // namespace

// ---- for the policy ----

Moment DeviceScheduler::moment() const {
  const std::uint64_t used = std::min(models_.used(), models_.capacity());
  return {now_, models_.capacity() - used};
}

void DeviceScheduler::tenant_waits(TenantId tenant) {
  ledger_.set_waiting(tenant, true, now_);
  policy_->waiting(tenant, offer_of(tenant));
}

void DeviceScheduler::tenant_rests(TenantId tenant) {
  ledger_.set_waiting(tenant, false, now_);
  policy_->not_waiting(tenant);
}

void DeviceScheduler::tenant_gone(TenantId tenant) {
  policy_->gone(tenant);
  costs_.forget(tenant);
  ledger_.forget(tenant);
}

void DeviceScheduler::op_gone(TenantId tenant, const Op& op) {
  ledger_.op_left(tenant, op.kind, now_);
  expect_rest(tenant);
}

Offer DeviceScheduler::offer_of(TenantId tenant) const {
  const Op& next = *ops_.find(ops_.pick(tenant, policy_->oldest_op_first()));
  const Op& oldest = *ops_.find(ops_.oldest(tenant));
  Offer offer;
  offer.oldest = oldest.order;
  offer.since = oldest.waits_since;
  offer.cls = class_of(next.kind);
  offer.service = left_of(next);
  offer.phase = ledger_.phase_left(tenant, offer.cls, offer.service, {});
  offer.whole = ledger_.whole_phase(tenant, offer.cls).value_or(Duration{});
  offer.period = ledger_.period(tenant, offer.cls).value_or(Duration{});
  offer.move_bytes = move_bytes(next);
  offer.late_at = ledger_.late_at(tenant);
  offer.share_percent = models_.at(next.model).share_percent;
  return offer;
}

Runner DeviceScheduler::runner(const Running& running) const {
  Runner result{running.tenant, running.share_percent, {}, {}, {}, running.rows, batch_rows()};
  Op op = *ops_.find(running.op);
  if (op.kind == OpKind::kLease) return result;  // its holder knows
  const OpClass cls = class_of(op.kind);
  const Duration runs = now_ - running.started;
  op.ran.ns += runs.ns;
  result.phase_left = ledger_.phase_left(running.tenant, cls, left_of(op), runs);
  result.whole = ledger_.whole_phase(running.tenant, cls).value_or(Duration{});
  result.period = ledger_.period(running.tenant, cls).value_or(Duration{});
  return result;
}

// What is left of the phase that its last op was of; hardly anything, where it seems to be over.
Runner DeviceScheduler::resting(TenantId tenant, OpKind last) const {
  const OpClass cls = class_of(last);
  Runner result{tenant, models_.share_percent(tenant), {}, {}, {}, 1, 1};
  result.phase_left = ledger_.phase_left(tenant, cls, Duration{1}, {});
  result.whole = ledger_.whole_phase(tenant, cls).value_or(Duration{});
  result.period = ledger_.period(tenant, cls).value_or(Duration{});
  return result;
}

// What has to be copied in before the op can start; what is under way is not counted.
std::uint64_t DeviceScheduler::move_bytes(const Op& op) const {
  const auto away = [](const ModelEntry& entry) {
    const bool out = entry.place == Place::kParked || entry.place == Place::kParking;
    return out ? entry.footprint() : 0;
  };
  const ModelEntry& model = models_.at(op.model);
  return away(model) + (model.base ? away(models_.at(model.base)) : 0);
}

void DeviceScheduler::set_place(ModelId id, Place place) {
  models_.set_place(id, place, now_);
  const ModelEntry& entry = models_.at(id);
  if (entry.tenant) ops_.tell_again(entry.tenant);
  for (const ModelId adapter : entry.adapters) ops_.tell_again(models_.at(adapter).tenant);
}

void DeviceScheduler::learn_move(const ModelEntry& model) {
  costs_.learn_move(model.place == Place::kResuming, model.footprint(), now_ - model.move_began);
}

// ---- for people ----

std::optional<TenantView> DeviceScheduler::tenant(TenantId tenant, TimePoint now) const {
  return ledger_.view(tenant, std::max(now, now_));
}

WaitReason DeviceScheduler::why(OpId id) const {
  using Kind = WaitReason::Kind;
  const auto plain = [](Kind kind) { return WaitReason{kind, {}, OpKind::kNone, {}}; };
  const Op* op = ops_.find(id);
  if (op == nullptr) return {};
  if (!op->queued) return plain(Kind::kRunning);
  if (op->too_large) return plain(Kind::kMemory);
  const ModelEntry& model = models_.at(op->model);
  if (!engine_up(model.engine)) return plain(Kind::kEngineDown);
  if (!runnable(model)) return plain(Kind::kMemory);
  if (id == target_ && committed_ == op->model) return wait_for_switch(*op);
  const Op* target = ops_.find(target_);
  const TenantId holder = !running_.empty() ? running_.begin()->second.tenant
                          : target          ? models_.at(target->model).tenant
                                            : model.tenant;
  if (holder == model.tenant) return wait_for(*op, Kind::kOwnOps, {});
  return wait_for(*op, Kind::kOtherTenant, holder);
}

WaitReason DeviceScheduler::wait_for(const Op& op, WaitReason::Kind kind, TenantId holder) const {
  WaitReason reason{kind, holder, OpKind::kNone, {}};
  const Op* ahead = ops_.find(running_.empty() ? target_ : running_.begin()->first);
  if (ahead == nullptr || ahead == &op) return reason;
  reason.doing = ahead->kind;
  if (ahead->expected.ns == 0) return reason;
  const TimePoint since = running_.empty() ? now_ : running_.begin()->second.started;
  reason.until = since + Duration{std::max<std::int64_t>(ahead->expected.ns - ahead->ran.ns, 0)};
  return reason;
}

// The moves that are under way, and the resume that still has to come.
WaitReason DeviceScheduler::wait_for_switch(const Op& op) const {
  WaitReason reason{WaitReason::Kind::kSwitch, {}, OpKind::kNone, {}};
  const ModelEntry& model = models_.at(op.model);
  const std::uint64_t in_bytes =
      model.place == Place::kResuming ? model.footprint() : move_bytes(op);
  const Duration in = costs_.move(true, in_bytes);
  if (in.ns == 0) return reason;
  const TimePoint since = model.place == Place::kResuming ? model.move_began : now_;
  reason.until = since + in + costs_.move(false, models_.parking());
  return reason;
}

}  // namespace plexrl::core
