// SPDX-License-Identifier: Apache-2.0
#include "core/placement_groups.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace plexrl::core {
std::uint64_t duty_ppm(const PlacementJob& job, const RoleDemand& role) {
  const std::int64_t step_us = std::max<std::int64_t>(job.step.ns / 1000, 1);
  return static_cast<std::uint64_t>(role.busy.ns / 1000 * 1'000'000 / step_us);
}

std::int64_t permille_of(Duration step, std::uint32_t permille) {
  return step.ns / 1000 * static_cast<std::int64_t>(permille);
}

PlacementGroups::PlacementGroups(const std::vector<PlacementPool>& pools) {
  for (const PlacementPool& pool : pools) nodes_.emplace_back(pool);
}

PlacementGroups::Outlook PlacementGroups::outlook(const PlacementGroup& group,
                                                  const RoleDemand& role) const {
  Outlook found;
  const std::size_t members = group.members.size() + 1;
  found.fits = members <= std::min(group.max_members, role.max_sharers) &&
               role.host_bytes <= group.host_room - group.host_bytes;
  found.delay_ns = std::max<std::int64_t>(group.burst_ns + role.moves.ns - role.slack.ns, 0);
  found.others_wait_ns = role.burst.ns + role.moves.ns;
  return found;
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
  for (const GroupId id : groups)
    for (const PlacedJobId member : groups_.at(id).members)
      for (const GroupId touched : jobs_.at(member).groups)
        update_margins(groups_.at(touched), touched);
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
    for (const PlacedJobId member : group.members)
      for (const GroupId touched : jobs_.at(member).groups)
        if (groups_.contains(touched)) update_margins(groups_.at(touched), touched);
  }
}

void PlacementGroups::enter(PlacementGroup& group, const Placed& placed, const RoleDemand& role) {
  group.max_members = std::min(group.max_members, role.max_sharers);
  group.host_bytes += role.host_bytes;
  group.duty_ppm += duty_ppm(placed.job, role);
  group.burst_ns += role.burst.ns + role.moves.ns;
  group.rollout_heavy = group.rollout_heavy || role.rollout_heavy;
  group.expected_end = std::max(group.expected_end, placed.expected_end);
}

void PlacementGroups::recount(GroupId id) {
  PlacementGroup& group = groups_.at(id);
  group.max_members = std::numeric_limits<std::uint32_t>::max();
  group.host_bytes = group.duty_ppm = 0;
  group.burst_ns = 0;
  group.rollout_heavy = false;
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

std::int64_t PlacementGroups::raw_wait(const Placed& placed, std::size_t role) const {
  const PlacementGroup& group = groups_.at(placed.groups[role]);
  if (group.members.size() < 2) return 0;
  return group.burst_ns - placed.job.roles[role].burst.ns;  // its own moves count
}

std::int64_t PlacementGroups::total_delay(const Placed& placed) const {
  std::int64_t total = 0;
  for (std::size_t role = 0; role < placed.groups.size(); ++role)
    total += std::max<std::int64_t>(raw_wait(placed, role) - placed.job.roles[role].slack.ns, 0);
  return total;
}

void PlacementGroups::update_margins(PlacementGroup& group, GroupId id) {
  group.comfort_ns = group.margin_ns = std::numeric_limits<std::int64_t>::max();
  for (const PlacedJobId member : group.members) {
    const Placed& placed = jobs_.at(member);
    const std::int64_t delay = total_delay(placed) + placed.job.step.ns;
    for (std::size_t role = 0; role < placed.groups.size(); ++role) {
      if (placed.groups[role] != id) continue;
      const RoleDemand& demand = placed.job.roles[role];
      // With its first partner the member's own moves begin to count.
      const std::int64_t raw = raw_wait(placed, role);
      const std::int64_t wait = std::max(raw, demand.moves.ns);
      const std::int64_t spent = delay + std::max<std::int64_t>(wait - demand.slack.ns, 0) -
                                 std::max<std::int64_t>(raw - demand.slack.ns, 0);
      const std::int64_t unused = std::max<std::int64_t>(demand.slack.ns - wait, 0);
      group.comfort_ns = std::min(
          group.comfort_ns, permille_of(placed.job.step, placed.job.comfort()) - spent + unused);
      group.margin_ns = std::min(group.margin_ns,
                                 permille_of(placed.job.step, placed.job.bound()) - spent + unused);
    }
  }
}

}  // namespace plexrl::core
