// SPDX-License-Identifier: Apache-2.0
#include "runtime/lease_service.h"

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/log.h"
#include "store/state_store.h"

namespace plexrl::runtime {
namespace {

constexpr std::string_view kTable = "leases";
// A held lease is looked at this often; one whose processes must go, faster.
constexpr Duration kLookEvery{kSecond.ns};
constexpr Duration kLookForEnd{20 * kMillisecond.ns};
// New children of a holder are looked for this often: one scan of /proc is some milliseconds.
constexpr Duration kScanEvery{5 * kSecond.ns};
// The log hears this often of one that cannot be stopped; a person has to look at it.
constexpr Duration kTellEvery{60 * kSecond.ns};
constexpr std::size_t kMaxPidsTold = 8;

unsigned long long number(OpId op) { return op.value; }

double seconds(Duration time) { return static_cast<double>(time.ns) * 1e-9; }

std::string text_of(const std::vector<pid_t>& pids) {
  std::string text;
  for (std::size_t i = 0; i < pids.size() && i < kMaxPidsTold; ++i)
    text += (i == 0 ? "" : " ") + std::to_string(pids[i]);
  return pids.size() > kMaxPidsTold ? text + " ..." : text;
}

TimePoint earlier(TimePoint a, TimePoint b) { return b.ns == 0 || (a.ns != 0 && a < b) ? a : b; }

}  // namespace

// ---- start ----

Status LeaseService::restore() {
  std::map<OpId, std::string> rows;
  PLEXRL_TRY(parts_.store.scan(kTable, [&](std::uint64_t key, std::uint64_t,
                                           std::string_view value) { rows[OpId{key}] = value; }));
  for (const auto& [id, row] : rows)
    PLEXRL_TRY(restore_one(id, row).within("lease " + std::to_string(id.value)));
  return {};
}

// "tenant job uid bytes limit slice", then "pid start" per named process.
Status LeaseService::restore_one(OpId id, std::string_view row) {
  std::istringstream in{std::string(row)};
  Lease lease;
  Op op;
  if (!(in >> lease.tenant.value >> lease.job_id >> lease.uid >> lease.device_bytes >>
        lease.limit.ns >> op.slice.ns))
    return error(Code::CORRUPT, "the row cannot be read");
  pid_t pid = 0;
  std::uint64_t started = 0;
  while (in >> pid >> started) (void)lease.processes.add(pid, lease.uid, started);
  lease.processes.refresh();
  // A smaller device than before is no reason to forget who uses it.
  lease.device_bytes = std::min(lease.device_bytes, parts_.limits.capacity_bytes);
  if (lease.processes.live() == 0 || parts_.tenants.find(lease.tenant) == nullptr) {
    unstore(id);
    return {};
  }
  op.id = id;
  op.model = lease_model(id);
  op.tenant = lease.tenant;
  op.kind = core::OpKind::kLease;
  op.limit = lease.limit;
  op.client = "lease of before the restart";
  lease.op = id;
  Op& added = parts_.ops.add(std::move(op));
  parts_.results.accepted(added);
  const Lease& kept = leases_.emplace(id, std::move(lease)).first->second;
  const auto* const tenant = parts_.tenants.find(kept.tenant);
  PLEXRL_LOG(kInfo, "job %u still holds lease %llu", kept.job_id, number(id));
  parts_.dispatcher.lease_added(added, kept.device_bytes, tenant->grant, true);
  // Nobody is to come back for it.
  if (!tenant->open()) ask(leases_.at(id), "its job has ended");
  return {};
}

// ---- requests ----

Result<LeaseService::Lease> LeaseService::check(const LeaseRequest& request) const {
  const wire::LeaseAcquireT& acquire = request.acquire;
  const Tenant* const tenant = parts_.tenants.find(request.tenant);
  if (tenant == nullptr) return error(Code::NOT_FOUND, "the job is not open here");
  const auto open = std::count_if(leases_.begin(), leases_.end(), [&](const auto& entry) {
    return entry.second.tenant == request.tenant;
  });
  if (static_cast<std::size_t>(open) >= kMaxPerTenant)
    return error(Code::BUSY, "the job has %zu leases, which is the limit", kMaxPerTenant);
  PLEXRL_TRY(parts_.ops.room_for(request.tenant));
  Lease lease;
  lease.tenant = request.tenant;
  lease.job_id = tenant->job_id;
  lease.uid = tenant->uid;
  lease.session = request.session;
  lease.device_bytes =
      acquire.device_bytes == 0 ? parts_.limits.capacity_bytes : acquire.device_bytes;
  PLEXRL_TRY(parts_.dispatcher.admissible(lease.device_bytes, ModelId{}).within("lease"));
  lease.limit = parts_.limits.limit;
  // Compared in milliseconds: the product of a hostile number would overflow.
  const auto limit_ms = static_cast<std::uint64_t>(lease.limit.ns / kMillisecond.ns);
  if (acquire.limit_ms != 0 && acquire.limit_ms < limit_ms)
    lease.limit = Duration{static_cast<std::int64_t>(acquire.limit_ms) * kMillisecond.ns};
  PLEXRL_TRY(lease.processes.add(request.peer, lease.uid).within("the client"));
  for (const std::int32_t pid : acquire.pids) PLEXRL_TRY(lease.processes.add(pid, lease.uid));
  return lease;
}

void LeaseService::acquire(LeaseRequest request) {
  if (request.acquire.resume != 0) return resume(std::move(request));
  auto lease = check(request);
  if (!lease) return request.handler(lease.error());
  const std::uint64_t bytes = lease->device_bytes;
  const wire::LeaseAcquireT acquire = request.acquire;
  Lease& added = add(*std::move(lease), acquire, request);
  added.granted = std::move(request.handler);
  const auto* const tenant = parts_.tenants.find(added.tenant);
  // May grant it at once.
  parts_.dispatcher.lease_added(*parts_.ops.find(added.op), bytes, tenant->grant, false);
}

LeaseService::Lease& LeaseService::add(Lease lease, const wire::LeaseAcquireT& acquire,
                                       const LeaseRequest& request) {
  Op op;
  op.id = parts_.ops.take_id();
  op.model = lease_model(op.id);
  op.tenant = lease.tenant;
  op.kind = core::OpKind::kLease;
  op.client = request.client;
  op.limit = lease.limit;
  // A holder that cannot make way would be stopped for being asked: only the limit ends it.
  if (acquire.yields) op.slice = parts_.limits.slice;
  // For cancel and explain; lease_granted answers.
  op.waiters.push_back({request.session, request.request_id, [](const OpOutcome&) {}});
  lease.op = op.id;
  const OpId id = op.id;
  parts_.results.accepted(parts_.ops.add(std::move(op)));
  return leases_.emplace(id, std::move(lease)).first->second;
}

// The holder of before a restart (or of a connection that broke) is back.
void LeaseService::resume(LeaseRequest request) {
  const auto found = leases_.find(OpId{request.acquire.resume});
  const bool known = found != leases_.end() && found->second.tenant == request.tenant &&
                     found->second.held && !found->second.session &&
                     found->second.processes.named().count(request.peer) != 0;
  if (!known)
    return request.handler(error(Code::LOST,
                                 "the lease is over; what was in device memory is not "
                                 "yours any more: acquire a new one"));
  Lease& lease = found->second;
  lease.session = request.session;
  parts_.ops.find(lease.op)->client = request.client;
  // It was asked because nobody answered for it; the scheduler asks again when it has to.
  if (!lease.asked) lease.yield_due = {};
  request.handler(grant_of(lease));
}

wire::LeaseGrantT LeaseService::grant_of(const Lease& lease) const {
  wire::LeaseGrantT grant;
  grant.lease = lease.op.value;
  grant.device_bytes = lease.device_bytes;
  grant.limit_ms = static_cast<std::uint64_t>(lease.limit.ns / kMillisecond.ns);
  return grant;
}

LeaseService::Lease* LeaseService::of_session(SessionId session, OpId id) {
  const auto found = leases_.find(id);
  return found == leases_.end() || found->second.session != session ? nullptr : &found->second;
}

void LeaseService::watch(SessionId session, OpId id, AskedHandler handler) {
  Lease* const lease = of_session(session, id);
  if (lease == nullptr || !lease->held)
    return handler(error(Code::NOT_FOUND, "this connection does not hold lease %llu", number(id)));
  if (lease->watcher)
    return handler(error(Code::EXISTS, "lease %llu is being watched already", number(id)));
  lease->watcher = std::move(handler);
  if (lease->asked) tell_watcher(*lease);
}

void LeaseService::yield(SessionId session, std::uint64_t request_id, OpId id,
                         GrantHandler handler) {
  Lease* const lease = of_session(session, id);
  if (lease == nullptr || !lease->held)
    return handler(error(Code::NOT_FOUND, "this connection does not hold lease %llu", number(id)));
  let_go(*lease);
  lease->granted = std::move(handler);
  Op& op = *parts_.ops.find(id);
  parts_.ops.join(op, {session, request_id, [](const OpOutcome&) {}});
  parts_.dispatcher.lease_yielded(op);
}

// The holder has the device no more; whoever watches hears that.
void LeaseService::let_go(Lease& lease) {
  unstore(lease.op);
  lease.held = lease.asked = lease.stopping = false;
  lease.yield_due = lease.reap_asked = {};
  lease.trouble.clear();
  if (!lease.watcher) return;
  const AskedHandler watcher = std::exchange(lease.watcher, {});
  watcher(error(Code::CANCELLED, "the lease is not held any more"));
}

Status LeaseService::release(SessionId session, OpId id) {
  const Lease* const lease = of_session(session, id);
  if (lease == nullptr)
    return error(Code::NOT_FOUND, "this connection has no lease %llu", number(id));
  end(id, error(Code::CANCELLED, "the lease was released"));
  return {};
}

void LeaseService::cancel(OpId id) {
  const auto found = leases_.find(id);
  if (found == leases_.end() || found->second.held) return;
  end(id, error(Code::CANCELLED, "cancelled while it waited"));
}

// ---- the scheduler ----

void LeaseService::lease_granted(Op& op) {
  Lease& lease = leases_.at(op.id);
  lease.held = true;
  lease.held_since = parts_.clock.now();
  lease.scan_at = lease.held_since + kScanEvery;
  store(lease);
  parts_.wake(lease.held_since + kLookEvery);
  const std::vector<Waiter> waiters = op.waiters;
  for (const Waiter& waiter : waiters)
    (void)parts_.ops.leave(op, waiter.session, waiter.request_id);
  PLEXRL_LOG(kDebug, "job %u holds lease %llu", lease.job_id, number(op.id));
  if (!lease.granted) return;
  const GrantHandler granted = std::exchange(lease.granted, {});
  granted(grant_of(lease));
}

void LeaseService::lease_asked(Op& op) {
  Lease& lease = leases_.at(op.id);
  lease.asked = true;
  ask(lease, "others wait or its time is over");
  if (lease.watcher) tell_watcher(lease);
}

void LeaseService::ask(Lease& lease, const char* why) {
  if (lease.yield_due.ns != 0) return;
  lease.yield_due = parts_.clock.now() + parts_.limits.yield_timeout;
  lease.reap_at = lease.yield_due;
  lease.processes.refresh();
  parts_.wake(parts_.clock.now() + kLookForEnd);
  PLEXRL_LOG(kInfo, "lease %llu of job %u is asked to yield: %s; processes %s", number(lease.op),
             lease.job_id, why, text_of(lease.processes.pids()).c_str());
}

void LeaseService::tell_watcher(Lease& lease) {
  const std::int64_t left = lease.yield_due.ns - parts_.clock.now().ns;
  wire::LeaseAskedT asked;
  asked.yield_in_ms = static_cast<std::uint64_t>(std::max<std::int64_t>(left, 0) / kMillisecond.ns);
  asked.text = "others wait for the device group, or the lease has reached its limit";
  const AskedHandler watcher = std::exchange(lease.watcher, {});
  watcher(asked);
}

// ---- ends ----

void LeaseService::session_closed(SessionId session) {
  std::vector<OpId> mine;
  for (const auto& [id, lease] : leases_)
    if (lease.session == session) mine.push_back(id);
  for (const OpId id : mine) {
    Lease& lease = leases_.at(id);
    lease.session = {};
    lease.watcher = {};
    lease.granted = {};
    if (!lease.held) {
      end(id, error(Code::CANCELLED, "the client is gone"));
      continue;
    }
    ask(lease, "its connection has ended");
  }
}

void LeaseService::tenant_closed(TenantId tenant) {
  std::vector<OpId> mine;
  for (const auto& [id, lease] : leases_)
    if (lease.tenant == tenant) mine.push_back(id);
  for (const OpId id : mine) {
    if (!leases_.at(id).held) {
      end(id, error(Code::CANCELLED, "the job has ended or was requeued"));
    } else {
      ask(leases_.at(id), "its job has ended");
    }
  }
}

// Nobody of the lease uses the device any more.
void LeaseService::end(OpId id, const Status& why) {
  Lease lease = std::move(leases_.at(id));
  leases_.erase(id);
  const bool was_held = lease.held;
  if (was_held) let_go(lease);
  Op& op = *parts_.ops.find(id);
  parts_.dispatcher.lease_ended(op);
  OpOutcome outcome;
  if (!was_held || lease.stopping) outcome.status = why;
  parts_.results.finish(*parts_.ops.find(id), std::move(outcome), 0);
  if (lease.granted) lease.granted(why);
  parts_.ended();
}

// ---- time ----

void LeaseService::stop(Lease& lease, TimePoint now) {
  if (now < lease.reap_at) return;
  lease.reap_at = now + kReapAgain;
  lease.processes.refresh();
  if (!lease.stopping) {
    ++stops_;
    lease.stopping = true;
    lease.stopping_since = now;
    lease.tell_at = {};
    PLEXRL_LOG(kWarning,
               "job %u did not yield lease %llu in time; its %zu processes are stopped: %s",
               lease.job_id, number(lease.op), lease.processes.live(),
               text_of(lease.processes.pids()).c_str());
  }
  note_trouble(lease, ask_reaper(lease, now), now);
}

// Asks again as long as a process lives. What it returns is why they live: what became of the
// request before, or that there can be none.
Status LeaseService::ask_reaper(Lease& lease, TimePoint now) {
  const bool first = lease.reap_asked.ns == 0;
  Status before = first ? Status() : parts_.reaper.last();
  if (before.code() == Code::BUSY && now < lease.reap_asked + kReapAnswer) return before;
  const Status sent = parts_.reaper.stop({lease.job_id, lease.uid, lease.processes.pids()});
  lease.reap_asked = now;
  if (!sent.ok()) return sent;
  if (!first && before.ok())
    return error(Code::BUSY, "the last request was carried out, but not all have ended");
  return before;
}

void LeaseService::note_trouble(Lease& lease, const Status& trouble, TimePoint now) {
  const bool same = trouble.ok() ? lease.trouble.empty() : trouble.text() == lease.trouble;
  if (!same) lease.trouble = trouble.ok() ? "" : trouble.text();
  if (trouble.ok() || (same && now < lease.tell_at)) return;
  lease.tell_at = now + kTellEvery;
  PLEXRL_LOG(kWarning, "lease %llu of job %u: not stopped after %.1f s: %s; processes %s",
             number(lease.op), lease.job_id, seconds(now - lease.stopping_since),
             lease.trouble.c_str(), text_of(lease.processes.pids()).c_str());
}

TimePoint LeaseService::tick_held(Lease& lease, TimePoint now, bool* over) {
  if (now >= lease.scan_at) {
    lease.scan_at = now + kScanEvery;
    lease.processes.refresh();
  }
  // The first look drops the dead; the scan finds what they have left behind.
  if (lease.processes.live() == 0) {
    lease.processes.refresh();
    *over = lease.processes.live() == 0;
    if (*over) return {};
  }
  if (lease.yield_due.ns == 0) return now + kLookEvery;
  if (now >= lease.yield_due) stop(lease, now);
  const bool waits_for_end = lease.stopping || !lease.session;
  return waits_for_end ? now + kLookForEnd : std::min(now + kLookEvery, lease.yield_due);
}

TimePoint LeaseService::tick(TimePoint now) {
  TimePoint next;
  std::vector<OpId> over;
  for (auto& [id, lease] : leases_) {
    if (!lease.held) continue;
    bool gone = false;
    const TimePoint again = tick_held(lease, now, &gone);
    if (gone) over.push_back(id);
    if (again.ns != 0) next = earlier(next, again);
  }
  for (const OpId id : over) freed(id);
  return next;
}

void LeaseService::freed(OpId id) {
  const Lease& lease = leases_.at(id);
  const Duration held = parts_.clock.now() - lease.held_since;
  PLEXRL_LOG(kInfo, "lease %llu of job %u is over: its processes are gone, %.1f s after the grant",
             number(id), lease.job_id, seconds(held));
  end(id, error(Code::CANCELLED, "its processes were stopped"));
}

// ---- the store ----

void LeaseService::store(const Lease& lease) {
  std::ostringstream out;
  out << lease.tenant.value << ' ' << lease.job_id << ' ' << lease.uid << ' ' << lease.device_bytes
      << ' ' << lease.limit.ns << ' ' << parts_.ops.find(lease.op)->slice.ns << '\n';
  for (const auto& [pid, started] : lease.processes.named()) out << pid << ' ' << started << '\n';
  const Status stored = parts_.store.put(kTable, lease.op.value, 0, out.str());
  if (!stored.ok())
    PLEXRL_LOG(kWarning, "lease %llu: %s; a restart of plexrld would not know of it",
               number(lease.op), stored.to_string().c_str());
}

void LeaseService::unstore(OpId lease) {
  if (const Status status = parts_.store.erase(kTable, lease.value, 0); !status.ok())
    PLEXRL_LOG(kWarning, "lease %llu: %s", number(lease), status.to_string().c_str());
}

// ---- reading ----

std::optional<LeaseService::View> LeaseService::view(OpId id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return std::nullopt;
  Lease& lease = found->second;
  View view;
  view.lease = id;
  view.tenant = lease.tenant;
  view.device_bytes = lease.device_bytes;
  view.state = lease.stopping            ? "stopping"
               : lease.yield_due.ns != 0 ? "asked"
               : lease.held              ? "held"
                                         : "queued";
  view.since = lease.held_since;
  if (lease.yield_due.ns != 0)
    view.yield_left_ns = std::max<std::int64_t>(lease.yield_due.ns - parts_.clock.now().ns, 0);
  if (lease.stopping) view.stopping_ns = parts_.clock.now().ns - lease.stopping_since.ns;
  view.processes = lease.processes.live();
  view.pids = lease.processes.pids();
  view.trouble = lease.trouble;
  return view;
}

std::optional<LeaseService::View> LeaseService::holder() {
  for (const auto& [id, lease] : leases_)
    if (lease.held) return view(id);
  return std::nullopt;
}

std::set<pid_t> LeaseService::holder_pids() {
  std::set<pid_t> found;
  for (auto& [id, lease] : leases_) {
    if (!lease.held) continue;
    lease.processes.refresh();
    for (const pid_t pid : lease.processes.pids()) found.insert(pid);
  }
  return found;
}

}  // namespace plexrl::runtime
