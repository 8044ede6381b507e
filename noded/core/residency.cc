// SPDX-License-Identifier: Apache-2.0
#include "core/residency.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace plexrl::core {
namespace {

// After a failed move: 20 ms, then twice as long each time, up to 5 s. Long enough not to spin on a
// full host tier, short enough not to be felt when memory comes back.
constexpr Duration kFirstPause{20 * kMillisecond.ns};
constexpr std::uint32_t kMaxDoublings = 8;

bool moves(Place place) { return place == Place::kResuming || place == Place::kParking; }

ModelEntry decode_entry(ByteReader& in) {
  ModelEntry entry;
  entry.tenant = TenantId{in.varint()};
  entry.engine = EngineId{in.varint()};
  entry.base = ModelId{in.varint()};
  entry.device_bytes = in.varint();
  entry.kv_bytes = in.varint();
  entry.share_percent = static_cast<std::uint32_t>(in.varint());
  const std::uint8_t place = in.u8();
  entry.place = static_cast<Place>(place);
  entry.removed = in.flag();
  entry.in_use = in.flag();
  entry.failures = static_cast<std::uint32_t>(in.varint());
  entry.kv_leaving = in.varint();
  entry.not_run_until.ns = static_cast<std::int64_t>(in.varint());
  entry.not_evicted_until.ns = static_cast<std::int64_t>(in.varint());
  entry.last_used = in.varint();
  if (place > static_cast<std::uint8_t>(Place::kParking) || entry.failures > kMaxDoublings ||
      entry.not_run_until.ns < 0 || entry.not_evicted_until.ns < 0 ||
      entry.kv_leaving > entry.kv_bytes || (entry.kv_leaving > 0 && !moves(entry.place)) ||
      (entry.in_use && entry.place != Place::kResident))
    in.fail();
  return entry;
}

}  // namespace

void Residency::add(ModelId id, ModelEntry entry) {
  const ModelId base = entry.base;
  const auto [at, added] = models_.emplace(id, std::move(entry));
  PLEXRL_CHECK(added, "a model was added twice");
  if (!base) return;
  PLEXRL_CHECK(models_.contains(base) && models_.at(base).engine == at->second.engine,
               "an adapter comes after its base, in the same engine");
  models_.at(base).adapters.insert(id);
}

void Residency::erase(ModelId id) {
  const ModelEntry& entry = models_.at(id);
  PLEXRL_CHECK(entry.place == Place::kParked && entry.adapters.empty(), "erase of a model in use");
  if (entry.base) models_.at(entry.base).adapters.erase(id);
  models_.erase(id);
}

const ModelEntry* Residency::find(ModelId id) const {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second;
}

void Residency::set_place(ModelId id, Place place) {
  ModelEntry& entry = models_.at(id);
  unindex(id);
  count_out(entry);
  entry.place = place;
  if (!moves(place)) entry.kv_bytes -= std::exchange(entry.kv_leaving, 0);
  count_in(entry);
  index(id);
}

void Residency::count_in(const ModelEntry& entry) {
  if (entry.place == Place::kParked) return;
  used_ += entry.footprint();
  if (entry.place == Place::kParking) parking_ += entry.footprint();
  if (moves(entry.place)) ++moves_;
  if (entry.base) ++models_.at(entry.base).live_adapters;
}

void Residency::count_out(const ModelEntry& entry) {
  if (entry.place == Place::kParked) return;
  used_ -= entry.footprint();
  if (entry.place == Place::kParking) parking_ -= entry.footprint();
  if (moves(entry.place)) --moves_;
  if (entry.base) --models_.at(entry.base).live_adapters;
}

void Residency::set_in_use(ModelId id, bool in_use) {
  ModelEntry& entry = models_.at(id);
  unindex(id);
  entry.in_use = in_use;
  entry.last_used = ++uses_;
  index(id);
  if (!entry.base) return;
  unindex(entry.base);
  models_.at(entry.base).last_used = ++uses_;
  index(entry.base);
}

void Residency::add_kv(ModelId id, std::uint64_t bytes) {
  ModelEntry& entry = models_.at(id);
  count_out(entry);
  entry.kv_bytes += bytes;
  count_in(entry);
}

void Residency::drop_kv(ModelId id, std::uint64_t bytes) {
  ModelEntry& entry = models_.at(id);
  PLEXRL_CHECK(bytes <= entry.kv_bytes - entry.kv_leaving, "more KV is freed than was held");
  if (moves(entry.place)) {
    entry.kv_leaving += bytes;
    return;
  }
  count_out(entry);
  entry.kv_bytes -= bytes;
  count_in(entry);
}

Duration Residency::next_pause(ModelEntry& entry) {
  const Duration pause{kFirstPause.ns << entry.failures};
  entry.failures = std::min(entry.failures + 1, kMaxDoublings);
  return pause;
}

TimePoint Residency::pause_runs(ModelId id, TimePoint now) {
  ModelEntry& entry = models_.at(id);
  return entry.not_run_until = now + next_pause(entry);
}

TimePoint Residency::pause_eviction(ModelId id, TimePoint now) {
  ModelEntry& entry = models_.at(id);
  unindex(id);
  return entry.not_evicted_until = now + next_pause(entry);
}

void Residency::end_pauses(ModelId id, TimePoint now) {
  ModelEntry& entry = models_.at(id);
  if (entry.not_run_until <= now) entry.not_run_until = {};
  if (entry.not_evicted_until <= now) entry.not_evicted_until = {};
  index(id);
}

bool Residency::idle(const ModelEntry& entry) const {
  return entry.place == Place::kResident && !entry.in_use && entry.not_evicted_until.ns == 0;
}

void Residency::index(ModelId id) {
  const ModelEntry& entry = models_.at(id);
  if (idle(entry)) idle_.emplace(entry.last_used, id);
}

void Residency::unindex(ModelId id) { idle_.erase({models_.at(id).last_used, id}); }

std::optional<std::vector<ModelId>> Residency::victims(std::uint64_t bytes, ModelId keep) const {
  const ModelId keep_base = models_.at(keep).base;
  std::vector<ModelId> chosen;
  std::map<ModelId, std::uint32_t> leaving;  // adapters by base, besides those already parking
  std::uint64_t after = used_ - parking_;
  const auto enough = [&] { return after <= capacity_ && bytes <= capacity_ - after; };
  for (const auto& [last_used, id] : idle_) {
    if (enough()) break;
    if (id == keep || id == keep_base) continue;
    const ModelEntry& entry = models_.at(id);
    if (entry.live_adapters > 0) {
      std::uint32_t staying = entry.live_adapters - leaving[id];
      for (const ModelId adapter : entry.adapters)
        if (staying > 0 && models_.at(adapter).place == Place::kParking) --staying;
      if (staying > 0) continue;
    } else {
      chosen.push_back(id);
    }
    if (entry.base) ++leaving[entry.base];
    after -= entry.footprint();
  }
  if (!enough()) return std::nullopt;
  return chosen;
}

void Residency::encode(ByteWriter& out) const {
  out.varint(uses_);
  out.varint(models_.size());
  for (const auto& [id, entry] : models_) {
    out.varint(id.value);
    out.varint(entry.tenant.value);
    out.varint(entry.engine.value);
    out.varint(entry.base.value);
    out.varint(entry.device_bytes);
    out.varint(entry.kv_bytes);
    out.varint(entry.share_percent);
    out.u8(static_cast<std::uint8_t>(entry.place));
    out.flag(entry.removed);
    out.flag(entry.in_use);
    out.varint(entry.failures);
    out.varint(entry.kv_leaving);
    out.varint(static_cast<std::uint64_t>(entry.not_run_until.ns));
    out.varint(static_cast<std::uint64_t>(entry.not_evicted_until.ns));
    out.varint(entry.last_used);
  }
}

void Residency::decode(ByteReader& in) {
  uses_ = in.varint();
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const ModelId id{in.varint()};
    ModelEntry entry = decode_entry(in);
    if (!in.ok() || !id || entry.last_used > uses_) return in.fail();
    if (!models_.emplace(id, std::move(entry)).second) return in.fail();
  }
  if (!consistent()) return in.fail();
  for (auto& [id, entry] : models_)
    if (entry.base) models_.at(entry.base).adapters.insert(id);
  for (const auto& [id, entry] : models_) {
    count_in(entry);
    index(id);
  }
}

// Sizes add up without overflow, and every adapter has its base, in the same engine.
bool Residency::consistent() const {
  std::uint64_t left = ~std::uint64_t{0};
  for (const auto& [id, entry] : models_) {
    if (entry.device_bytes > left || entry.kv_bytes > left - entry.device_bytes) return false;
    left -= entry.footprint();
    if (!entry.base) continue;
    const ModelEntry* base = find(entry.base);
    if (base == nullptr || base->base || base->engine != entry.engine) return false;
  }
  return true;
}

}  // namespace plexrl::core
