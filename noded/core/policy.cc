// SPDX-License-Identifier: Apache-2.0
#include "core/policy.h"

#include "core/fifo_policy.h"
#include "core/hrrs_policy.h"
#include "core/least_slowdown_policy.h"
#include "core/round_robin_policy.h"

namespace plexrl::core {

std::unique_ptr<Policy> make_policy(std::string_view name, Duration quantum,
                                    const CostModel& costs) {
  if (name == "fifo") return std::make_unique<FifoPolicy>();
  if (name == "round-robin") return std::make_unique<RoundRobinPolicy>(quantum);
  if (name == "hrrs") return std::make_unique<HrrsPolicy>(quantum, costs);
  if (name == "least-slowdown") return std::make_unique<LeastSlowdownPolicy>(quantum, costs);
  return nullptr;
}

}  // namespace plexrl::core
