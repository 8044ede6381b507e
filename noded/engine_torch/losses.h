// SPDX-License-Identifier: Apache-2.0
// The losses of forward_backward at one position, with their derivative by log p (Tinker's
// definitions; all are summed over positions, never averaged). With r = exp(logp - q):
//   cross_entropy        -w * logp
//   importance_sampling  -r * A
//   ppo                  -min(r * A, clip(r, low, high) * A)
//   cispo                -stop(clip(r, low, high)) * A * logp: the factor has no derivative
//   dro                  -(A * logp - beta / 2 * (logp - q)^2)
// A position of weight or advantage 0 does not count and adds nothing, whatever the loss.
// Double precision; pure.
#pragma once

#include "ops_generated.h"

namespace plexrl::model {

struct LossRule {
  wire::LossKind kind = wire::LossKind::CrossEntropy;
  double clip_low = 0.8;
  double clip_high = 1.2;
  double beta = 0.01;
};
struct LossInput {
  double logp = 0;
  double weight = 0;        // w, or the advantage A
  double sampler_logp = 0;  // q; cross_entropy has none
};
struct LossTerm {
  double loss = 0;
  double slope = 0;      // d loss / d logp
  double ratio = 1;      // r; 1 for cross_entropy
  bool counts = false;   // weight is not 0
  bool clipped = false;  // ppo: the clipped branch is the smaller one, so the slope is 0;
                         // cispo: r is outside of the bounds
};
[[nodiscard]] LossTerm loss_term(const LossRule& rule, const LossInput& in);

}  // namespace plexrl::model
