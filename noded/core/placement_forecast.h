// SPDX-License-Identifier: Apache-2.0
// What sharing would cost everybody, before a job is placed. Two models of a step, of which the
// smaller one counts, as each is far too high where the other one holds:
//
// waits     A step waits once in each role for the others on its group. At worst for the longest
//           stretch of each; on average for what is left of it when one comes at any time, as in
//           a queue with one server. What is within the slack of an asynchronous job is free. Too
//           high where groups are nearly always busy: then jobs fall into step with each other.
// rotation  All jobs that are linked by common groups take turns in the same order. One round takes
//           as long as the busiest of the groups needs for all who are on it, or as the longest
//           step; and a tenth more, as steps are not alike.
#pragma once

#include "core/placement_groups.h"

namespace plexrl::core {

// Only whole microseconds of a step count in bounds, so that products stay within 64 bits.
[[nodiscard]] std::int64_t permille_of(Duration step, std::uint32_t permille);

enum class ShareLimit : std::uint8_t {
  kComfort,  // on average nobody is slowed down by more than `comfort`, at worst by its bound
  kBound     // at worst nobody is slowed down by more than its bound
};

// On average and at worst.
struct StepForecast {
  std::int64_t expected_ns = 0;
  std::int64_t worst_ns = 0;
};

// By how much a step is late because the role waits for the others on a group.
[[nodiscard]] StepForecast lateness(const GroupLoad& others, const RoleDemand& role);
// False: the job's own wait in this role alone is above its limit, so keeps() is false. O(1).
[[nodiscard]] bool may_keep(ShareLimit limit, const PlacementGroup& group, const PlacementJob& job,
                            const RoleDemand& role);

class PlacementForecast {
 public:
  // `groups` may have fewer entries than the job has roles: the rest have devices of their own. All
  // three outlive this.
  PlacementForecast(const PlacementGroups& all, const PlacementJob& job,
                    const std::vector<GroupId>& groups);

  // Whether everybody who is linked to the job by groups stays within the limit. False where more
  // than kMaxLinked jobs would be linked.
  [[nodiscard]] bool keeps(ShareLimit limit) const;

  static constexpr std::size_t kMaxLinked = 16;

 private:
  void link();
  [[nodiscard]] GroupLoad load_on(GroupId group) const;  // with the job
  [[nodiscard]] StepForecast waits(const PlacementJob& job,
                                   const std::vector<GroupId>& groups) const;
  [[nodiscard]] bool within(const PlacementJob& job, const std::vector<GroupId>& groups,
                            ShareLimit limit) const;

  const PlacementGroups& all_;
  const PlacementJob& job_;
  std::vector<GroupId> groups_;
  std::vector<GroupId> linked_groups_;
  std::vector<PlacedJobId> linked_;  // without the job
  std::int64_t round_ns_ = 0;        // of the rotation
};

}  // namespace plexrl::core
