// SPDX-License-Identifier: Apache-2.0
// HrrsPolicy: highest response ratio with the switch counted as service (PlexRL, arXiv 2605.20863,
// names the policy and not its formula; this is the classical one, Brinch Hansen 1971): the op with
// the largest (waited + service + switch) / (service + switch) is next. Classes come first:
// training before logprobs before rollouts.
#pragma once

#include <algorithm>

#include "core/ranked_policy.h"

namespace plexrl::core {

class HrrsPolicy final : public RankedPolicy {
 public:
  using RankedPolicy::RankedPolicy;

 private:
  // The order of waited / cost is that of (waited + cost) / cost.
  void weigh(Candidate& candidate) const override {
    const Duration cost{known(candidate.offer->service).ns + candidate.switching.ns};
    candidate.gain = static_cast<std::uint64_t>(std::max<std::int64_t>(candidate.waited.ns, 0));
    candidate.price = static_cast<std::uint64_t>(std::max<std::int64_t>(cost.ns, 1));
  }
  [[nodiscard]] bool by_class() const override { return true; }
};

}  // namespace plexrl::core
