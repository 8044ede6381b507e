// SPDX-License-Identifier: Apache-2.0
// CompletionGate: what a job asks of its completions by /pause and /sleep, each job for itself.
// While a job is paused or asleep its completions are held here, those that ran are ended, held or
// waited for; when it is neither they go on, one per turn of the loop. A job that has asked for
// nothing has no state. Not kept over a restart of plexrld. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/result.h"
#include "base/strong_id.h"
#include "loop/event_loop.h"

namespace plexrl::http {

// A completion that has been let in. It leaves the gate when it ends, at the latest when it is
// destroyed.
class GatedCall {
 public:
  virtual ~GatedCall() = default;
  virtual void go_on() = 0;     // from the start: models may be others now
  virtual void withdraw() = 0;  // its op ends, and nothing is answered; go_on() comes later
  virtual void abort() = 0;     // answers now

 protected:
  GatedCall() = default;
  GatedCall(const GatedCall&) = default;
  GatedCall& operator=(const GatedCall&) = default;
};

enum class WhatRuns : std::uint8_t { kAbort, kWait, kKeep };

// What of a sleeping job is away.
inline constexpr std::uint8_t kWeights = 1;
inline constexpr std::uint8_t kKvCache = 2;

class CompletionGate {
 public:
  // OK: nothing of the job runs. CANCELLED: it was let go on before that.
  using Quiet = std::function<void(const Status&)>;
  // Gives the names of those that it has discarded.
  using Discard = std::function<std::set<std::string>(TenantId)>;

  explicit CompletionGate(Discard discard) : discard_(std::move(discard)) {}
  CompletionGate(const CompletionGate&) = delete;
  CompletionGate& operator=(const CompletionGate&) = delete;
  // Before the first request.
  [[nodiscard]] Status connect(loop::EventLoop& loop);

  // Whether the call may run. If not it is held.
  [[nodiscard]] bool enter(TenantId tenant, SessionId id, GatedCall& call);
  void leave(TenantId tenant, SessionId id);

  // `quiet` may be called at once. It is `asker`'s, which forgets it by forget().
  void pause(TenantId tenant, WhatRuns how, SessionId asker, Quiet quiet);
  void resume(TenantId tenant);
  // `discard`: the adapters' weights are given up as soon as nothing runs. A job that sleeps
  // already is left as it is.
  struct Sleep {
    std::uint8_t away = kWeights | kKvCache;
    bool discard = false;
  };
  void sleep(TenantId tenant, Sleep sleep, WhatRuns how, SessionId asker, Quiet quiet);
  // INVALID_ARGUMENT, and nothing changes: that would compute with weights that are missing.
  [[nodiscard]] Status wake(TenantId tenant, std::uint8_t tags);
  void forget(TenantId tenant, SessionId asker);

  [[nodiscard]] bool is_paused(TenantId tenant) const;
  [[nodiscard]] bool is_asleep(TenantId tenant) const;
  [[nodiscard]] bool has_weights(TenantId tenant) const;
  // An adapter that sleep has discarded has weights again, or is given up. Whether it was one.
  bool found(TenantId tenant, const std::string& adapter);

  [[nodiscard]] std::size_t held() const;
  void tenant_closed(TenantId tenant) { jobs_.erase(tenant); }

 private:
  struct Job {
    bool paused = false, asleep = false, discard = false;
    std::uint8_t away = 0;
    std::set<std::string> missing;  // adapters
    std::map<SessionId, GatedCall*> running, held;
    std::map<SessionId, Quiet> askers;
    [[nodiscard]] bool closed() const { return paused || asleep; }
  };
  void quieten(TenantId tenant, WhatRuns how, SessionId asker, Quiet quiet);
  void look_quiet(TenantId tenant);
  void opened(TenantId tenant);
  void forget_idle(TenantId tenant);
  void let_one_go();
  [[nodiscard]] const Job* find(TenantId tenant) const;

  Discard discard_;
  loop::Timer timer_;
  std::map<TenantId, Job> jobs_;
};

}  // namespace plexrl::http
