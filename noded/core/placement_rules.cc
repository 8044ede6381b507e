// SPDX-License-Identifier: Apache-2.0
#include "core/placement_rules.h"

#include <algorithm>

namespace plexrl::core {
namespace {

constexpr std::uint64_t kAllTimePpm = 1'000'000;

// The open group for which `score` is greatest; the oldest of equals.
template <class Score>
std::optional<GroupId> best(const PlacementGroups& groups, const RoleDemand& role, GroupId taken,
                            Score score) {
  std::optional<GroupId> chosen;
  std::int64_t chosen_score = 0;
  for (const GroupId id : groups.open(role.pool, role.gpus)) {
    const PlacementGroup& group = groups.at(id);
    if (id == taken || !groups.outlook(group, role).fits) continue;
    const std::optional<std::int64_t> value = score(group);
    if (!value || (chosen && *value <= chosen_score)) continue;
    chosen = id;
    chosen_score = *value;
  }
  return chosen;
}

// A job that is on both groups would wait in both.
bool share_a_member(const PlacementGroups& groups, const PlacementGroup& group, GroupId other) {
  if (!other) return false;
  const std::set<PlacedJobId>& there = groups.at(other).members;
  return std::any_of(group.members.begin(), group.members.end(),
                     [&](PlacedJobId member) { return there.contains(member); });
}

RoleChoice phase_aware(const PlacementGroups& groups, const PlacementJob& job,
                       const RoleDemand& role, const OtherRole& other) {
  const std::uint64_t duty = duty_ppm(job, role);
  // The delay of the job's step, when joining the group keeps everybody within the limit.
  const auto delay = [&](const PlacementGroup& group, std::uint32_t permille,
                         std::int64_t others_ns) -> std::optional<std::int64_t> {
    if (group.rollout_heavy && role.rollout_heavy) return std::nullopt;
    if (group.duty_ppm + duty > kAllTimePpm) return std::nullopt;
    const PlacementGroups::Outlook outlook = groups.outlook(group, role);
    const std::int64_t step_ns = job.step.ns + other.delay_ns + outlook.delay_ns;
    const std::int64_t twice =
        share_a_member(groups, group, other.joined) ? other.others_wait_ns : 0;
    if (step_ns > permille_of(job.step, permille) || outlook.others_wait_ns + twice > others_ns)
      return std::nullopt;
    return outlook.delay_ns;
  };
  RoleChoice choice;
  choice.before = best(groups, role, other.joined, [&](const PlacementGroup& group) {
    const auto cost = delay(group, job.comfort(), group.comfort_ns);
    return cost ? std::optional(static_cast<std::int64_t>(group.duty_ppm)) : std::nullopt;
  });
  if (choice.before) return choice;
  choice.after = best(groups, role, other.joined, [&](const PlacementGroup& group) {
    const auto cost = delay(group, job.bound(), group.margin_ns);
    return cost ? std::optional(-*cost) : std::nullopt;
  });
  return choice;
}

}  // namespace

const std::vector<PlacementRule>& placement_rules() {
  using Kind = PlacementRule::Kind;
  static const std::vector<PlacementRule> kRules = {
      {"isolated", Kind::kIsolated, false},
      {"isolated-backfill", Kind::kIsolated, true},
      {"pack", Kind::kPack, false},
      {"spread", Kind::kSpread, false},
      {"spread-backfill", Kind::kSpread, true},
      {"phase-aware", Kind::kPhaseAware, true},
  };
  return kRules;
}

RoleChoice choose_group(const PlacementRule& rule, const PlacementGroups& groups,
                        const PlacementJob& job, const RoleDemand& role, const OtherRole& other) {
  const auto members = [](const PlacementGroup& group) {
    return std::optional(static_cast<std::int64_t>(group.members.size()));
  };
  const auto fewest = [](const PlacementGroup& group) {
    return std::optional(-static_cast<std::int64_t>(group.members.size()));
  };
  switch (rule.kind) {
    case PlacementRule::Kind::kIsolated:
      return {};
    case PlacementRule::Kind::kPack:
      return {best(groups, role, other.joined, members), std::nullopt};
    case PlacementRule::Kind::kSpread:
      return {std::nullopt, best(groups, role, other.joined, fewest)};
    case PlacementRule::Kind::kPhaseAware:
      break;
  }
  return phase_aware(groups, job, role, other);
}

}  // namespace plexrl::core
