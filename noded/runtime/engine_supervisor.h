// SPDX-License-Identifier: Apache-2.0
// EngineSupervisor: keeps the engine processes of the node running. Starts them, hands them the
// pools, pings them, ends those that do not answer, and starts dead ones again after a growing
// pause. Knows nothing of models and ops. Loop thread only.
//
// An engine is `ready` when it is connected and has the pools. Between plexrld's start and
// settle() engines are only connected to: what they hold decides which pools are used.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "runtime/pools.h"

namespace plexrl::runtime {

class EngineWatcher {
 public:
  virtual ~EngineWatcher() = default;
  // Ready for memory commands and ops. `hello` tells what it holds; nothing unless it survived a
  // restart of plexrld.
  virtual void engine_ready(EngineId engine, const wire::EngineHelloT& hello) = 0;
  virtual void engine_lost(EngineId engine, const Status& why) = 0;
  // It died kMaxFailures times without having been ready in between; it is still tried again.
  virtual void engine_failing(EngineId engine, const Status& why) = 0;
};

class EngineSupervisor final : public engine::EngineListener {
 public:
  using Factory =
      std::function<std::unique_ptr<engine::Engine>(engine::EngineSpec, engine::EngineListener&)>;
  static constexpr unsigned kMaxFailures = 3;

  enum class State : std::uint8_t { kStarting, kUp, kDown };
  struct View {
    State state = State::kDown;
    bool failing = false;
    int pid = 0;
    unsigned restarts = 0;
    std::string error;
    TimePoint retry_at;
    std::uint64_t pinned_bytes = 0;  // as of the last pong
  };

  // `wake`: tick() is needed by then.
  EngineSupervisor(const Clock& clock, Factory factory, EngineWatcher& watcher,
                   std::function<void(TimePoint)> wake);
  EngineSupervisor(const EngineSupervisor&) = delete;
  EngineSupervisor& operator=(const EngineSupervisor&) = delete;
  ~EngineSupervisor() override;

  void add(engine::EngineSpec spec);  // and start
  void stop(EngineId engine);         // and forget
  // Before settle(): the engines that have neither connected nor failed yet.
  [[nodiscard]] std::size_t pending() const;
  // The pools of that identity, when an engine gave them back.
  [[nodiscard]] std::optional<Pools> take_held_pools(const std::string& identity);
  // Before settle(): ends the engines that have not answered. What they hold is not known, so
  // nobody would keep others out of their chunks.
  void end_silent();
  // From now on engines get these pools. One that holds other pools is ended: what it would commit
  // there is nowhere when it dies.
  void settle(const Pools& pools);

  [[nodiscard]] bool ready(EngineId engine) const;
  void call(EngineId engine, wire::EngineBodyUnion request, std::vector<int> fds,
            engine::ReplyHandler done);
  void kill(EngineId engine, const char* why);
  void detach_all();
  [[nodiscard]] View view(EngineId engine) const;

  // Pings, back-offs. Returns when to call again.
  TimePoint tick(TimePoint now);

  void on_engine_up(EngineId engine, const wire::EngineHelloT& hello,
                    std::vector<UniqueFd> fds) override;
  void on_engine_down(EngineId engine, const Status& why) override;

 private:
  struct Slot {
    std::unique_ptr<engine::Engine> engine;
    State state = State::kStarting;
    bool connected = false;
    bool answered = false;  // up or down came at least once
    unsigned failures = 0;  // since it was last ready
    unsigned restarts = 0;
    std::string error;
    TimePoint retry_at;  // when down
    TimePoint ping_at;   // next ping
    TimePoint pong_due;  // 0: none under way
    std::uint64_t pinned_bytes = 0;
    wire::EngineHelloT hello;
    std::vector<UniqueFd> fds;
    std::string pools;  // identity of those that came with the hello
  };

  [[nodiscard]] Slot* find(EngineId engine);
  [[nodiscard]] bool holds_settled_pools(const Slot& slot) const;
  void introduce(EngineId engine, Slot& slot);
  void attach_pools(EngineId engine);
  void make_ready(EngineId engine, Slot& slot);
  void ping(EngineId engine, Slot& slot, TimePoint now);
  TimePoint tick_slot(EngineId engine, Slot& slot, TimePoint now);

  const Clock& clock_;
  Factory factory_;
  EngineWatcher& watcher_;
  std::function<void(TimePoint)> wake_;
  std::map<EngineId, Slot> slots_;
  // Stopped engines; they are destroyed from tick(), as a stop may come from one's own callback.
  struct Retired {
    std::unique_ptr<engine::Engine> engine;
    TimePoint until;
  };
  std::vector<Retired> retired_;
  const Pools* pools_ = nullptr;  // set by settle()
};

}  // namespace plexrl::runtime
