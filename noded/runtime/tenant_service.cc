// SPDX-License-Identifier: Apache-2.0
#include "runtime/tenant_service.h"

#include <algorithm>

#include "base/log.h"

namespace plexrl::runtime {
namespace {

constexpr Duration kCheckEvery{5 * kSecond.ns};
// OpenJobs that wait for memory at once; a node has far fewer prologs under way.
constexpr std::size_t kMaxPending = 64;

std::uint64_t host_bytes(const slurm::Grant& grant) { return grant.host_memory_mib << 20; }

}  // namespace

Status TenantService::restore(bool rebooted) {
  PLEXRL_TRY(reserve_again());
  if (!rebooted) return {};
  // The closed ones too: their times are of a clock that began anew with the boot.
  std::vector<TenantId> all;
  for (const auto& [id, tenant] : parts_.tenants.all()) all.push_back(id);
  for (const TenantId id : all) {
    PLEXRL_TRY(parts_.tenants.close(id, TenantState::kClosed, parts_.clock.now()));
    parts_.tasks.forget(id);
  }
  return {};
}

// A job whose OpenJob failed may have a row all the same, and its memory may be others' by now. It
// has no models: those that have come first.
Status TenantService::reserve_again() {
  std::vector<const Tenant*> order;
  for (const auto& [id, tenant] : parts_.tenants.all()) order.push_back(&tenant);
  const auto has_models = [this](const Tenant* tenant) {
    return !parts_.models.of_tenant(tenant->id).empty();
  };
  std::stable_partition(order.begin(), order.end(),
                        [](const Tenant* tenant) { return tenant->attached; });
  std::stable_partition(order.begin(), order.end(), has_models);
  std::vector<TenantId> left;
  for (const Tenant* const tenant : order) {
    const Status status = parts_.state.open_tenant(tenant->id, host_bytes(tenant->grant))
                              .within("job " + std::to_string(tenant->job_id));
    if (status.ok()) continue;
    if (status.code() != Code::NO_CAPACITY || has_models(tenant) || tenant->attached) return status;
    PLEXRL_LOG(kWarning, "%s; nothing of it is here: dropped", status.to_string().c_str());
    left.push_back(tenant->id);
  }
  for (const TenantId id : left) parts_.tenants.remove(id);
  return {};
}

// ---- open ----

Result<slurm::Grant> TenantService::check_grant(const std::string& text) const {
  PLEXRL_ASSIGN(auto grant, slurm::parse_grant(text));
  if (grant.pool != parts_.pool.name)
    return error(Code::NOT_FOUND, "the grant is for pool '%s', this node is in pool '%s'",
                 grant.pool.c_str(), parts_.pool.name.c_str());
  return grant;
}

Status TenantService::try_open(const wire::OpenJobT& request, const slurm::Grant& grant) {
  const Tenant* const old = parts_.tenants.find_job(request.job_id);
  if (old != nullptr && dropping_.count(old->id) != 0)
    return error(Code::NO_CAPACITY, "job %u: its earlier state is being dropped", request.job_id);
  if (old != nullptr && (old->uid != request.uid || host_bytes(old->grant) != host_bytes(grant))) {
    // Another grant than before is another stake; nothing of the old one is promised to it. Another
    // user: Slurm gives a number to one job at a time, so the cluster began to count anew.
    if (old->open()) {
      // Its token is void at once: nobody makes models in a tenant that is being dropped.
      PLEXRL_TRY(parts_.tenants.close(old->id, TenantState::kClosed, parts_.clock.now()));
      end_incarnation(old->id);
    }
    start_drop(old->id);
    return try_open(request, grant);
  }
  const bool requeued = old != nullptr && old->open() && (old->attached || old->grant != grant);
  if (requeued) end_incarnation(old->id);
  PLEXRL_ASSIGN(const auto opened, parts_.tenants.open(request.job_id, request.uid, request.gid,
                                                       grant, parts_.clock.now()));
  if (!opened.created) return {};
  Status reserved = parts_.state.open_tenant(opened.id, host_bytes(grant));
  if (!reserved.ok()) parts_.tenants.remove(opened.id);
  return reserved;
}

void TenantService::open(const wire::OpenJobT& request, DoneHandler done) {
  auto grant = check_grant(request.grant);
  if (!grant) return done(grant.error());
  Status status = try_open(request, *grant);
  while (status.code() == Code::NO_CAPACITY && reclaim_oldest()) status = try_open(request, *grant);
  const bool wait =
      status.code() == Code::NO_CAPACITY && !dropping_.empty() && pending_.size() < kMaxPending;
  if (!wait) {
    if (status.ok()) PLEXRL_LOG(kInfo, "job %u of uid %u is open", request.job_id, request.uid);
    return done(status.within("open job " + std::to_string(request.job_id)));
  }
  pending_.push_back({request, *grant, std::move(done), parts_.clock.now() + kOpenWait});
}

void TenantService::retry_pending(TimePoint now) {
  std::vector<Pending> waiting;
  waiting.swap(pending_);
  for (Pending& one : waiting) {
    const Status status = try_open(one.request, one.grant);
    const bool wait = status.code() == Code::NO_CAPACITY && !dropping_.empty() && now < one.give_up;
    if (wait) {
      pending_.push_back(std::move(one));
    } else {
      one.done(status.within("open job " + std::to_string(one.request.job_id)));
    }
  }
}

Result<std::string> TenantService::attach(const wire::AttachTaskT& request) {
  PLEXRL_ASSIGN(const TenantId id,
                parts_.tenants.attach(request.job_id, request.uid, parts_.clock.now()));
  if (request.pid != 0) PLEXRL_TRY(parts_.tasks.attach(id, request.pid));
  alone_since_.erase(id);
  return parts_.tenants.find(id)->token;
}

// ---- close ----

void TenantService::end_incarnation(TenantId tenant) {
  closed_(tenant);
  parts_.tasks.forget(tenant);
  alone_since_.erase(tenant);
  for (const Model* const model : parts_.models.of_tenant(tenant))
    parts_.op_service.drop_ops(model->id,
                               error(Code::CANCELLED, "the job has ended or was requeued"));
  parts_.accounting.advance(parts_.clock.now());
  parts_.accounting.ended(tenant);
  const Tenant* const row = parts_.tenants.find(tenant);
  const TenantTotals* const totals = parts_.accounting.find(tenant);
  if (row != nullptr && totals != nullptr) parts_.profile_book.learn(*row, *totals);
}

Status TenantService::close(std::uint32_t job_id) {
  const Tenant* const tenant = parts_.tenants.find_job(job_id);
  // The epilog also runs for jobs whose prolog failed, and twice after a restart of slurmd.
  if (tenant == nullptr || tenant->state == TenantState::kClosed) return {};
  const TenantId id = tenant->id;
  PLEXRL_TRY(parts_.tenants.close(id, TenantState::kClosed, parts_.clock.now()));
  end_incarnation(id);
  PLEXRL_LOG(kInfo, "job %u is closed", job_id);
  return {};
}

Status TenantService::evict(std::uint32_t job_id) {
  const Tenant* const tenant = parts_.tenants.find_job(job_id);
  if (tenant == nullptr) return error(Code::NOT_FOUND, "job %u has no state on this node", job_id);
  if (tenant->open())
    return error(Code::INVALID_ARGUMENT, "job %u is running; end it with scancel first", job_id);
  start_drop(tenant->id);
  return {};
}

bool TenantService::reclaim_oldest() {
  const Tenant* oldest = nullptr;
  for (const auto& [id, tenant] : parts_.tenants.all()) {
    if (tenant.open() || dropping_.count(id) != 0) continue;
    if (oldest == nullptr || tenant.closed < oldest->closed) oldest = &tenant;
  }
  if (oldest == nullptr) return false;
  PLEXRL_LOG(kInfo, "job %u: its state is dropped, the host memory is needed", oldest->job_id);
  start_drop(oldest->id);
  return true;
}

void TenantService::start_drop(TenantId tenant) {
  if (!dropping_.insert(tenant).second) return;
  std::vector<ModelId> models;
  for (const Model* const model : parts_.models.of_tenant(tenant))
    if (!model->removing) models.push_back(model->id);
  for (const ModelId model : models) parts_.model_service.drop(model);
  finish_drops();
}

void TenantService::model_gone() { finish_drops(); }

void TenantService::finish_drops() {
  const std::set<TenantId> dropping = dropping_;
  for (const TenantId tenant : dropping) {
    // A lease may outlive its job until its processes are gone.
    if (!parts_.models.of_tenant(tenant).empty() || parts_.ops.count(tenant) != 0) continue;
    dropping_.erase(tenant);
    parts_.state.close_tenant(tenant);
    parts_.accounting.forget(tenant);
    parts_.tasks.forget(tenant);
    parts_.tenants.remove(tenant);
  }
  if (dropping != dropping_ && !pending_.empty()) retry_pending(parts_.clock.now());
}

// ---- time ----

void TenantService::close_orphans(TimePoint now, const std::set<TenantId>& connected) {
  std::vector<TenantId> orphans;
  for (const auto& [id, tenant] : parts_.tenants.all()) {
    const bool alone = tenant.open() && parts_.tasks.known(id) && parts_.tasks.live(id) == 0 &&
                       connected.count(id) == 0;
    if (!alone) {
      alone_since_.erase(id);
    } else if (now >= alone_since_.try_emplace(id, now).first->second + kOrphanWait) {
      orphans.push_back(id);
    }
  }
  for (const TenantId id : orphans) {
    const std::uint32_t job = parts_.tenants.find(id)->job_id;
    PLEXRL_LOG(kWarning, "job %u: all its tasks are gone and no epilog came; it is closed", job);
    if (parts_.tenants.close(id, TenantState::kOrphan, now).ok()) end_incarnation(id);
  }
}

TimePoint TenantService::tick(TimePoint now, const std::set<TenantId>& connected) {
  close_orphans(now, connected);
  // A requeued job comes back within this time, unless the queue is long; then it starts from a
  // checkpoint, as it would on another node.
  const Duration retention{static_cast<std::int64_t>(parts_.daemon.retention_s) * kSecond.ns};
  std::vector<TenantId> expired;
  for (const auto& [id, tenant] : parts_.tenants.all())
    if (!tenant.open() && now >= tenant.closed + retention) expired.push_back(id);
  for (const TenantId id : expired) start_drop(id);
  if (!pending_.empty()) retry_pending(now);
  return now + kCheckEvery;
}

}  // namespace plexrl::runtime
