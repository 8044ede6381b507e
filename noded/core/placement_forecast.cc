// SPDX-License-Identifier: Apache-2.0
#include "core/placement_forecast.h"

#include <algorithm>

namespace plexrl::core {
namespace {

constexpr std::int64_t kAllTimePpm = 1'000'000;
// Beyond this the model of waits says nothing.
constexpr std::int64_t kLeastFreePpm = 20'000;
constexpr std::int64_t kNever = std::int64_t{1} << 60;

// Steps are not alike.
std::int64_t with_margin(std::int64_t round_ns) { return round_ns + round_ns / 10; }

template <class T>
bool contains(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

StepForecast lateness(const GroupLoad& others, const RoleDemand& role) {
  const std::int64_t worst = others.burst_ns + role.moves.ns;
  const std::int64_t late = std::max<std::int64_t>(worst - role.slack.ns, 0);
  const std::int64_t free_ppm = kAllTimePpm - static_cast<std::int64_t>(others.duty_ppm);
  if (late == 0 || free_ppm < kLeastFreePpm) return {late == 0 ? 0 : kNever, late};
  const std::int64_t queue_us = others.residual_ns / 1000 * kAllTimePpm / free_ppm;
  const std::int64_t wait = std::min(queue_us * 1000 + role.moves.ns, worst);
  // Waits spread evenly up to the worst: the mean of what is above the slack falls with its square,
  // in thousandths.
  const std::int64_t part = late / 1000 * 1000 / std::max<std::int64_t>(worst / 1000, 1);
  return {wait / kAllTimePpm * part * part + wait % kAllTimePpm * part * part / kAllTimePpm, late};
}

std::int64_t permille_of(Duration step, std::uint32_t permille) {
  return step.ns / 1000 * static_cast<std::int64_t>(permille);
}

bool may_keep(ShareLimit limit, const PlacementGroup& group, const PlacementJob& job,
              const RoleDemand& role) {
  const StepForecast late = lateness(group.load, role);
  const std::int64_t round = with_margin(job.step.ns);  // or more
  const auto below = [&](std::int64_t late_ns, std::uint32_t permille) {
    return std::min(job.step.ns + late_ns, round) <= permille_of(job.step, permille);
  };
  return below(late.worst_ns, job.bound()) &&
         (limit == ShareLimit::kBound || below(late.expected_ns, job.comfort()));
}

PlacementForecast::PlacementForecast(const PlacementGroups& all, const PlacementJob& job,
                                     const std::vector<GroupId>& groups)
    : all_(all), job_(job), groups_(groups) {
  groups_.resize(job.roles.size());
  for (const GroupId group : groups_)
    if (group) linked_groups_.push_back(group);
  link();
  std::int64_t round = job.step.ns;
  for (const PlacedJobId id : linked_) round = std::max(round, all_.job(id).job.step.ns);
  for (const GroupId group : linked_groups_) {
    const std::size_t members = all_.at(group).members.size() + (contains(groups_, group) ? 1 : 0);
    if (members > 1) round = std::max(round, load_on(group).busy_ns);
  }
  round_ns_ = with_margin(round);
}

// Breadth first, up to one job too many.
void PlacementForecast::link() {
  for (std::size_t i = 0; i < linked_groups_.size(); ++i)
    for (const PlacedJobId member : all_.at(linked_groups_[i]).members) {
      if (contains(linked_, member)) continue;
      if (linked_.size() == kMaxLinked) return;
      linked_.push_back(member);
      for (const GroupId group : all_.job(member).groups)
        if (!contains(linked_groups_, group)) linked_groups_.push_back(group);
    }
}

GroupLoad PlacementForecast::load_on(GroupId group) const {
  GroupLoad load = all_.at(group).load;
  for (std::size_t role = 0; role < groups_.size(); ++role)
    if (groups_[role] == group) load.add(load_of(job_, job_.roles[role]));
  return load;
}

StepForecast PlacementForecast::waits(const PlacementJob& job,
                                      const std::vector<GroupId>& groups) const {
  StepForecast step{job.step.ns, job.step.ns};
  for (std::size_t role = 0; role < groups.size(); ++role) {
    if (!groups[role]) continue;
    GroupLoad others = load_on(groups[role]);
    others.take(load_of(job, job.roles[role]));
    if (others.burst_ns == 0) continue;
    const StepForecast late = lateness(others, job.roles[role]);
    step.expected_ns += late.expected_ns;
    step.worst_ns += late.worst_ns;
  }
  step.expected_ns = std::min(step.expected_ns, round_ns_);
  step.worst_ns = std::min(step.worst_ns, round_ns_);
  return step;
}

bool PlacementForecast::within(const PlacementJob& job, const std::vector<GroupId>& groups,
                               ShareLimit limit) const {
  const StepForecast step = waits(job, groups);
  if (step.worst_ns > permille_of(job.step, job.bound())) return false;
  return limit == ShareLimit::kBound || step.expected_ns <= permille_of(job.step, job.comfort());
}

bool PlacementForecast::keeps(ShareLimit limit) const {
  if (linked_.size() >= kMaxLinked || !within(job_, groups_, limit)) return false;
  return std::all_of(linked_.begin(), linked_.end(), [&](PlacedJobId id) {
    const PlacementGroups::Placed& placed = all_.job(id);
    return within(placed.job, placed.groups, limit);
  });
}

}  // namespace plexrl::core
