// SPDX-License-Identifier: Apache-2.0
// PlacementGroups: the groups that are there, who is on them, and what one more job would do to
// them. What a choice asks for is kept up to date per group, so that looking at a group is O(1).
#pragma once

#include <map>
#include <set>
#include <utility>

#include "core/placement_nodes.h"

namespace plexrl::core {

// The part of the devices' time that a role takes.
[[nodiscard]] std::uint64_t duty_ppm(const PlacementJob& job, const RoleDemand& role);
// Only whole microseconds of a step count in bounds, so that products stay within 64 bits.
[[nodiscard]] std::int64_t permille_of(Duration step, std::uint32_t permille);

struct PlacementGroup {
  std::uint32_t pool = 0;
  std::uint32_t gpus = 0;
  PlacementNodes::Shares nodes;
  std::set<PlacedJobId> members;
  std::uint32_t max_members = 0;  // the least of the members' limits
  std::uint64_t host_bytes = 0;   // of the members
  std::uint64_t host_room = 0;    // of the nodes
  std::uint64_t duty_ppm = 0;     // sum of the members' shares of the device time
  std::int64_t burst_ns = 0;      // what one op waits for at worst: sum over the members
  bool rollout_heavy = false;     // one of the members is
  // How much longer everybody here could be made to wait: with nobody's worst case above 1.05, and
  // within the members' own bounds. Negative: not at all.
  std::int64_t comfort_ns = 0;
  std::int64_t margin_ns = 0;
  TimePoint expected_end{};
};

class PlacementGroups {
 public:
  explicit PlacementGroups(const std::vector<PlacementPool>& pools);

  // What a job would meet on a group.
  struct Outlook {
    bool fits = false;                // one more member, its host bytes
    std::int64_t delay_ns = 0;        // of its own step at worst, less its slack
    std::int64_t others_wait_ns = 0;  // what it adds to the others' waits
  };
  [[nodiscard]] Outlook outlook(const PlacementGroup& group, const RoleDemand& role) const;

  [[nodiscard]] PlacementNodes& nodes(std::uint32_t pool) { return nodes_[pool]; }
  [[nodiscard]] const PlacementNodes& nodes(std::uint32_t pool) const { return nodes_[pool]; }
  [[nodiscard]] const std::map<GroupId, PlacementGroup>& all() const { return groups_; }
  [[nodiscard]] const PlacementGroup& at(GroupId id) const { return groups_.at(id); }
  // Groups of that size that may take one more member.
  [[nodiscard]] const std::set<GroupId>& open(std::uint32_t pool, std::uint32_t gpus) const;

  // A group without members on devices that were taken; `put` adds the first one.
  [[nodiscard]] GroupId create(const RoleDemand& role, PlacementNodes::Shares nodes);
  // The job is on `groups`, one for each role, from now on.
  void put(const PlacementJob& job, const std::vector<GroupId>& groups, TimePoint now);
  void remove(PlacedJobId job);

 private:
  struct Placed {
    PlacementJob job;
    std::vector<GroupId> groups;
    TimePoint expected_end{};
  };
  void enter(PlacementGroup& group, const Placed& placed, const RoleDemand& role);
  void recount(GroupId id);
  void update_margins(PlacementGroup& group, GroupId id);
  // The role's worst wait for the others on its group, before slack.
  [[nodiscard]] std::int64_t raw_wait(const Placed& placed, std::size_t role) const;
  [[nodiscard]] std::int64_t total_delay(const Placed& placed) const;

  std::vector<PlacementNodes> nodes_;
  std::map<GroupId, PlacementGroup> groups_;
  std::map<PlacedJobId, Placed> jobs_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<GroupId>> open_;
  std::uint64_t last_group_ = 0;
};

}  // namespace plexrl::core
