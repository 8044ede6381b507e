// SPDX-License-Identifier: Apache-2.0
// Placer: which jobs share which device groups. A group is a set of devices of one pool; the jobs
// on it are time-sliced, and its state stays on the hosts of its nodes. Groups are made when a job
// needs one and are gone with their last job; nothing is ever migrated.
//
// Pure, as all of the core: integers only, the same calls give the same answers. Not thread safe.
//
//   policy             where a role goes                                        queue
//   isolated           a group of its own                                       first in, first out
//   isolated-backfill  the same                                                 backfill
//   pack               the group with the most jobs that takes one more         first in, first out
//   spread             a group of its own, else the group with the fewest jobs  first in, first out
//   spread-backfill    the same                                                 backfill
//   phase-aware        see below                                                backfill
//
// Backfill: when the first job of the queue finds no place, a time is worked out at which it will
// by the expected ends of the jobs that run. Later jobs go ahead where they do not delay that.
//
// phase-aware forecasts what a step of everybody would take (placement_forecast.h). It joins a
// group only where the worst case keeps to everybody's bound and time is left on the group; jobs
// that name no bound besides only where the shares of device time add up to at most 1 and no two
// jobs are together that roll out for more than half of a step. First taken is a group in which on
// average nobody is slowed down by more than the bound that it names, or 1.05 if it names none: the
// one that the job fills best; then a group of its own; then the one where it waits least.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/strong_id.h"

namespace plexrl::core {

using GroupId = StrongId<struct GroupTag>;
using PlacedJobId = StrongId<struct PlacedJobTag>;

constexpr std::uint32_t kDefaultSlowdownPermille = 2000;  // for jobs that name no bound
// For such jobs: what costs next to nothing.
constexpr std::uint32_t kComfortPermille = 1050;

struct PlacementPool {
  std::uint32_t nodes = 0;
  std::uint32_t gpus_per_node = 1;
  std::uint64_t host_bytes_per_node = 0;  // for parked state
};

// What a job needs of one group. A job has one role for all of its phases, or one for rollouts and
// one for training.
struct RoleDemand {
  std::uint32_t pool = 0;         // index
  std::uint32_t gpus = 1;         // shared only with roles of equally many
  std::uint32_t max_sharers = 1;  // jobs on the group, itself included
  std::uint64_t host_bytes = 0;   // its state, on all hosts of the group together
  Duration busy{};                // device time per step, alone; on average
  Duration burst{};               // longest device time per step; what others wait for at worst
  Duration moves{};               // to bring its state in, when others were on the devices
  Duration slack{};               // time by which a step's work here may be late for free
  bool rollout_heavy = false;     // rollouts take more than half of a step
};

struct PlacementJob {
  PlacedJobId id;
  std::vector<RoleDemand> roles;            // one or two
  Duration step{};                          // wall time of a step alone, on average; > 0
  Duration expected_run{};                  // of the whole job alone
  std::uint32_t max_slowdown_permille = 0;  // 0: kDefaultSlowdownPermille
  [[nodiscard]] std::uint32_t bound() const {
    return max_slowdown_permille == 0 ? kDefaultSlowdownPermille : max_slowdown_permille;
  }
  [[nodiscard]] std::uint32_t comfort() const {
    return max_slowdown_permille == 0 ? kComfortPermille : max_slowdown_permille;
  }
};

struct Placement {
  PlacedJobId job;
  std::vector<GroupId> groups;  // one for each role
};

class Placer {
 public:
  // The policies' names, in the order of the table.
  [[nodiscard]] static std::vector<std::string_view> policies();
  // INVALID_ARGUMENT: unknown policy; no pool; a pool without nodes or devices.
  [[nodiscard]] static Result<std::unique_ptr<Placer>> create(std::string_view policy,
                                                              std::vector<PlacementPool> pools);
  virtual ~Placer() = default;

  // Queues a job. NO_CAPACITY when it would not fit an empty cluster, INVALID_ARGUMENT when its
  // numbers make no sense; then it is not queued. Ids are never used twice.
  [[nodiscard]] virtual Status submit(const PlacementJob& job, TimePoint now) = 0;
  // Who begins now, in order. Groups that are named for the first time are new.
  [[nodiscard]] virtual std::vector<Placement> place(TimePoint now) = 0;
  // The placed job has ended; groups without jobs are gone.
  virtual void finished(PlacedJobId job) = 0;

  [[nodiscard]] virtual std::size_t queued() const = 0;
  [[nodiscard]] virtual std::uint32_t free_gpus(std::uint32_t pool) const = 0;
  // Of the jobs on the group together; 0 for a group that is not there.
  [[nodiscard]] virtual std::uint64_t host_bytes(GroupId group) const = 0;
};

}  // namespace plexrl::core
