// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/losses.h"

#include <algorithm>
#include <cmath>

namespace plexrl::model {
namespace {

// The part of the policy losses that differs; `term` has the ratio.
void set_policy_loss(const LossRule& rule, const LossInput& in, LossTerm* term) {
  const double plain = term->ratio * in.weight;
  const double bounded = std::clamp(term->ratio, rule.clip_low, rule.clip_high);
  const double drift = in.logp - in.sampler_logp;
  switch (rule.kind) {
    case wire::LossKind::Cispo:
      term->clipped = bounded != term->ratio;
      term->slope = -bounded * in.weight;
      term->loss = term->slope * in.logp;
      return;
    case wire::LossKind::Dro:
      term->loss = -(in.weight * in.logp - rule.beta / 2 * drift * drift);
      term->slope = -in.weight + rule.beta * drift;
      return;
    case wire::LossKind::Ppo:
      term->clipped = bounded * in.weight < plain;
      break;
    case wire::LossKind::ImportanceSampling:
    case wire::LossKind::CrossEntropy:
      break;
  }
  term->loss = term->clipped ? -bounded * in.weight : -plain;
  term->slope = term->clipped ? 0 : -plain;  // d r / d logp = r
}

}  // namespace

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
  set_policy_loss(rule, in, &term);
  return term;
}

}  // namespace plexrl::model
