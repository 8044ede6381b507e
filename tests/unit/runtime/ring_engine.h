// SPDX-License-Identifier: Apache-2.0
// RingEngine: a fake engine in the virtual world, with a connection that takes time and the faults
// of the script. What one engine answers arrives in order, answers of several engines in any. It
// outlives a plexrld, as a process does. DeviceLedger is what all engines together do to the
// device: whose chunks, and which ops run.
#pragma once

#include <cinttypes>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "engine/fake_engine.h"
#include "engine/fake_memory.h"
#include "ring_script.h"

namespace plexrl::runtime {

class DeviceLedger {
 public:
  explicit DeviceLedger(Broken& broken) : broken_(broken) {}

  void map(EngineId engine, std::uint64_t model, const std::vector<std::uint32_t>& chunks,
           bool kv) {
    for (const std::uint32_t chunk : chunks) {
      const auto [at, free] = owners_.emplace(chunk, Owner{engine, model, kv});
      if (!free && (at->second.engine != engine || at->second.model != model || !kv))
        broken_.add("device chunk %u of model %" PRIu64 " is mapped for model %" PRIu64, chunk,
                    at->second.model, model);
    }
  }
  void unmap(EngineId engine, std::uint64_t model, bool kv_only) {
    std::erase_if(owners_, [&](const auto& entry) {
      const Owner& owner = entry.second;
      return owner.engine == engine && owner.model == model && (owner.kv || !kv_only);
    });
  }
  // 0: of all its models.
  [[nodiscard]] std::vector<std::uint32_t> kv_of(EngineId engine, std::uint64_t model) const {
    std::vector<std::uint32_t> chunks;
    for (const auto& [chunk, owner] : owners_)
      if (owner.engine == engine && owner.kv && (model == 0 || owner.model == model))
        chunks.push_back(chunk);
    return chunks;
  }
  void unmap(EngineId engine, const std::vector<std::uint32_t>& chunks) {
    for (const std::uint32_t chunk : chunks)
      if (const auto at = owners_.find(chunk); at != owners_.end() && at->second.engine == engine)
        owners_.erase(at);
  }
  // Gives back what it held.
  std::vector<std::uint32_t> gone(EngineId engine) {
    std::vector<std::uint32_t> held;
    for (const auto& [chunk, owner] : owners_)
      if (owner.engine == engine) held.push_back(chunk);
    for (const std::uint32_t chunk : held) owners_.erase(chunk);
    running_.erase(engine);
    return held;
  }
  // What the engine says to a new plexrld: the one before may have gone before it heard of a move.
  void holds(EngineId engine, const wire::EngineHelloT& hello) {
    std::erase_if(owners_, [&](const auto& entry) { return entry.second.engine == engine; });
    for (const auto& model : hello.models)
      for (const auto& place : model->segments)
        map(engine, model->model, place->device, place->kind == wire::SegmentKind::Kv);
  }
  // Only ops that this plexrld started count: an engine may still run some of the plexrld before.
  // `samples`: a generate, which may run beside others of its engine.
  void op_starts(EngineId engine, std::uint64_t op, bool samples) {
    for (const auto& [other, its] : running_)
      for (const auto& [number, sampling] : its)
        if (other != engine || !samples || !sampling)
          broken_.add("op %" PRIu64 " starts while op %" PRIu64 " runs", op, number);
    if (lease_held) broken_.add("op %" PRIu64 " starts under a lease", op);
    running_[engine][op] = samples;
  }
  void op_ends(EngineId engine, std::uint64_t op) {
    running_[engine].erase(op);
    if (running_[engine].empty()) running_.erase(engine);
  }
  void plexrld_ended() { running_.clear(); }
  [[nodiscard]] bool op_runs() const { return !running_.empty(); }
  [[nodiscard]] std::size_t mapped() const { return owners_.size(); }
  bool lease_held = false;

 private:
  struct Owner {
    EngineId engine;
    std::uint64_t model = 0;
    bool kv = false;
  };
  Broken& broken_;
  std::map<std::uint32_t, Owner> owners_;
  std::map<EngineId, std::map<std::uint64_t, bool>> running_;
};

class RingEngine final : public engine::EngineListener,
                         public std::enable_shared_from_this<RingEngine> {
 public:
  struct Parts {
    VirtualWorld& world;
    RingScript& script;
    Broken& broken;
    DeviceLedger& ledger;
    // Whether a manifest on disk names one of these host chunks.
    std::function<bool(const std::vector<std::uint32_t>&)> committed;
  };
  RingEngine(const Parts& parts, engine::EngineSpec spec, const engine::FakeEngineOptions& options)
      : parts_(parts),
        id_(spec.id),
        fake_(engine::make_fake_engine(std::make_unique<VirtualTime>(parts.world), std::move(spec),
                                       *this, options)) {}

  // ---- what a runtime does ----

  void attach(engine::EngineListener& listener) {
    forget_connection();
    listener_ = &listener;
  }
  void start() {
    // A program that runs is connected to, not started.
    if (fake_->pid() == 0 && parts_.script.happens(&Faults::fail_start)) return fail_start();
    fake_->start();
    lives_ = fake_->pid() != 0;
    if (!hanging_) return;
    // A connection that nobody answers: the real one gives up after 120 s.
    parts_.world.after(kSecond * 120, [self = weak_from_this(), epoch = epoch_] {
      const auto engine = self.lock();
      if (engine && engine->epoch_ == epoch && engine->hanging_) engine->die();
    });
  }
  void call(wire::EngineBodyUnion request, const std::vector<int>& fds, engine::ReplyHandler done);
  void kill() { die(); }
  void stop() {
    stopped_ = true;
    forget_connection();
    fake_->stop({});
    lose_memory();
  }
  void detach() {
    forget_connection();
    fake_->detach();
  }
  [[nodiscard]] const engine::EngineSpec& spec() const { return fake_->spec(); }
  [[nodiscard]] int pid() const { return fake_->pid(); }

  // ---- what the world does ----

  void die() {
    if (fake_->pid() == 0) return;
    note_death();
    fake_->kill();
  }
  [[nodiscard]] std::uint64_t deaths() const { return deaths_; }
  [[nodiscard]] bool stopped() const { return stopped_; }  // for good

  void on_engine_up(EngineId, const wire::EngineHelloT& hello, std::vector<UniqueFd> fds) override {
    parts_.ledger.holds(id_, hello);
    if (hanging_) return;
    auto held = std::make_shared<std::vector<UniqueFd>>(std::move(fds));
    const bool late = parts_.script.happens(&Faults::slow_hello);
    arrive([this, hello, held] { listener_->on_engine_up(id_, hello, std::move(*held)); },
           late ? parts_.world.random.up_to(kSecond * 20) : Duration{});
  }
  void on_engine_down(EngineId, const Status& why) override {
    if (lives_) note_death();  // the fake ended in an op
    arrive([this, why] {
      fail_outstanding(why);
      // Whoever hears of a failed call may stop the engine.
      if (listener_ != nullptr) listener_->on_engine_down(id_, why);
    });
  }

 private:
  using Body = wire::EngineBodyUnion;
  using Answer = Result<engine::Reply>;

  // Behind everything that came before on this connection, unless that ends first.
  void arrive(std::function<void()> what, Duration later = {}) {
    Duration time = parts_.world.random.up_to(kMillisecond);
    time.ns += later.ns;
    if (parts_.script.happens(&Faults::slow_answer)) time = parts_.world.random.up_to(kSecond * 8);
    line_ = std::max(line_, parts_.world.now() + time);
    parts_.world.at(line_, [self = weak_from_this(), epoch = epoch_, what = std::move(what)] {
      const auto engine = self.lock();
      if (engine && engine->epoch_ == epoch && engine->listener_ != nullptr) what();
    });
  }
  void answer(std::uint64_t call, Answer result) {
    auto shared = std::make_shared<Answer>(std::move(result));
    arrive([this, call, shared] {
      const auto found = outstanding_.find(call);
      if (found == outstanding_.end()) return;
      const engine::ReplyHandler done = std::move(found->second);
      outstanding_.erase(found);
      done(std::move(*shared));
    });
  }
  void fail_start() {
    parts_.world.after(kMillisecond, [self = weak_from_this(), epoch = epoch_] {
      const auto engine = self.lock();
      if (engine && engine->epoch_ == epoch && engine->listener_ != nullptr)
        engine->listener_->on_engine_down(engine->id_, error(Code::ENGINE_DOWN, "a failed start"));
    });
  }
  void fail_outstanding(const Status& why) {
    const auto failed = std::exchange(outstanding_, {});
    for (const auto& [call, done] : failed) done(why);
  }
  void forget_connection() {
    if (lives_ && fake_->pid() == 0) note_death();  // nobody hears of it any more
    ++epoch_;
    outstanding_.clear();
    listener_ = nullptr;
    line_ = {};
  }
  void note_death() {
    parts_.world.note("dies", id_.value);
    ++deaths_;
    lives_ = false;
    lose_memory();
  }
  // What was on the device is garbage for whoever comes next.
  void lose_memory() {
    hanging_ = false;
    const auto held = parts_.ledger.gone(id_);
    if (device_) fill(*device_, held);
  }
  void fill(const engine::FakePool& pool, const std::vector<std::uint32_t>& chunks) {
    const std::uint64_t seed = parts_.world.random.below(UINT64_MAX);
    for (const std::uint32_t index : chunks) {
      const auto chunk = pool.chunk(index);
      std::fill(chunk.begin(), chunk.end(), static_cast<std::byte>(seed));
    }
  }

  [[nodiscard]] bool stops_here(const Body& request, std::uint64_t call);
  [[nodiscard]] bool op_fault(std::uint64_t call);
  [[nodiscard]] bool move_fault(const Body& request, std::uint64_t call);
  void watch(const Body& request, const std::vector<int>& fds, std::uint64_t call);
  void check_targets(const std::vector<std::unique_ptr<wire::SegmentPlaceT>>& segments);
  void done_in_engine(const Body& request, std::uint64_t call, Answer result, bool dies);
  static bool moves(const Body& request) {
    return request.AsEngineResume() != nullptr || request.AsEngineSuspend() != nullptr ||
           request.AsEngineCommit() != nullptr;
  }

  const Parts parts_;
  const EngineId id_;
  std::unique_ptr<engine::FakeEngine> fake_;
  engine::EngineListener* listener_ = nullptr;
  std::map<std::uint64_t, engine::ReplyHandler> outstanding_;
  std::uint64_t last_call_ = 0;
  std::uint64_t epoch_ = 0;  // of the connection
  std::uint64_t deaths_ = 0;
  TimePoint line_;
  bool hanging_ = false;
  bool stopped_ = false;
  bool lives_ = false;                             // started, and its death was not noted
  std::map<std::uint64_t, std::uint64_t> models_;  // of its ops
  std::map<std::uint64_t, std::vector<std::uint32_t>> dropping_;  // KV, by call
  std::optional<engine::FakePool> device_;
  std::optional<engine::FakePool> host_;
};

// What a runtime owns; goes without a word when its plexrld is killed.
class RingEngineHandle final : public engine::Engine {
 public:
  RingEngineHandle(std::shared_ptr<RingEngine> engine, engine::EngineListener& listener)
      : engine_(std::move(engine)) {
    engine_->attach(listener);
  }
  RingEngineHandle(const RingEngineHandle&) = delete;
  RingEngineHandle& operator=(const RingEngineHandle&) = delete;
  ~RingEngineHandle() override {
    if (!let_go_) engine_->detach();
  }
  void start() override { engine_->start(); }
  void call(wire::EngineBodyUnion request, std::vector<int> fds,
            engine::ReplyHandler done) override {
    engine_->call(std::move(request), fds, std::move(done));
  }
  void kill() override { engine_->kill(); }
  void stop(Duration) override {
    let_go_ = true;
    engine_->stop();
  }
  void detach() override {
    let_go_ = true;
    engine_->detach();
  }
  [[nodiscard]] const engine::EngineSpec& spec() const override { return engine_->spec(); }
  [[nodiscard]] int pid() const override { return engine_->pid() == 0 ? 0 : 1; }

 private:
  const std::shared_ptr<RingEngine> engine_;
  bool let_go_ = false;
};

}  // namespace plexrl::runtime
