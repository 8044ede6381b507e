// SPDX-License-Identifier: Apache-2.0
// Residency: which models are on the device, and what that takes of its capacity. A model counts
// from the moment it is asked in until it is reported out, with the KV of its started ops. Adapters
// keep their base in. Part of the scheduler.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/byte_codec.h"
#include "core/types.h"

namespace plexrl::core {

enum class Place : std::uint8_t { kParked, kResuming, kResident, kParking };

struct ModelEntry {
  TenantId tenant;
  EngineId engine;
  ModelId base;
  std::uint64_t device_bytes = 0;
  std::uint64_t kv_bytes = 0;  // of started ops; moves with the model
  std::uint32_t share_percent = 100;
  Place place = Place::kParked;
  bool removed = false;
  bool in_use = false;           // an op of it runs
  std::uint64_t kv_leaving = 0;  // part of kv_bytes; free when the move under way ends
  std::uint32_t failures = 0;    // moves that failed in a row
  // Pauses after failed moves; 0: none. A model that could not be parked still runs its ops: that
  // is what lets a node go on whose host tier is full.
  TimePoint not_run_until{};
  TimePoint not_evicted_until{};
  std::uint64_t last_used = 0;
  TimePoint move_began{};  // the last one
  // When it is expected to be used next, which may be over; of a base what its adapter that was
  // used last says. Not needed: its tenant has no ops now.
  TimePoint next_use{};
  bool needed = false;
  bool predictable = false;         // parked and worth a prefetch: next_use was learnt
  std::set<ModelId> adapters;       // of a base: all that name it
  std::uint32_t live_adapters = 0;  // of a base: those that are not parked

  [[nodiscard]] std::uint64_t footprint() const { return device_bytes + kv_bytes; }
};

class Residency {
 public:
  explicit Residency(std::uint64_t capacity_bytes) : capacity_(capacity_bytes) {}

  void add(ModelId id, ModelEntry entry);
  void erase(ModelId id);  // must be parked; a base without adapters
  [[nodiscard]] const ModelEntry* find(ModelId id) const;
  [[nodiscard]] const ModelEntry& at(ModelId id) const { return models_.at(id); }
  [[nodiscard]] const std::map<ModelId, ModelEntry>& models() const { return models_; }

  void set_place(ModelId id, Place place, TimePoint now);
  void set_removed(ModelId id);
  void set_in_use(ModelId id, bool in_use);  // marks it and its base as just used, too
  void add_kv(ModelId id, std::uint64_t bytes);
  void drop_kv(ModelId id, std::uint64_t bytes);
  // A pause after a failure, to the time returned; twice as long with every failure in a row.
  [[nodiscard]] TimePoint pause_runs(ModelId id, TimePoint now);
  [[nodiscard]] TimePoint pause_eviction(ModelId id, TimePoint now);
  void end_pauses(ModelId id, TimePoint now);  // those that are over
  void forget_failures(ModelId id) { models_.at(id).failures = 0; }
  // What is expected of the tenant's models and their bases.
  struct Expectation {
    TimePoint next_use;
    bool needed = false;
    bool predictable = false;
  };
  void expect(TenantId tenant, const Expectation& expectation);
  [[nodiscard]] std::uint32_t share_percent(TenantId tenant) const;  // 100 without models
  void not_predictable(ModelId id);                                  // until the next expect()
  // The parked, predictable model whose next use is nearest to `now`, before or after it.
  [[nodiscard]] std::optional<ModelId> expected_next(TimePoint now) const;
  // As many parked, predictable models as asked for, by next use, those that are late last.
  [[nodiscard]] std::vector<ModelId> expected(TimePoint now, std::size_t most) const;

  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint64_t used() const { return used_; }
  [[nodiscard]] std::uint64_t parking() const { return parking_; }  // part of used, soon free
  [[nodiscard]] bool moving() const { return moves_ > 0; }
  [[nodiscard]] bool fits(std::uint64_t bytes) const {
    return used_ <= capacity_ && bytes <= capacity_ - used_;
  }
  // Idle models that make room for `bytes` once they and those already on the way are out, sparing
  // `keep` and its base: those whose next use is the furthest away first, one that is late counting
  // as far ahead as it is late; then those that are needed, the least recently used first. None
  // when that would not suffice. A base that has to wait for its adapters is counted and not
  // listed.
  [[nodiscard]] std::optional<std::vector<ModelId>> victims(std::uint64_t bytes, ModelId keep,
                                                            TimePoint now) const;

  void encode(ByteWriter& out) const;
  void decode(ByteReader& in);

 private:
  class Search;
  void count_in(const ModelEntry& entry);
  void count_out(const ModelEntry& entry);
  [[nodiscard]] static Duration next_pause(ModelEntry& entry);
  void index(ModelId id);
  void unindex(ModelId id);
  [[nodiscard]] bool idle(const ModelEntry& entry) const;
  [[nodiscard]] bool consistent() const;

  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  std::uint64_t parking_ = 0;
  std::uint32_t moves_ = 0;
  std::uint64_t uses_ = 0;
  std::map<ModelId, ModelEntry> models_;
  std::map<TenantId, std::set<ModelId>> by_tenant_;
  // Resident models without a running op: those that are not needed by next use, and the others by
  // last use.
  std::set<std::tuple<TimePoint, std::uint64_t, ModelId>> idle_;
  std::set<std::pair<std::uint64_t, ModelId>> needed_;
  std::set<std::pair<TimePoint, ModelId>> predictable_;  // parked
};

}  // namespace plexrl::core
