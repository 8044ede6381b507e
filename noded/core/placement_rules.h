// SPDX-License-Identifier: Apache-2.0
// PlacementRule: where one role of a job goes, by policy.
#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "core/placement_groups.h"

namespace plexrl::core {

struct PlacementRule {
  enum class Kind : std::uint8_t { kIsolated, kPack, kSpread, kPhaseAware };
  std::string_view name;
  Kind kind = Kind::kIsolated;
  bool backfill = false;
};

// A group of its own comes between the two.
struct RoleChoice {
  std::optional<GroupId> before;  // joined rather than a group of its own
  std::optional<GroupId> after;   // joined when there is no room for a group of its own
};

[[nodiscard]] const std::vector<PlacementRule>& placement_rules();

// `joined`: for each of the job's roles before this one the group that it joins, or none.
[[nodiscard]] RoleChoice choose_group(const PlacementRule& rule, const PlacementGroups& groups,
                                      const PlacementJob& job, const std::vector<GroupId>& joined);

}  // namespace plexrl::core
