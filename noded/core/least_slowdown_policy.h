// SPDX-License-Identifier: Apache-2.0
// LeastSlowdownPolicy: the tenant for which a second of delay costs most, per second of device time
// that serving its phase takes. A delay of w makes an iteration of period P (alone) a slowdown of
// (P + w) / P; the sum of the squares of these grows by 2 (P + w) / P^2 for each second more.
// Serving in the order of that over the time c of the phase with its switch is Smith's rule (Naval
// Research Logistics Quarterly 1956) on growing weights: short phases of short iterations first,
// and the longer one waits the more it counts.
#pragma once

#include <algorithm>

#include "core/ranked_policy.h"

namespace plexrl::core {

class LeastSlowdownPolicy final : public RankedPolicy {
 public:
  using RankedPolicy::RankedPolicy;

 private:
  void weigh(Candidate& candidate) const override {
    const Offer& offer = *candidate.offer;
    const std::uint64_t cost = units({known(offer.phase).ns + candidate.switching.ns});
    // Before the period is known: as if the phase were a quarter of it.
    const std::uint64_t period =
        std::max(offer.period.ns > 0 ? units(offer.period) : 4 * cost, cost);
    candidate.gain = ((period + units(candidate.waited)) << 16) / period;
    candidate.price = period * cost;
  }
  [[nodiscard]] bool by_class() const override { return false; }
  // As serving in that order does, preemptive too: who is nearly done is not interrupted.
  [[nodiscard]] bool finishes_first() const override { return true; }

  // 65 us: products of two times of up to two hours fit in 64 bits.
  [[nodiscard]] static std::uint64_t units(Duration time) {
    const std::int64_t ns = std::clamp<std::int64_t>(time.ns, 0, SizedCost::kLongest.ns);
    return (static_cast<std::uint64_t>(ns) >> 16) + 1;
  }
};

}  // namespace plexrl::core
