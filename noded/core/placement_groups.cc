// SPDX-License-Identifier: Apache-2.0
#include "core/placement_groups.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace plexrl::core {
namespace {
constexpr std::int64_t kAllTimePpm = 1'000'000;
}

void GroupLoad::add(const GroupLoad& other) {
  busy_ns += other.busy_ns;
  burst_ns += other.burst_ns;
  residual_ns += other.residual_ns;
  duty_ppm += other.duty_ppm;
}

void GroupLoad::take(const GroupLoad& other) {
  busy_ns -= other.busy_ns;
  burst_ns -= other.burst_ns;
  residual_ns -= other.residual_ns;
  duty_ppm -= other.duty_ppm;
}

GroupLoad load_of(const PlacementJob& job, const RoleDemand& role) {
  GroupLoad load;
  load.busy_ns = role.busy.ns + role.moves.ns;
  load.burst_ns = role.burst.ns + role.moves.ns;
  const std::int64_t step_us = std::max<std::int64_t>(job.step.ns / 1000, 1);
  load.duty_ppm = static_cast<std::uint64_t>(role.busy.ns / 1000 * kAllTimePpm / step_us);
  // Half of it, when it is met at all.
  load.residual_ns = load.busy_ns / 2000 * role.busy.ns / 1000 / step_us;
  load.residual_ns *= 1000;
  return load;
}

PlacementGroups::PlacementGroups(const std::vector<PlacementPool>& pools) {
  for (const PlacementPool& pool : pools) nodes_.emplace_back(pool);
}

bool PlacementGroups::fits(const PlacementGroup& group, const RoleDemand& role) {
  return group.members.size() + 1 <= std::min(group.max_members, role.max_sharers) &&
         role.host_bytes <= group.host_room - group.host_bytes;
}

const std::set<GroupId>& PlacementGroups::open(std::uint32_t pool, std::uint32_t gpus) const {
  static const std::set<GroupId> kNone;
  const auto found = open_.find({pool, gpus});
  return found == open_.end() ? kNone : found->second;
}

GroupId PlacementGroups::create(const RoleDemand& role, PlacementNodes::Shares nodes) {
  const GroupId id{++last_group_};
  PlacementGroup& group = groups_[id];
  group.pool = role.pool;
  group.gpus = role.gpus;
  group.nodes = std::move(nodes);
  group.host_room = nodes_[role.pool].host_bytes(role.gpus);
  return id;
}

void PlacementGroups::put(const PlacementJob& job, const std::vector<GroupId>& groups,
                          TimePoint now) {
  PLEXRL_CHECK(groups.size() == job.roles.size(), "a placement names one group for each role");
  const auto [entry, is_new] = jobs_.emplace(job.id, Placed{job, groups, now + job.expected_run});
  PLEXRL_CHECK(is_new, "a job is placed once");
  for (const GroupId id : groups) {
    groups_.at(id).members.insert(job.id);
    recount(id);
  }
}

void PlacementGroups::remove(PlacedJobId job) {
  const auto entry = jobs_.find(job);
  PLEXRL_CHECK(entry != jobs_.end(), "a job that is not placed has ended");
  const std::vector<GroupId> groups = entry->second.groups;
  for (const GroupId id : groups) groups_.at(id).members.erase(job);
  jobs_.erase(entry);
  for (const GroupId id : groups) {
    PlacementGroup& group = groups_.at(id);
    if (group.members.empty()) {
      open_[{group.pool, group.gpus}].erase(id);
      nodes_[group.pool].give_back(group.nodes);
      groups_.erase(id);
      continue;
    }
    recount(id);
  }
}

void PlacementGroups::enter(PlacementGroup& group, const Placed& placed, const RoleDemand& role) {
  group.max_members = std::min(group.max_members, role.max_sharers);
  group.host_bytes += role.host_bytes;
  group.load.add(load_of(placed.job, role));
  group.all_bounded = group.all_bounded && placed.job.max_slowdown_permille != 0;
  group.rollout_heavy = group.rollout_heavy || role.rollout_heavy;
  group.expected_end = std::max(group.expected_end, placed.expected_end);
}

void PlacementGroups::recount(GroupId id) {
  PlacementGroup& group = groups_.at(id);
  group.max_members = std::numeric_limits<std::uint32_t>::max();
  group.host_bytes = 0;
  group.load = {};
  group.rollout_heavy = false;
  group.all_bounded = true;
  group.expected_end = {};
  for (const PlacedJobId member : group.members) {
    const Placed& placed = jobs_.at(member);
    for (std::size_t role = 0; role < placed.groups.size(); ++role)
      if (placed.groups[role] == id) enter(group, placed, placed.job.roles[role]);
  }
  std::set<GroupId>& open = open_[{group.pool, group.gpus}];
  if (group.members.size() < group.max_members) {
    open.insert(id);
  } else {
    open.erase(id);
  }
}

}  // namespace plexrl::core
