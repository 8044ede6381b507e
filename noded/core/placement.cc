// SPDX-License-Identifier: Apache-2.0
#include "core/placement.h"

#include <algorithm>
#include <list>
#include <optional>

#include "base/check.h"
#include "core/placement_rules.h"

namespace plexrl::core {
namespace {

// Jobs behind the first one that are looked at; as Slurm's bf_max_job_test, so that a long queue
// does not make every end of a job slow.
constexpr std::size_t kBackfillDepth = 200;
// A week per step and ten years per job: more is a mistake, and products must stay within 64 bits.
constexpr std::int64_t kMaxStepNs = 7 * 86400 * kSecond.ns;
constexpr std::int64_t kMaxRunNs = 3650 * 86400 * kSecond.ns;
constexpr std::uint32_t kMaxBoundPermille = 100'000;

// When the first job of the queue gets its devices, and how many are left over in each pool then.
struct Reservation {
  TimePoint at{};
  std::vector<std::uint32_t> spare_gpus;
};

class PoolPlacer final : public Placer {
 public:
  PoolPlacer(const PlacementRule& rule, std::vector<PlacementPool> pools)
      : rule_(rule), pools_(std::move(pools)), groups_(pools_) {}

  [[nodiscard]] Status submit(const PlacementJob& job, TimePoint now) override;
  [[nodiscard]] std::vector<Placement> place(TimePoint now) override;
  void finished(PlacedJobId job) override { groups_.remove(job); }
  [[nodiscard]] std::size_t queued() const override { return queue_.size(); }
  [[nodiscard]] std::uint32_t free_gpus(std::uint32_t pool) const override {
    return groups_.nodes(pool).free_gpus();
  }
  [[nodiscard]] std::uint64_t host_bytes(GroupId group) const override {
    const auto found = groups_.all().find(group);
    return found == groups_.all().end() ? 0 : found->second.host_bytes;
  }

 private:
  // For each role the group that it joins, or the devices of its own.
  struct Plan {
    std::vector<std::optional<GroupId>> joins;
    std::vector<PlacementNodes::Shares> nodes;
  };
  [[nodiscard]] Status check(const PlacementJob& job) const;
  [[nodiscard]] Status check_room(const PlacementJob& job) const;
  [[nodiscard]] std::optional<Plan> plan(const PlacementJob& job);
  void undo(const PlacementJob& job, const Plan& plan);
  [[nodiscard]] Placement carry_out(const PlacementJob& job, Plan plan, TimePoint now);
  [[nodiscard]] Reservation reserve(const PlacementJob& job, TimePoint now);
  [[nodiscard]] bool delays_first(const PlacementJob& job, const Plan& plan, TimePoint now,
                                  Reservation& reservation) const;

  PlacementRule rule_;
  std::vector<PlacementPool> pools_;
  PlacementGroups groups_;
  std::list<PlacementJob> queue_;
};

Status PoolPlacer::check(const PlacementJob& job) const {
  if (!job.id || job.roles.empty() || job.roles.size() > 2)
    return error(Code::INVALID_ARGUMENT, "placement: a job has a number and one or two roles");
  if (job.step.ns <= 0 || job.step.ns > kMaxStepNs || job.expected_run.ns < 0 ||
      job.expected_run.ns > kMaxRunNs || job.max_slowdown_permille > kMaxBoundPermille)
    return error(Code::INVALID_ARGUMENT, "placement: a job's times are out of range");
  for (const RoleDemand& role : job.roles) {
    if (role.pool >= pools_.size() || role.gpus == 0 || role.max_sharers == 0)
      return error(Code::INVALID_ARGUMENT, "placement: a role names no pool or no devices");
    for (const Duration time : {role.busy, role.burst, role.moves, role.slack})
      if (time.ns < 0 || time.ns > kMaxStepNs)
        return error(Code::INVALID_ARGUMENT, "placement: a role's times are out of range");
  }
  return {};
}

Status PoolPlacer::check_room(const PlacementJob& job) const {
  std::vector<std::uint64_t> wanted(pools_.size());
  for (const RoleDemand& role : job.roles) {
    const PlacementNodes& nodes = groups_.nodes(role.pool);
    wanted[role.pool] += nodes.footprint(role.gpus);
    if (role.host_bytes > nodes.host_bytes(role.gpus))
      return error(Code::NO_CAPACITY,
                   "placement: %u devices come with %llu bytes of host memory, the job needs %llu; "
                   "use more devices or a smaller model",
                   role.gpus, static_cast<unsigned long long>(nodes.host_bytes(role.gpus)),
                   static_cast<unsigned long long>(role.host_bytes));
  }
  for (std::size_t pool = 0; pool < pools_.size(); ++pool)
    if (wanted[pool] > std::uint64_t{pools_[pool].nodes} * pools_[pool].gpus_per_node)
      return error(Code::NO_CAPACITY, "placement: the job needs more devices than pool %zu has",
                   pool);
  return {};
}

Status PoolPlacer::submit(const PlacementJob& job, TimePoint) {
  PLEXRL_TRY(check(job));
  PLEXRL_TRY(check_room(job));
  queue_.push_back(job);
  return {};
}

std::optional<PoolPlacer::Plan> PoolPlacer::plan(const PlacementJob& job) {
  Plan plan;
  std::vector<GroupId> joins;
  for (const RoleDemand& role : job.roles) {
    const RoleChoice choice = choose_group(rule_, groups_, job, joins);
    std::optional<PlacementNodes::Shares> own;
    if (!choice.before) own = groups_.nodes(role.pool).take(role.gpus);
    const std::optional<GroupId> joined = choice.before ? choice.before
                                          : own         ? std::nullopt
                                                        : choice.after;
    if (!own && !joined) {
      undo(job, plan);
      return std::nullopt;
    }
    joins.push_back(joined.value_or(GroupId{}));
    plan.joins.push_back(joined);
    plan.nodes.push_back(own.value_or(PlacementNodes::Shares{}));
  }
  return plan;
}

void PoolPlacer::undo(const PlacementJob& job, const Plan& plan) {
  for (std::size_t role = 0; role < plan.nodes.size(); ++role)
    groups_.nodes(job.roles[role].pool).give_back(plan.nodes[role]);
}

Placement PoolPlacer::carry_out(const PlacementJob& job, Plan plan, TimePoint now) {
  Placement placement{job.id, {}};
  for (std::size_t role = 0; role < job.roles.size(); ++role)
    placement.groups.push_back(plan.joins[role]
                                   ? *plan.joins[role]
                                   : groups_.create(job.roles[role], std::move(plan.nodes[role])));
  groups_.put(job, placement.groups, now);
  return placement;
}

// By counts of devices: groups end when their jobs are expected to, a job that is late is about to
// end. What the first job could join is not looked at, so it may well begin earlier.
Reservation PoolPlacer::reserve(const PlacementJob& job, TimePoint now) {
  std::vector<std::uint64_t> wanted(pools_.size()), there(pools_.size());
  for (const RoleDemand& role : job.roles)
    wanted[role.pool] += groups_.nodes(role.pool).footprint(role.gpus);
  for (std::uint32_t pool = 0; pool < pools_.size(); ++pool)
    there[pool] = groups_.nodes(pool).free_gpus();
  std::vector<std::pair<TimePoint, const PlacementGroup*>> ends;
  for (const auto& [id, group] : groups_.all())
    ends.emplace_back(std::max(group.expected_end, now), &group);
  std::stable_sort(ends.begin(), ends.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Reservation reservation{now, {}};
  const auto enough = [&] {
    for (std::size_t pool = 0; pool < pools_.size(); ++pool)
      if (there[pool] < wanted[pool]) return false;
    return true;
  };
  for (const auto& [end, group] : ends) {
    if (enough()) break;
    reservation.at = end;
    there[group->pool] += groups_.nodes(group->pool).footprint(group->gpus);
  }
  for (std::size_t pool = 0; pool < pools_.size(); ++pool)
    reservation.spare_gpus.push_back(
        static_cast<std::uint32_t>(there[pool] > wanted[pool] ? there[pool] - wanted[pool] : 0));
  return reservation;
}

// Devices that are still held when the first job is due come out of what is left over then.
bool PoolPlacer::delays_first(const PlacementJob& job, const Plan& plan, TimePoint now,
                              Reservation& reservation) const {
  const TimePoint end = now + job.expected_run;
  if (end <= reservation.at) return false;
  std::vector<std::uint32_t> spare = reservation.spare_gpus;
  for (std::size_t role = 0; role < job.roles.size(); ++role) {
    const auto& join = plan.joins[role];
    if (join && groups_.at(*join).expected_end > reservation.at) continue;  // held anyway
    const std::uint32_t pool = job.roles[role].pool;
    const std::uint32_t gpus = groups_.nodes(pool).footprint(job.roles[role].gpus);
    if (gpus > spare[pool]) return true;
    spare[pool] -= gpus;
  }
  reservation.spare_gpus = spare;
  return false;
}

std::vector<Placement> PoolPlacer::place(TimePoint now) {
  std::vector<Placement> placed;
  std::optional<Reservation> reservation;
  std::size_t looked_at = 0;
  for (auto job = queue_.begin(); job != queue_.end();) {
    if (reservation && ++looked_at > kBackfillDepth) break;
    std::optional<Plan> found = plan(*job);
    if (found && reservation && delays_first(*job, *found, now, *reservation)) {
      undo(*job, *found);
      found.reset();
    }
    if (found) {
      placed.push_back(carry_out(*job, std::move(*found), now));
      job = queue_.erase(job);
      continue;
    }
    if (!rule_.backfill) break;
    if (!reservation) reservation = reserve(*job, now);
    ++job;
  }
  return placed;
}

}  // namespace

std::vector<std::string_view> Placer::policies() {
  std::vector<std::string_view> names;
  for (const PlacementRule& rule : placement_rules()) names.push_back(rule.name);
  return names;
}

Result<std::unique_ptr<Placer>> Placer::create(std::string_view policy,
                                               std::vector<PlacementPool> pools) {
  if (pools.empty()) return error(Code::INVALID_ARGUMENT, "placement: there is no pool");
  for (const PlacementPool& pool : pools)
    if (pool.nodes == 0 || pool.gpus_per_node == 0)
      return error(Code::INVALID_ARGUMENT, "placement: a pool has no nodes or no devices");
  for (const PlacementRule& rule : placement_rules())
    if (rule.name == policy)
      return std::unique_ptr<Placer>(std::make_unique<PoolPlacer>(rule, std::move(pools)));
  std::string known;
  for (const std::string_view name : policies())
    known += (known.empty() ? "" : ", ") + std::string(name);
  return error(Code::INVALID_ARGUMENT, "placement '%s' is not known; use one of: %s",
               std::string(policy).c_str(), known.c_str());
}

}  // namespace plexrl::core
