// SPDX-License-Identifier: Apache-2.0
// LeaseService: leases of the device group, from the request until nothing of the holder can use
// the device any more. A lease is an op of the OpTable with the kind kLease.
//
//   acquire -> queued -> held -> (asked) -> yielded = queued again
//                          |        `-> no answer in time -> its processes are stopped
//                          `-> released, or its processes are gone -> over
//
// A holder whose connection ends is asked at once; it loses the lease when its processes are gone.
// Leases that are held are in the StateStore: a later plexrld gives the device to nobody else
// before the holder came back and yielded, or its processes are gone. Loop thread only; handlers
// may be called from inside the call.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/dispatcher.h"
#include "runtime/holder_processes.h"
#include "runtime/op_results.h"
#include "runtime/reaper.h"
#include "runtime/tenant_table.h"

namespace plexrl::runtime {

using GrantHandler = std::function<void(Result<wire::LeaseGrantT>)>;
using AskedHandler = std::function<void(Result<wire::LeaseAskedT>)>;

struct LeaseLimits {
  std::uint64_t capacity_bytes = 0;  // of the device, for models
  Duration slice;                    // while others wait
  Duration limit;                    // the longest hold
  Duration yield_timeout;            // from being asked to being stopped
};

struct LeaseRequest {
  TenantId tenant;
  SessionId session;
  std::uint64_t request_id = 0;
  pid_t peer = 0;
  std::string client;
  wire::LeaseAcquireT acquire;
  GrantHandler handler;
};

class LeaseService final : public LeaseListener {
 public:
  static constexpr std::size_t kMaxPerTenant = 16;
  static constexpr Duration kReapAgain{kSecond.ns};
  // A request to the reaper that is not answered in this time is given up and sent again.
  static constexpr Duration kReapAnswer{3 * kSecond.ns};

  struct Parts {
    const Clock& clock;
    LeaseLimits limits;
    TenantTable& tenants;
    OpTable& ops;
    OpResults& results;
    Dispatcher& dispatcher;
    store::StateStore& store;
    Reaper& reaper;
    std::function<void(TimePoint)> wake;
    std::function<void()> ended;  // a lease is over; its tenant may be dropped
  };
  explicit LeaseService(Parts parts) : parts_(std::move(parts)) {}
  void set_limits(const LeaseLimits& limits) { parts_.limits = limits; }  // of later leases

  // Holders that an earlier plexrld left; before the engines are up.
  [[nodiscard]] Status restore();

  // Refusals: INVALID_ARGUMENT, NO_CAPACITY (more than the device has), PERMISSION (pids), BUSY.
  void acquire(LeaseRequest request);
  // One watcher at a time; a second one gets EXISTS.
  void watch(SessionId session, OpId lease, AskedHandler handler);
  // Queued again; `request_id` is that of the yield, for cancel and explain.
  void yield(SessionId session, std::uint64_t request_id, OpId lease, GrantHandler handler);
  [[nodiscard]] Status release(SessionId session, OpId lease);
  // A waiting acquire or yield; the lease is over.
  void cancel(OpId lease);
  void session_closed(SessionId session);
  void tenant_closed(TenantId tenant);
  TimePoint tick(TimePoint now);

  void lease_granted(Op& op) override;
  void lease_asked(Op& op) override;

  struct View {
    OpId lease;
    TenantId tenant;
    std::uint64_t device_bytes = 0;
    const char* state = "";  // "queued", "held", "asked", "stopping"
    TimePoint since;         // of the state "held"
    std::int64_t yield_left_ns = 0;
    std::int64_t stopping_ns = 0;  // since it was to be stopped
    std::size_t processes = 0;
    std::vector<pid_t> pids;  // of those that are held
    std::string trouble;      // why it is not stopped yet; empty: nothing known
  };
  // Of one that is not known: nothing.
  [[nodiscard]] std::optional<View> view(OpId lease);
  // The one that is held; at most one is.
  [[nodiscard]] std::optional<View> holder();
  // All processes of the one that is held, as of now.
  [[nodiscard]] std::set<pid_t> holder_pids();
  [[nodiscard]] std::uint64_t stops() const { return stops_; }  // leases that were ended by force

 private:
  struct Lease {
    OpId op;
    TenantId tenant;
    std::uint32_t job_id = 0;
    std::uint32_t uid = 0;
    SessionId session;  // none: its connection is gone
    std::uint64_t device_bytes = 0;
    Duration limit;
    HolderProcesses processes;
    GrantHandler granted;  // of the request that waits
    AskedHandler watcher;
    bool held = false;
    bool asked = false;
    bool stopping = false;
    TimePoint held_since;
    TimePoint yield_due;  // 0: not asked
    TimePoint reap_at;
    TimePoint reap_asked;  // when the last request went to the reaper
    TimePoint stopping_since;
    TimePoint tell_at;    // when the log hears again of the same trouble
    std::string trouble;  // of stopping it
    TimePoint scan_at;
  };

  [[nodiscard]] Lease* of_session(SessionId session, OpId lease);
  [[nodiscard]] Result<Lease> check(const LeaseRequest& request) const;
  void resume(LeaseRequest request);
  Lease& add(Lease lease, const wire::LeaseAcquireT& acquire, const LeaseRequest& request);
  [[nodiscard]] wire::LeaseGrantT grant_of(const Lease& lease) const;
  void ask(Lease& lease, const char* why);
  void tell_watcher(Lease& lease);
  void end(OpId lease, const Status& why);
  void let_go(Lease& lease);
  void store(const Lease& lease);
  void unstore(OpId lease);
  [[nodiscard]] Status restore_one(OpId id, std::string_view row);
  TimePoint tick_held(Lease& lease, TimePoint now, bool* over);
  void stop(Lease& lease, TimePoint now);
  [[nodiscard]] Status ask_reaper(Lease& lease, TimePoint now);
  static void note_trouble(Lease& lease, const Status& trouble, TimePoint now);
  void freed(OpId id);

  Parts parts_;
  std::map<OpId, Lease> leases_;
  std::uint64_t stops_ = 0;
};

}  // namespace plexrl::runtime
