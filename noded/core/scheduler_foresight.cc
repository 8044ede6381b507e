// SPDX-License-Identifier: Apache-2.0
// What the scheduler does because of what it expects: it holds the device for a tenant that is back
// in a moment, brings models in before they are used, and tells the host tier what comes.
#include <algorithm>

#include "core/device_scheduler.h"

namespace plexrl::core {
namespace {

// In the pauses of a phase the device may stand still for this part of the phase's time so far, so
// that it goes through in one piece: of two phases of equal length that take turns both end when
// the second would, and jobs whose phases overlap once do so for ever.
constexpr std::int64_t kHoldPart = 16;

Duration distance(TimePoint a, TimePoint b) { return a < b ? b - a : a - b; }

}  // namespace

void DeviceScheduler::expect_ops(const ModelEntry& model) {
  if (!model.needed && policy_->foresees()) models_.expect(model.tenant, {now_, true, false});
}

void DeviceScheduler::expect_rest(TenantId tenant) {
  const auto rest = ledger_.rest(tenant);
  if (!rest || !policy_->foresees()) return;
  const TimePoint next = rest->since + rest->pause.value_or(Duration{});
  models_.expect(tenant, {next, false, rest->pause.has_value()});
}

Duration DeviceScheduler::switch_cost(std::uint64_t bytes) const {
  const std::uint64_t out = bytes - std::min(bytes, moment().free_bytes);
  return {costs_.move(true, bytes).ns + costs_.move(false, out).ns};
}

// Whether the target waits because the tenant whose turn it is comes back sooner than the switch
// would take; or before it matters, to go on with a phase that still goes first. At most twice the
// usual pause.
bool DeviceScheduler::hold() {
  const auto holder = policy_->holder();
  const Op& target = *ops_.find(target_);
  const TenantId waiter = models_.at(target.model).tenant;
  if (!holder || committed_ || waiter == *holder) return false;
  const auto rest = ledger_.rest(*holder);
  if (!rest || !rest->pause) return false;
  const TimePoint end = rest->since + Duration{2 * rest->pause->ns};
  if (now_ >= end) return false;
  const bool short_pause = rest->paused.ns + rest->pause->ns <= rest->used.ns / kHoldPart &&
                           policy_->stays_ahead(resting(*holder, rest->last), waiter, moment());
  if (!short_pause && *rest->pause > switch_cost(move_bytes(target))) return false;
  yield_at_ = end;
  return true;
}

// Nobody waits: the model that is expected next comes in, where there is room, or where those that
// make room are expected much later. Once for each rest of its tenant.
void DeviceScheduler::prefetch() {
  if (models_.moving()) return;
  const auto next = models_.expected_next(now_);
  if (!next) return;
  const ModelEntry& entry = models_.at(*next);
  if (!runnable(entry) || entry.failures > 0) return;
  const ModelEntry* base = entry.base ? &models_.at(entry.base) : nullptr;
  const bool base_away = base != nullptr && base->place == Place::kParked;
  const std::uint64_t bytes = entry.footprint() + (base_away ? base->footprint() : 0);
  if (!models_.fits(bytes)) return make_room_ahead(*next, bytes);
  if (base_away) return request(entry.base, Place::kResuming);
  models_.not_predictable(*next);
  request(*next, Place::kResuming);
}

void DeviceScheduler::make_room_ahead(ModelId next, std::uint64_t bytes) {
  const auto victims = models_.victims(bytes, next, now_);
  if (!victims) return;
  const Duration soon = distance(models_.at(next).next_use, now_);
  const Duration least{2 * (soon.ns + switch_cost(bytes).ns)};
  for (const ModelId victim : *victims) {
    const ModelEntry& entry = models_.at(victim);
    if (entry.needed || distance(entry.next_use, now_) <= least) return;
  }
  for (const ModelId victim : *victims) request(victim, Place::kParking);
}

std::vector<ModelId> DeviceScheduler::waiting_models() const {
  // Enough ops to find that many models, unless somebody has queued a lot.
  constexpr std::size_t kMaxOps = 1024;
  std::vector<ModelId> models;
  const auto add = [&models](const Op& op) {
    if (std::find(models.begin(), models.end(), op.model) == models.end())
      models.push_back(op.model);
  };
  if (const Op* const target = ops_.find(target_); target != nullptr && target->queued)
    add(*target);
  std::size_t seen = 0;
  for (const auto& [id, op] : ops_.all()) {
    if (models.size() == kMaxExpected || ++seen > kMaxOps) break;
    if (op.queued && !op.too_large) add(op);
  }
  for (const ModelId id : models_.expected(now_, kMaxExpected - models.size()))
    if (std::find(models.begin(), models.end(), id) == models.end()) models.push_back(id);
  return models;
}

}  // namespace plexrl::core
