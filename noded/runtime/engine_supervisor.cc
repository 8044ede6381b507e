// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine_supervisor.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace plexrl::runtime {
namespace {

constexpr Duration kPingEvery{5 * kSecond.ns};
// Pings are answered by the engine's protocol thread, beside a running op: 20 s of silence is a
// hang or a machine that swaps, and both are cured by a restart only.
constexpr Duration kPongTimeout{20 * kSecond.ns};
constexpr Duration kFirstPause{200 * kMillisecond.ns};
constexpr Duration kLongestPause{30 * kSecond.ns};
constexpr Duration kQuitGrace{5 * kSecond.ns};

Duration pause_after(unsigned failures) {
  const unsigned doublings = std::min(failures, 10U);
  return std::min(Duration{kFirstPause.ns << doublings}, kLongestPause);
}

TimePoint earlier(TimePoint a, TimePoint b) {
  if (a.ns == 0) return b;
  if (b.ns == 0) return a;
  return std::min(a, b);
}

}  // namespace

EngineSupervisor::EngineSupervisor(const Clock& clock, Factory factory, EngineWatcher& watcher,
                                   std::function<void(TimePoint)> wake)
    : clock_(clock), factory_(std::move(factory)), watcher_(watcher), wake_(std::move(wake)) {}

EngineSupervisor::~EngineSupervisor() = default;

void EngineSupervisor::add(engine::EngineSpec spec) {
  const EngineId id = spec.id;
  Slot& slot = slots_[id];
  PLEXRL_CHECK(slot.engine == nullptr, "an engine is added once");
  slot.engine = factory_(std::move(spec), *this);
  slot.engine->start();
}

void EngineSupervisor::stop(EngineId engine) {
  Slot* const slot = find(engine);
  if (slot == nullptr) return;
  slot->engine->stop(kQuitGrace);
  const TimePoint until = clock_.now() + kQuitGrace;
  retired_.push_back({std::move(slot->engine), until});
  slots_.erase(engine);
  wake_(until);
}

std::size_t EngineSupervisor::pending() const {
  return static_cast<std::size_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const auto& entry) { return !entry.second.answered; }));
}

std::optional<Pools> EngineSupervisor::take_held_pools(const std::string& identity) {
  for (auto& [id, slot] : slots_) {
    if (!slot.connected || slot.fds.empty() || slot.pools != identity) continue;
    Pools pools;
    pools.identity = identity;
    pools.sizes = {slot.hello.chunk_bytes, slot.hello.device_chunks, slot.hello.host_chunks};
    if (slot.fds.size() == 2) pools.device = std::move(slot.fds[0]);
    pools.host = std::move(slot.fds.back());
    slot.fds.clear();
    return pools;
  }
  return std::nullopt;
}

void EngineSupervisor::end_silent() {
  std::vector<EngineId> silent;
  for (const auto& [id, slot] : slots_)
    if (!slot.answered) silent.push_back(id);
  for (const EngineId id : silent) kill(id, "it did not say in time what it holds");
}

void EngineSupervisor::settle(const Pools& pools) {
  pools_ = &pools;
  for (auto& [id, slot] : slots_)
    if (slot.connected) introduce(id, slot);
}

bool EngineSupervisor::ready(EngineId engine) const {
  const auto found = slots_.find(engine);
  return found != slots_.end() && found->second.state == State::kUp;
}

void EngineSupervisor::call(EngineId engine, wire::EngineBodyUnion request, std::vector<int> fds,
                            engine::ReplyHandler done) {
  Slot* const slot = find(engine);
  PLEXRL_CHECK(slot != nullptr, "calls go to engines that exist");
  slot->engine->call(std::move(request), std::move(fds), std::move(done));
}

void EngineSupervisor::kill(EngineId engine, const char* why) {
  Slot* const slot = find(engine);
  if (slot == nullptr) return;
  PLEXRL_LOG(kWarning, "engine %llu: ended: %s", static_cast<unsigned long long>(engine.value),
             why);
  slot->error = why;
  slot->engine->kill();
}

void EngineSupervisor::detach_all() {
  for (auto& [id, slot] : slots_) slot.engine->detach();
}

EngineSupervisor::View EngineSupervisor::view(EngineId engine) const {
  const auto found = slots_.find(engine);
  if (found == slots_.end()) return {};
  const Slot& slot = found->second;
  return {slot.state,         slot.failures >= kMaxFailures,
          slot.engine->pid(), slot.restarts,
          slot.error,         slot.retry_at,
          slot.pinned_bytes};
}

EngineSupervisor::Slot* EngineSupervisor::find(EngineId engine) {
  const auto found = slots_.find(engine);
  return found == slots_.end() ? nullptr : &found->second;
}

void EngineSupervisor::on_engine_up(EngineId engine, const wire::EngineHelloT& hello,
                                    std::vector<UniqueFd> fds) {
  Slot* const slot = find(engine);
  if (slot == nullptr) return;
  slot->connected = true;
  slot->answered = true;
  slot->hello = hello;
  slot->fds = std::move(fds);
  slot->pools = held_identity(slot->fds);
  if (pools_ != nullptr) introduce(engine, *slot);
}

bool EngineSupervisor::holds_settled_pools(const Slot& slot) const {
  const auto& sizes = pools_->sizes;
  return slot.pools == pools_->identity && slot.hello.chunk_bytes == sizes.chunk_bytes &&
         slot.hello.device_chunks == sizes.device_chunks &&
         slot.hello.host_chunks == sizes.host_chunks;
}

// A fresh engine gets the pools; one that kept them goes on with them. One that kept others,
// because it answered too late or belongs to an earlier time, is ended: it would go on for a while,
// but what it commits is in memory that is lost with it.
void EngineSupervisor::introduce(EngineId engine, Slot& slot) {
  slot.fds.clear();
  // From here on it is called, so from here on it has to answer.
  slot.ping_at = clock_.now() + kPingEvery;
  slot.pong_due = {};
  wake_(slot.ping_at);
  if (slot.hello.host_chunks == 0) return attach_pools(engine);
  if (holds_settled_pools(slot)) return make_ready(engine, slot);
  kill(engine, "it holds pools that are not the node's any more");
}

void EngineSupervisor::attach_pools(EngineId engine) {
  wire::EngineAttachPoolsT attach;
  attach.chunk_bytes = pools_->sizes.chunk_bytes;
  attach.device_chunks = pools_->sizes.device_chunks;
  attach.host_chunks = pools_->sizes.host_chunks;
  wire::EngineBodyUnion body;
  body.Set(std::move(attach));
  std::vector<int> fds = {pools_->host.get()};
  if (pools_->device) fds.insert(fds.begin(), pools_->device.get());
  call(engine, std::move(body), std::move(fds), [this, engine](const Result<engine::Reply>& reply) {
    Slot* const slot = find(engine);
    if (slot == nullptr) return;
    if (reply) return make_ready(engine, *slot);
    if (reply.error().code() == Code::ENGINE_DOWN) return;
    kill(engine, reply.error().within("attach pools").to_string().c_str());
  });
}

void EngineSupervisor::make_ready(EngineId engine, Slot& slot) {
  slot.state = State::kUp;
  slot.failures = 0;
  slot.error.clear();
  const wire::EngineHelloT hello = std::move(slot.hello);
  slot.hello = {};
  watcher_.engine_ready(engine, hello);
}

void EngineSupervisor::on_engine_down(EngineId engine, const Status& why) {
  Slot* const slot = find(engine);
  if (slot == nullptr) return;
  const bool was_ready = slot->state == State::kUp;
  slot->state = State::kDown;
  slot->pinned_bytes = 0;
  slot->connected = false;
  slot->answered = true;
  slot->fds.clear();
  slot->error = slot->error.empty() ? why.to_string() : slot->error + " (" + why.text() + ")";
  slot->retry_at = clock_.now() + pause_after(slot->failures++);
  wake_(slot->retry_at);
  PLEXRL_LOG(kWarning, "engine %llu is down: %s", static_cast<unsigned long long>(engine.value),
             slot->error.c_str());
  if (was_ready) watcher_.engine_lost(engine, why);
  const Slot* const left = find(engine);  // it may have been stopped with its last model
  if (left != nullptr && left->failures == kMaxFailures) watcher_.engine_failing(engine, why);
}

void EngineSupervisor::ping(EngineId engine, Slot& slot, TimePoint now) {
  slot.ping_at = now + kPingEvery;
  slot.pong_due = now + kPongTimeout;
  wire::EngineBodyUnion body;
  body.Set(wire::EnginePingT{});
  call(engine, std::move(body), {}, [this, engine](const Result<engine::Reply>& reply) {
    Slot* const answered = find(engine);
    if (answered == nullptr || !reply) return;
    answered->pong_due = {};
    if (const auto* const pong = reply->body.AsEnginePong())
      answered->pinned_bytes = pong->pinned_bytes;
  });
}

TimePoint EngineSupervisor::tick_slot(EngineId engine, Slot& slot, TimePoint now) {
  if (slot.state == State::kDown) {
    if (now < slot.retry_at) return slot.retry_at;
    slot.state = State::kStarting;
    slot.error.clear();
    ++slot.restarts;
    slot.engine->start();
    return {};
  }
  if (!slot.connected || pools_ == nullptr) return {};
  if (slot.pong_due.ns != 0 && now >= slot.pong_due) {
    slot.pong_due = {};
    kill(engine, "it did not answer a ping for 20 s");
    return {};
  }
  if (slot.pong_due.ns == 0 && now >= slot.ping_at) ping(engine, slot, now);
  return slot.pong_due.ns != 0 ? slot.pong_due : slot.ping_at;
}

TimePoint EngineSupervisor::tick(TimePoint now) {
  std::erase_if(retired_, [&](const Retired& one) { return now >= one.until; });
  TimePoint next;
  for (const Retired& one : retired_) next = earlier(next, one.until);
  std::vector<EngineId> ids;
  for (const auto& [id, slot] : slots_) ids.push_back(id);
  for (const EngineId id : ids)
    if (Slot* const slot = find(id)) next = earlier(next, tick_slot(id, *slot, now));
  return next;
}

}  // namespace plexrl::runtime
