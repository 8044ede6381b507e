// SPDX-License-Identifier: Apache-2.0
#include "core/placement_rules.h"

#include <algorithm>
#include <functional>

#include "core/placement_forecast.h"

namespace plexrl::core {
namespace {

constexpr std::uint64_t kAllTimePpm = 1'000'000;

// The open group for which `score` is greatest of those that are `allowed`; the oldest of equals.
// What is allowed is costly to find out, so it is asked in the order of the scores, and not where
// there is no score.
template <class Score, class Allowed>
std::optional<GroupId> best(const PlacementGroups& groups, const RoleDemand& role,
                            const std::vector<GroupId>& taken, Score score, Allowed allowed) {
  std::vector<std::pair<std::int64_t, GroupId>> list;
  for (const GroupId id : groups.open(role.pool, role.gpus)) {
    const PlacementGroup& group = groups.at(id);
    if (std::find(taken.begin(), taken.end(), id) != taken.end()) continue;
    if (!PlacementGroups::fits(group, role)) continue;
    if (const std::optional<std::int64_t> value = score(group)) list.emplace_back(-*value, id);
  }
  const auto later = std::greater<>();
  std::make_heap(list.begin(), list.end(), later);
  for (; !list.empty(); list.pop_back()) {
    std::pop_heap(list.begin(), list.end(), later);
    const GroupId id = list.back().second;
    if (allowed(id)) return id;
  }
  return std::nullopt;
}

constexpr auto kAny = [](GroupId) { return true; };

// Jobs that named their bounds may fill a group that has time left; others must leave it some.
bool has_time(const PlacementGroup& group, const PlacementJob& job, const RoleDemand& role) {
  if (group.all_bounded && job.max_slowdown_permille != 0) return group.load.duty_ppm < kAllTimePpm;
  if (group.rollout_heavy && role.rollout_heavy) return false;
  return group.load.duty_ppm + load_of(job, role).duty_ppm <= kAllTimePpm;
}

RoleChoice phase_aware(const PlacementGroups& groups, const PlacementJob& job,
                       const std::vector<GroupId>& joined) {
  const RoleDemand& role = job.roles[joined.size()];
  const auto keeps = [&](ShareLimit limit) {
    return [&groups, &job, &joined, limit](GroupId id) {
      std::vector<GroupId> all = joined;
      all.push_back(id);
      return PlacementForecast(groups, job, all).keeps(limit);
    };
  };
  const std::uint64_t duty = load_of(job, role).duty_ppm;
  // Best is what fills a group exactly.
  const auto filled = [&](const PlacementGroup& group) -> std::optional<std::int64_t> {
    if (!has_time(group, job, role) || !may_keep(ShareLimit::kComfort, group, job, role))
      return std::nullopt;
    const auto sum = static_cast<std::int64_t>(group.load.duty_ppm + duty);
    return sum <= std::int64_t{kAllTimePpm} ? sum : 2 * std::int64_t{kAllTimePpm} - sum;
  };
  const auto soonest = [&](const PlacementGroup& group) -> std::optional<std::int64_t> {
    if (!has_time(group, job, role) || !may_keep(ShareLimit::kBound, group, job, role))
      return std::nullopt;
    return -lateness(group.load, role).expected_ns;
  };
  RoleChoice choice;
  choice.before = best(groups, role, joined, filled, keeps(ShareLimit::kComfort));
  // Who names a bound is comfortable up to it.
  if (!choice.before && job.max_slowdown_permille == 0)
    choice.after = best(groups, role, joined, soonest, keeps(ShareLimit::kBound));
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
                        const PlacementJob& job, const std::vector<GroupId>& joined) {
  const RoleDemand& role = job.roles[joined.size()];
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
      return {best(groups, role, joined, members, kAny), std::nullopt};
    case PlacementRule::Kind::kSpread:
      return {std::nullopt, best(groups, role, joined, fewest, kAny)};
    case PlacementRule::Kind::kPhaseAware:
      break;
  }
  return phase_aware(groups, job, joined);
}

}  // namespace plexrl::core
