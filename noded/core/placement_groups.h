// SPDX-License-Identifier: Apache-2.0
// PlacementGroups: the groups that are there and who is on them. The sums of a group are kept up to
// date, so that looking at it is O(1).
#pragma once

#include <map>
#include <set>
#include <utility>

#include "core/placement_nodes.h"

namespace plexrl::core {

// Of a group: sums over its members.
struct GroupLoad {
  std::int64_t busy_ns = 0;      // device time of a step, on average, with its moves
  std::int64_t burst_ns = 0;     // the longest, with its moves
  std::int64_t residual_ns = 0;  // what a job that comes at any time finds left of it, on average
  std::uint64_t duty_ppm = 0;

  void add(const GroupLoad& other);
  void take(const GroupLoad& other);
};
[[nodiscard]] GroupLoad load_of(const PlacementJob& job, const RoleDemand& role);

struct PlacementGroup {
  std::uint32_t pool = 0;
  std::uint32_t gpus = 0;
  PlacementNodes::Shares nodes;
  std::set<PlacedJobId> members;
  std::uint32_t max_members = 0;  // the least of the members' limits
  std::uint64_t host_bytes = 0;   // of the members
  std::uint64_t host_room = 0;    // of the nodes
  GroupLoad load;
  bool rollout_heavy = false;  // one of the members is
  bool all_bounded = true;     // every member named its bound
  TimePoint expected_end{};
};

class PlacementGroups {
 public:
  explicit PlacementGroups(const std::vector<PlacementPool>& pools);

  struct Placed {
    PlacementJob job;
    std::vector<GroupId> groups;  // one for each role
    TimePoint expected_end{};
  };
  // Whether the group takes one more member, and its host bytes.
  [[nodiscard]] static bool fits(const PlacementGroup& group, const RoleDemand& role);

  [[nodiscard]] PlacementNodes& nodes(std::uint32_t pool) { return nodes_[pool]; }
  [[nodiscard]] const PlacementNodes& nodes(std::uint32_t pool) const { return nodes_[pool]; }
  [[nodiscard]] const std::map<GroupId, PlacementGroup>& all() const { return groups_; }
  [[nodiscard]] const PlacementGroup& at(GroupId id) const { return groups_.at(id); }
  [[nodiscard]] const Placed& job(PlacedJobId id) const { return jobs_.at(id); }
  // Groups of that size that may take one more member.
  [[nodiscard]] const std::set<GroupId>& open(std::uint32_t pool, std::uint32_t gpus) const;

  // A group without members on devices that were taken; `put` adds the first one.
  [[nodiscard]] GroupId create(const RoleDemand& role, PlacementNodes::Shares nodes);
  // The job is on `groups`, one for each role, from now on.
  void put(const PlacementJob& job, const std::vector<GroupId>& groups, TimePoint now);
  void remove(PlacedJobId job);

 private:
  static void enter(PlacementGroup& group, const Placed& placed, const RoleDemand& role);
  void recount(GroupId id);

  std::vector<PlacementNodes> nodes_;
  std::map<GroupId, PlacementGroup> groups_;
  std::map<PlacedJobId, Placed> jobs_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<GroupId>> open_;
  std::uint64_t last_group_ = 0;
};

}  // namespace plexrl::core
