// SPDX-License-Identifier: Apache-2.0
#include "http/completion_gate.h"

#include <algorithm>
#include <vector>

namespace plexrl::http {

Status CompletionGate::connect(loop::EventLoop& loop) {
  PLEXRL_ASSIGN(timer_, loop.make_timer([this] { let_one_go(); }));
  return {};
}

const CompletionGate::Job* CompletionGate::find(TenantId tenant) const {
  const auto found = jobs_.find(tenant);
  return found == jobs_.end() ? nullptr : &found->second;
}

bool CompletionGate::enter(TenantId tenant, SessionId id, GatedCall& call) {
  Job& job = jobs_[tenant];
  (job.closed() ? job.held : job.running)[id] = &call;
  return !job.closed();
}

void CompletionGate::leave(TenantId tenant, SessionId id) {
  const auto found = jobs_.find(tenant);
  if (found == jobs_.end()) return;
  found->second.held.erase(id);
  if (found->second.running.erase(id) > 0) look_quiet(tenant);
  forget_idle(tenant);
}

// ---- closing ----

void CompletionGate::pause(TenantId tenant, WhatRuns how, SessionId asker, Quiet quiet) {
  jobs_[tenant].paused = true;
  quieten(tenant, how, asker, std::move(quiet));
}

void CompletionGate::sleep(TenantId tenant, Sleep sleep, WhatRuns how, SessionId asker,
                           Quiet quiet) {
  Job& job = jobs_[tenant];
  if (job.asleep) return quiet({});
  job.asleep = true;
  job.away = sleep.away;
  job.discard = sleep.discard;
  quieten(tenant, how, asker, std::move(quiet));
}

void CompletionGate::quieten(TenantId tenant, WhatRuns how, SessionId asker, Quiet quiet) {
  Job& job = jobs_[tenant];
  job.askers[asker] = std::move(quiet);
  // Ending one may end others, which leave then.
  while (how != WhatRuns::kWait && !job.running.empty()) {
    const auto [id, call] = *job.running.begin();
    if (how == WhatRuns::kKeep) job.held[id] = call;
    how == WhatRuns::kKeep ? call->withdraw() : call->abort();
    job.running.erase(id);
  }
  look_quiet(tenant);
}

void CompletionGate::look_quiet(TenantId tenant) {
  const auto found = jobs_.find(tenant);
  if (found == jobs_.end() || !found->second.running.empty() || !found->second.closed()) return;
  Job& job = found->second;
  if (job.discard) {
    job.discard = false;
    job.missing.merge(discard_(tenant));
  }
  std::map<SessionId, Quiet> askers;
  askers.swap(job.askers);
  for (const auto& [id, quiet] : askers) quiet({});
}

void CompletionGate::forget(TenantId tenant, SessionId asker) {
  const auto found = jobs_.find(tenant);
  if (found != jobs_.end()) found->second.askers.erase(asker);
}

// ---- opening ----

void CompletionGate::resume(TenantId tenant) {
  const auto found = jobs_.find(tenant);
  if (found == jobs_.end()) return;
  found->second.paused = false;
  opened(tenant);
}

Status CompletionGate::wake(TenantId tenant, std::uint8_t tags) {
  const auto found = jobs_.find(tenant);
  if (found == jobs_.end() || !found->second.asleep) return {};
  Job& job = found->second;
  const auto away = static_cast<std::uint8_t>(job.away & ~tags);
  if (away == 0 && !job.missing.empty())
    return error(Code::INVALID_ARGUMENT,
                 "sleep has discarded the weights of adapter '%s', which samples would be computed "
                 "with: /wake_up?tags=weights, then load it again or unload it, then wake the rest",
                 job.missing.begin()->c_str());
  job.away = away;
  job.asleep = away != 0;
  if (!job.asleep) job.discard = false;
  opened(tenant);
  return {};
}

void CompletionGate::opened(TenantId tenant) {
  Job& job = jobs_.at(tenant);
  if (job.closed()) return;
  std::map<SessionId, Quiet> askers;
  askers.swap(job.askers);
  for (const auto& [id, quiet] : askers)
    quiet(error(Code::INVALID_ARGUMENT, "it was undone before all requests had ended"));
  timer_.arm(system_clock().now());
  forget_idle(tenant);
}

// One of each job that has any: what one of them costs is what a new request costs.
void CompletionGate::let_one_go() {
  std::vector<TenantId> open;
  for (const auto& [tenant, job] : jobs_)
    if (!job.closed() && !job.held.empty()) open.push_back(tenant);
  for (const TenantId tenant : open) {
    const auto found = jobs_.find(tenant);
    if (found == jobs_.end() || found->second.held.empty()) continue;
    GatedCall* const call = found->second.held.begin()->second;
    found->second.held.erase(found->second.held.begin());
    call->go_on();
    forget_idle(tenant);
  }
  if (!open.empty()) timer_.arm(system_clock().now());
}

void CompletionGate::forget_idle(TenantId tenant) {
  const auto found = jobs_.find(tenant);
  if (found == jobs_.end()) return;
  const Job& job = found->second;
  if (!job.closed() && job.running.empty() && job.held.empty() && job.missing.empty())
    jobs_.erase(found);
}

// ---- what is ----

bool CompletionGate::is_paused(TenantId tenant) const {
  const Job* const job = find(tenant);
  return job != nullptr && job->paused;
}

bool CompletionGate::is_asleep(TenantId tenant) const {
  const Job* const job = find(tenant);
  return job != nullptr && job->asleep;
}

bool CompletionGate::has_weights(TenantId tenant) const {
  const Job* const job = find(tenant);
  return job == nullptr || !job->asleep || (job->away & kWeights) == 0;
}

bool CompletionGate::found(TenantId tenant, const std::string& adapter) {
  const auto job = jobs_.find(tenant);
  return job != jobs_.end() && job->second.missing.erase(adapter) > 0;
}

std::size_t CompletionGate::held() const {
  std::size_t count = 0;
  for (const auto& [tenant, job] : jobs_) count += job.held.size();
  return count;
}

}  // namespace plexrl::http
