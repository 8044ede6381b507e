// SPDX-License-Identifier: Apache-2.0
// TenantService: jobs come and go. Opens incarnations against the node's host memory, closes them,
// and drops the state of closed jobs when it is needed for others or has been kept long enough.
// Loop thread only.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "config/site_config.h"
#include "plexrl_generated.h"
#include "runtime/model_service.h"
#include "runtime/profile_book.h"
#include "runtime/task_watch.h"
#include "runtime/tenant_table.h"

namespace plexrl::runtime {

using DoneHandler = std::function<void(const Status&)>;

class TenantService {
 public:
  // A job whose tasks are all gone is given this long for its epilog or a new task.
  static constexpr Duration kOrphanWait{600 * kSecond.ns};
  // An OpenJob waits this long for the memory of ended jobs; the prolog's own deadline is longer.
  static constexpr Duration kOpenWait{10 * kSecond.ns};

  struct Parts {
    const Clock& clock;
    const config::PoolEntry& pool;
    const config::DaemonEntry& daemon;
    TenantTable& tenants;
    TaskWatch& tasks;
    ModelTable& models;
    OpTable& ops;
    ModelService& model_service;
    OpService& op_service;
    Accounting& accounting;
    ProfileBook& profile_book;
    state::StateManager& state;
  };
  // `closed`: the tenant's connections have to go.
  TenantService(Parts parts, std::function<void(TenantId)> closed)
      : parts_(parts), closed_(std::move(closed)) {}

  // After a start of plexrld: reservations are made again. `rebooted`: no job of before can live.
  [[nodiscard]] Status restore(bool rebooted);
  void open(const wire::OpenJobT& request, DoneHandler done);
  // The token of the open incarnation.
  [[nodiscard]] Result<std::string> attach(const wire::AttachTaskT& request);
  [[nodiscard]] Status close(std::uint32_t job_id);
  // Drops a closed job's state now.
  [[nodiscard]] Status evict(std::uint32_t job_id);
  void model_gone();
  void lease_gone() { finish_drops(); }

  // Retention, orphans, OpenJobs that wait. Returns when to call again.
  // `connected`: tenants that have a connection.
  TimePoint tick(TimePoint now, const std::set<TenantId>& connected);

 private:
  [[nodiscard]] Status reserve_again();
  struct Pending {
    wire::OpenJobT request;
    slurm::Grant grant;
    DoneHandler done;
    TimePoint give_up;
  };
  [[nodiscard]] Result<slurm::Grant> check_grant(const std::string& text) const;
  [[nodiscard]] Status try_open(const wire::OpenJobT& request, const slurm::Grant& grant);
  void end_incarnation(TenantId tenant);
  [[nodiscard]] bool reclaim_oldest();
  void start_drop(TenantId tenant);
  void finish_drops();
  void retry_pending(TimePoint now);
  void close_orphans(TimePoint now, const std::set<TenantId>& connected);

  Parts parts_;
  std::function<void(TenantId)> closed_;
  std::set<TenantId> dropping_;
  std::vector<Pending> pending_;
  std::map<TenantId, TimePoint> alone_since_;
};

}  // namespace plexrl::runtime
