// SPDX-License-Identifier: Apache-2.0
// Random interleavings of moves, commits, losses and crashes on pools with contents. A crash may
// come between any two writes, of a chunk or of the store, which takes its time. Afterwards each
// model is in the state of its last acknowledged commit or of the one that was under way, never in
// a mixture; no chunk has two owners, none is lost.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "fakes/faulty_store.h"
#include "fakes/queued_store.h"
#include "state/state_manager.h"

namespace plexrl::state {
namespace {

constexpr std::uint64_t kChunk = 8;
constexpr std::uint32_t kDeviceChunks = 45;
constexpr std::uint32_t kHostChunks = 90;
constexpr TenantId kTenants[] = {{1}, {2}};
const std::vector<SegmentSpec> kSegments = {{SegmentKind::kWeights, 30, true},
                                            {SegmentKind::kAdamM, 16, true},
                                            {SegmentKind::kSamplerWeights, 20, true},
                                            {SegmentKind::kGradients, 30, false}};

// What a chunk holds: who, which part, and the state that it belongs to.
struct Content {
  ModelId model;
  SegmentKind kind = SegmentKind::kWeights;
  std::size_t part = 0;
  std::uint64_t stamp = 0;
  friend bool operator==(const Content&, const Content&) = default;
};

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {
    store_.fault = [this] { return next_fault(); };
    open();
  }

  void step() {
    const ModelId id{1 + random_() % 4};
    Model& model = models_[id];
    if (random_() % 3 == 0) disk();
    const std::uint64_t dice = random_() % 12;
    if (dice < 2) return resume(id, model);
    if (dice < 4) return train(id, model);
    if (dice < 6) return plan(id, model, dice == 4);
    if (dice < 10) return copy_some(id, model);
    if (dice == 10) return kv(id, model);
    disturb(id, model);
  }
  void check() {
    const auto table = nlohmann::json::parse(manager_->table_json());
    std::map<std::uint32_t, int> host;
    std::map<std::uint32_t, int> device;
    for (const auto& [id, model] : models_) {
      for (const auto& entry : manager_->manifest(id)->entries) count(host, entry.host);
      for (const auto& move : model.copying) count(host, move.host);
      count(host, model.parked_extras);
      for (const auto& [kind, chunks] : model.device) count(device, chunks);
    }
    for (const auto* owners : {&host, &device})
      for (const auto& [chunk, owned] : *owners) ASSERT_EQ(owned, 1) << "chunk " << chunk;
    ASSERT_EQ(table["device"]["free_chunks"], kDeviceChunks - device.size());
    if (doubts_ == 0) {
      ASSERT_EQ(table["host"]["free_chunks"], kHostChunks - host.size());
    }
    verify_committed();
  }

  // The disk takes what waits, or the loop hears of it.
  void disk() {
    if (random_() % 2 == 0) (void)queued_.queue.write_group();
    if (random_() % 2 == 0) queued_.tell();
  }

  // plexrld and all engines die; the pool's contents and the store stay, and what waited for the
  // disk is gone.
  void crash() {
    queued_.queue.drop();
    for (auto& [id, model] : models_) {
      if (model.flipping) model.maybe_planned = true;
      model.lose();
    }
    doubts_ = 0;
    open();
    for (auto& [id, model] : models_) settle(id, model);
  }
  std::uint64_t commits = 0;
  std::uint64_t parks_behind = 0;

 private:
  using State = std::map<SegmentKind, std::uint64_t>;  // stamps
  struct Model {
    bool resident = false;
    bool suspending = false;
    bool copy_planned = false;
    bool flipping = false;       // the new manifest is on its way to the disk
    bool behind_commit = false;  // parked, and waits for the manifest of the commit before
    Position parked_position;
    std::map<SegmentKind, Chunks> device;
    State now;
    Position position;
    State committed;
    Position committed_position;
    State planned;
    Position planned_position;
    std::uint64_t epoch = 0;
    std::vector<SegmentMove> copying;
    std::vector<std::pair<SegmentMove, std::size_t>> left;  // chunk copies still to make
    Chunks parked_extras;
    bool maybe_planned = false;  // the store failed: either state may be found

    void lose() {
      resident = suspending = copy_planned = flipping = behind_commit = false;
      device.clear();
      copying.clear();
      left.clear();
      parked_extras.clear();
      now = committed;
      position = committed_position;
    }
  };

  void open() {
    manager_.reset();
    queued_.queue.abandon();
    quiet_ = true;
    manager_ =
        open_state_manager({kChunk, kDeviceChunks, kHostChunks}, queued_.queue, false).value();
    for (const TenantId tenant : kTenants)
      ASSERT_TRUE(manager_->open_tenant(tenant, 45 * kChunk).ok());
    for (std::uint64_t n = 1; n <= 4; ++n) {
      const Status status = manager_->add_model({n}, kTenants[n % 2], kSegments);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    quiet_ = false;
  }

  // After a crash the manifest says which of the two possible states it is.
  void settle(ModelId id, Model& model) {
    const Position found = manager_->manifest(id)->position;
    if (model.maybe_planned && found == model.planned_position &&
        found != model.committed_position) {
      model.committed = model.planned;
      model.committed_position = model.planned_position;
    }
    model.maybe_planned = false;
    model.now = model.committed;
    model.position = model.committed_position;
  }

  void verify_committed() {
    for (const auto& [id, model] : models_) {
      const Manifest& manifest = *manager_->manifest(id);
      ASSERT_EQ(manifest.position, model.committed_position) << "model " << id.value;
      for (const auto& entry : manifest.entries)
        for (std::size_t part = 0; part < entry.host.size(); ++part)
          ASSERT_EQ(host_[entry.host[part]],
                    (Content{id, entry.kind, part, model.committed.at(entry.kind)}));
    }
  }

  void resume(ModelId id, Model& model) {
    if (model.resident || model.flipping || model.behind_commit) return;
    const auto plan = manager_->plan_resume(id);
    if (!plan) return;
    if (random_() % 5 == 0) return manager_->resume_failed(id);
    for (const auto& move : plan->segments) {
      for (std::size_t part = 0; part < move.host.size() && move.kind != SegmentKind::kKv; ++part)
        if (move.kind != SegmentKind::kGradients) {
          ASSERT_EQ(host_[move.host[part]], (Content{id, move.kind, part, model.now[move.kind]}));
        }
      model.device[move.kind] = move.device;
      fill(id, model, move.kind);
    }
    manager_->resume_done(id);
    model.parked_extras.clear();
    model.resident = true;
  }

  void train(ModelId id, Model& model) {
    if (!model.resident || model.suspending || !model.left.empty()) return;
    const std::uint64_t stamp = ++stamps_;
    const std::uint64_t what = random_() % 4;
    ++model.position.applied_seq;
    if (what == 0) {
      model.position.gradients_pending = true;
      return manager_->mark_dirty(id, model.position);
    }
    if (what == 1) {
      ++model.position.version;
      model.now[SegmentKind::kSamplerWeights] = stamp;
      fill(id, model, SegmentKind::kSamplerWeights);
    } else {
      ++model.position.step;
      model.position.gradients_pending = false;
      for (const SegmentKind kind : {SegmentKind::kWeights, SegmentKind::kAdamM}) {
        model.now[kind] = stamp;
        fill(id, model, kind);
      }
    }
    manager_->mark_dirty(id, model.position);
  }

  void fill(ModelId id, Model& model, SegmentKind kind) {
    const Chunks& chunks = model.device[kind];
    for (std::size_t part = 0; part < chunks.size(); ++part)
      device_[chunks[part]] = {id, kind, part, model.now[kind]};
  }

  void plan(ModelId id, Model& model, bool suspend) {
    if (suspend && model.resident && model.flipping) return park_behind_commit(id, model);
    if (!model.resident || model.copy_planned) return;
    // A commit's position is that of the last op after which no gradients were pending.
    if (!suspend && model.position.gradients_pending) return;
    const auto plan = suspend ? manager_->plan_suspend(id) : manager_->plan_commit(id);
    if (!plan) return;
    model.suspending = suspend;
    model.copy_planned = true;
    model.epoch = plan->epoch;
    model.planned = model.now;
    model.planned_position = model.position;
    model.planned_position.gradients_pending = false;
    // Both doubtful states may not be apart from here on: the plan wrote the old manifest again.
    if (model.maybe_planned) --doubts_;
    model.maybe_planned = false;
    for (const auto& move : plan->segments) {
      const bool extra = move.kind == SegmentKind::kGradients || move.kind == SegmentKind::kKv;
      if (extra)
        model.parked_extras.insert(model.parked_extras.end(), move.host.begin(), move.host.end());
      if (extra || move.host.empty()) continue;
      model.copying.push_back(move);
      for (std::size_t part = 0; part < move.host.size(); ++part)
        model.left.emplace_back(move, part);
    }
    std::shuffle(model.left.begin(), model.left.end(), random_);
  }

  // The copy of a commit is made: where nothing changed since, it is the park's too.
  void park_behind_commit(ModelId id, Model& model) {
    const auto plan = manager_->plan_suspend(id);
    ASSERT_TRUE(plan || model.now != model.planned || plan.error().code() == Code::NO_CAPACITY);
    if (!plan) return;
    Chunks extras;
    for (const auto& move : plan->segments) {
      const bool extra = move.kind == SegmentKind::kGradients || move.kind == SegmentKind::kKv;
      ASSERT_TRUE(extra || move.host.empty());
      extras.insert(extras.end(), move.host.begin(), move.host.end());
    }
    if (random_() % 4 == 0) queued_.run();
    if (random_() % 5 == 0) return manager_->suspend_failed(id);
    ++parks_behind;
    model.parked_extras = std::move(extras);
    model.resident = false;
    model.device.clear();
    model.behind_commit = true;
    model.parked_position = model.position;
    model.parked_position.gradients_pending = false;
    manager_->suspend_done(id, model.position,
                           [this, id](const Status& status) { parked_behind(id, status); });
    park_settling(model);
  }

  // An op that changed nothing came after the commit: the position gets a manifest of its own.
  void park_settling(Model& model) {
    if (model.flipping || !model.behind_commit) return;
    if (model.maybe_planned || model.committed_position == model.parked_position) return;
    model.planned = model.committed;
    model.planned_position = model.parked_position;
    model.flipping = true;
  }

  void parked_behind(ModelId id, const Status& status) {
    Model& model = models_[id];
    model.behind_commit = false;
    if (std::exchange(model.flipping, false) && status.ok()) {
      model.committed_position = model.planned_position;
    } else if (!status.ok() && !model.maybe_planned) {
      model.maybe_planned = true;
      ++doubts_;
    }
    if (!status.ok()) drop_gradients(id, model);
    model.now = model.committed;
    model.position = model.committed_position;
  }

  void copy_some(ModelId id, Model& model) {
    if (!model.copy_planned || model.flipping) return;
    for (std::uint64_t n = random_() % 12; n > 0 && !model.left.empty(); --n) {
      const auto& [move, part] = model.left.back();
      host_[move.host[part]] = device_[move.device[part]];
      model.left.pop_back();
    }
    if (!model.left.empty()) return;
    if (random_() % 8 == 0) return give_up(id, model);
    finish(id, model);
  }

  void give_up(ModelId id, Model& model) {
    if (model.suspending) manager_->suspend_failed(id);
    if (!model.suspending) manager_->commit_failed(id);
    model.suspending = model.copy_planned = false;
    model.copying.clear();
    model.parked_extras.clear();
  }

  void finish(ModelId id, Model& model) {
    model.flipping = true;
    const auto flipped = [this, id](const Status& status) { this->flipped(id, status); };
    if (!model.suspending)
      return manager_->commit_done(id, model.epoch, model.planned_position, flipped);
    model.resident = false;
    model.device.clear();
    manager_->suspend_done(id, model.planned_position, flipped);
  }

  void flipped(ModelId id, const Status& status) {
    Model& model = models_[id];
    const bool wrote_nothing = model.copying.empty();
    const bool suspend = model.suspending;
    model.suspending = model.copy_planned = model.flipping = false;
    model.copying.clear();
    if (status.ok() && !(wrote_nothing && manager_->manifest(id)->epoch == 0)) {
      ++commits;
      model.committed = model.planned;
      model.committed_position = model.planned_position;
    } else if (!status.ok()) {
      model.maybe_planned = true;
      ++doubts_;
    }
    if (status.ok()) park_settling(model);
    if (!suspend) return;
    if (!status.ok()) drop_gradients(id, model);
    model.now = model.committed;
    model.position = model.committed_position;
  }

  // A park that could not be stored drops the gradients; KV stays.
  void drop_gradients(ModelId id, Model& model) {
    model.parked_extras.clear();
    manager_->free_kv(id);
  }

  void kv(ModelId id, Model& model) {
    if (!model.resident || model.suspending) return;
    if (model.device.contains(SegmentKind::kKv)) {
      manager_->free_kv(id);
      model.device.erase(SegmentKind::kKv);
      return;
    }
    const auto move = manager_->allocate_kv(id, 1 + random_() % 30);
    if (move) model.device[SegmentKind::kKv] = move->device;
  }

  void disturb(ModelId id, Model& model) {
    const std::uint64_t dice = random_() % 16;
    if (dice == 0) return crash();
    if (dice > 2) return;
    queued_.queue.settle();
    const Position position = manager_->engine_lost(id);
    ASSERT_EQ(position, model.committed_position);
    model.lose();
  }

  store::FaultyStore::Fault next_fault() {
    using Fault = store::FaultyStore::Fault;
    if (quiet_) return Fault::kNone;
    const std::uint64_t dice = random_() % 20;
    return dice == 0 ? Fault::kBefore : dice == 1 ? Fault::kAfter : Fault::kNone;
  }

  static void count(std::map<std::uint32_t, int>& owners, const Chunks& chunks) {
    for (const std::uint32_t chunk : chunks) ++owners[chunk];
  }

  std::mt19937_64 random_;
  std::unique_ptr<store::StateStore> memory_ = store::make_memory_store();
  store::FaultyStore store_{*memory_};
  store::QueuedStore queued_{store_};
  bool quiet_ = false;
  std::unique_ptr<StateManager> manager_;
  std::map<ModelId, Model> models_;
  std::map<std::uint32_t, Content> host_;
  std::map<std::uint32_t, Content> device_;
  std::uint64_t stamps_ = 0;
  int doubts_ = 0;  // models whose last write failed
};

TEST(StateProperty, OldOrNewStateNeverAMixtureAndNoChunkLostOrOwnedTwice) {
  std::uint64_t parks_behind = 0;
  std::uint64_t commits = 0;
  for (std::uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    for (int step = 0; step < 600 && !testing::Test::HasFailure(); ++step) {
      world.step();
      if (step % 3 == 0) world.check();
    }
    world.crash();
    world.check();
    commits += world.commits;
    parks_behind += world.parks_behind;
  }
  EXPECT_GT(commits, 300u) << "the schedules must commit something";
  EXPECT_GT(parks_behind, 10u) << "and park behind a commit";
}

}  // namespace
}  // namespace plexrl::state
