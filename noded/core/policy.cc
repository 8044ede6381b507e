// SPDX-License-Identifier: Apache-2.0
#include "core/policy.h"

#include <algorithm>

#include "core/fifo_policy.h"
#include "core/hrrs_policy.h"
#include "core/int_math.h"
#include "core/least_slowdown_policy.h"
#include "core/round_robin_policy.h"

namespace plexrl::core {

std::int64_t Runner::wall_ns(std::uint64_t charged_ns) const {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 60;
  const std::uint64_t wall = mul_div(charged_ns, batch_rows, rows);
  const bool rounds = in_batch() && charged_ns > 0;
  return static_cast<std::int64_t>(std::min(wall, kLongest)) + (rounds ? 1 : 0);
}

std::unique_ptr<Policy> make_policy(std::string_view name, Duration quantum,
                                    const CostModel& costs) {
  if (name == "fifo") return std::make_unique<FifoPolicy>();
  if (name == "round-robin") return std::make_unique<RoundRobinPolicy>(quantum);
  if (name == "hrrs") return std::make_unique<HrrsPolicy>(quantum, costs);
  if (name == "least-slowdown") return std::make_unique<LeastSlowdownPolicy>(quantum, costs);
  return nullptr;
}

}  // namespace plexrl::core
