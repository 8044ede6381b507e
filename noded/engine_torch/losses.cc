// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/losses.h"

#include <algorithm>
#include <cmath>

namespace plexrl::model {

LossTerm loss_term(const LossRule& rule, const LossInput& in) {
  LossTerm term;
  term.counts = in.weight != 0;
  if (rule.kind == wire::LossKind::CrossEntropy) {
    term.loss = -in.weight * in.logp;
    term.slope = -in.weight;
    return term;
  }
  if (!term.counts) return term;  // prompt positions carry q = 0, so their ratio means nothing
  term.ratio = std::exp(in.logp - in.sampler_logp);
  const double plain = term.ratio * in.weight;
  term.loss = -plain;
  term.slope = -plain;  // d r / d logp = r
  if (rule.kind != wire::LossKind::Ppo) return term;
  const double clipped = std::clamp(term.ratio, rule.clip_low, rule.clip_high) * in.weight;
  if (clipped < plain) {
    term.clipped = true;
    term.loss = -clipped;
    term.slope = 0;
  }
  return term;
}

}  // namespace plexrl::model
