// SPDX-License-Identifier: Apache-2.0
#include "core/residency.h"

#include <algorithm>
#include <iterator>
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
  entry.move_began.ns = decode_duration(in).ns;
  entry.next_use.ns = decode_duration(in).ns;
  entry.needed = in.flag();
  entry.predictable = in.flag();
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
  by_tenant_[at->second.tenant].insert(id);
  if (!base) return;
  PLEXRL_CHECK(models_.contains(base) && models_.at(base).engine == at->second.engine,
               "an adapter comes after its base, in the same engine");
  models_.at(base).adapters.insert(id);
}

void Residency::erase(ModelId id) {
  const ModelEntry& entry = models_.at(id);
  PLEXRL_CHECK(entry.place == Place::kParked && entry.adapters.empty(), "erase of a model in use");
  if (entry.base) models_.at(entry.base).adapters.erase(id);
  unindex(id);
  const auto mates = by_tenant_.find(entry.tenant);
  mates->second.erase(id);
  if (mates->second.empty()) by_tenant_.erase(mates);
  models_.erase(id);
}

const ModelEntry* Residency::find(ModelId id) const {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : &found->second;
}

void Residency::set_place(ModelId id, Place place, TimePoint now) {
  ModelEntry& entry = models_.at(id);
  if (moves(place)) entry.move_began = now;
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
  if (entry.place == Place::kParked && entry.predictable && !entry.removed)
    predictable_.emplace(entry.next_use, id);
  if (!idle(entry)) return;
  if (entry.needed) {
    needed_.emplace(entry.last_used, id);
  } else {
    idle_.emplace(entry.next_use, entry.last_used, id);
  }
}

void Residency::unindex(ModelId id) {
  const ModelEntry& entry = models_.at(id);
  needed_.erase({entry.last_used, id});
  idle_.erase({entry.next_use, entry.last_used, id});
  predictable_.erase({entry.next_use, id});
}

void Residency::set_removed(ModelId id) {
  unindex(id);
  models_.at(id).removed = true;
  index(id);
}

std::uint32_t Residency::share_percent(TenantId tenant) const {
  const auto models = by_tenant_.find(tenant);
  return models == by_tenant_.end() ? 100 : at(*models->second.begin()).share_percent;
}

void Residency::expect(TenantId tenant, const Expectation& expectation) {
  const auto set = [this](ModelId id, const Expectation& what) {
    unindex(id);
    ModelEntry& entry = models_.at(id);
    entry.next_use = what.next_use;
    entry.needed = what.needed;
    entry.predictable = what.predictable;
    index(id);
  };
  const auto found = by_tenant_.find(tenant);
  if (found == by_tenant_.end()) return;
  for (const ModelId id : found->second) {
    set(id, expectation);
    // Bases are not prefetched for themselves.
    if (const ModelId base = models_.at(id).base)
      set(base, {expectation.next_use, expectation.needed, false});
  }
}

void Residency::not_predictable(ModelId id) {
  unindex(id);
  models_.at(id).predictable = false;
  index(id);
}

std::optional<ModelId> Residency::expected_next(TimePoint now) const {
  const auto after = predictable_.lower_bound({now, ModelId{}});
  if (after == predictable_.begin())
    return after == predictable_.end() ? std::nullopt : std::optional(after->second);
  const auto late = std::prev(after);
  if (after == predictable_.end()) return late->second;
  return now - late->first < after->first - now ? late->second : after->second;
}

std::vector<ModelId> Residency::expected(TimePoint now, std::size_t most) const {
  std::vector<ModelId> models;
  const auto begin = predictable_.lower_bound({now, ModelId{}});
  for (auto at = begin; at != predictable_.end() && models.size() < most; ++at)
    models.push_back(at->second);
  for (auto at = begin; at != predictable_.begin() && models.size() < most;)
    models.push_back((--at)->second);
  return models;
}

// Collects victims until they suffice.
class Residency::Search {
 public:
  Search(const Residency& all, std::uint64_t bytes, ModelId keep)
      : all_(all), bytes_(bytes), keep_(keep), keep_base_(all.at(keep).base) {
    after_ = all.used_ - all.parking_;
  }
  [[nodiscard]] bool enough() const {
    return after_ <= all_.capacity_ && bytes_ <= all_.capacity_ - after_;
  }
  void consider(ModelId id) {
    if (id == keep_ || id == keep_base_ || counted_.contains(id)) return;
    const ModelEntry& entry = all_.at(id);
    if (entry.live_adapters > 0) return maybe_base(id);
    chosen_.push_back(id);
    after_ -= entry.footprint();
    if (!entry.base) return;
    ++leaving_[entry.base];
    if (!enough()) maybe_base(entry.base);
  }
  [[nodiscard]] std::vector<ModelId> take() { return std::move(chosen_); }

 private:
  // A base can follow when all of its adapters leave.
  void maybe_base(ModelId id) {
    const ModelEntry& entry = all_.at(id);
    if (id == keep_base_ || !all_.idle(entry) || counted_.contains(id)) return;
    std::uint32_t staying = entry.live_adapters - leaving_[id];
    for (const ModelId adapter : entry.adapters)
      if (staying > 0 && all_.at(adapter).place == Place::kParking) --staying;
    if (staying > 0) return;
    counted_.insert(id);
    after_ -= entry.footprint();
  }

  const Residency& all_;
  std::uint64_t bytes_;
  ModelId keep_;
  ModelId keep_base_;
  std::uint64_t after_ = 0;
  std::vector<ModelId> chosen_;
  std::map<ModelId, std::uint32_t> leaving_;  // adapters by base, besides those already parking
  std::set<ModelId> counted_;                 // bases
};

std::optional<std::vector<ModelId>> Residency::victims(std::uint64_t bytes, ModelId keep,
                                                       TimePoint now) const {
  Search search(*this, bytes, keep);
  const auto distance = [now](TimePoint use) { return use < now ? now - use : use - now; };
  auto late = idle_.begin();
  auto ahead = idle_.end();
  while (late != ahead && !search.enough()) {
    const auto furthest = std::prev(ahead);
    if (distance(std::get<0>(*late)) >= distance(std::get<0>(*furthest))) {
      search.consider(std::get<2>(*late++));
    } else {
      search.consider(std::get<2>(*furthest));
      ahead = furthest;
    }
  }
  for (auto at = needed_.begin(); at != needed_.end() && !search.enough(); ++at)
    search.consider(at->second);
  if (!search.enough()) return std::nullopt;
  return search.take();
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
    out.varint(static_cast<std::uint64_t>(entry.move_began.ns));
    out.varint(static_cast<std::uint64_t>(entry.next_use.ns));
    out.flag(entry.needed);
    out.flag(entry.predictable);
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
    by_tenant_[entry.tenant].insert(id);
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
