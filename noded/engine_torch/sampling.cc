// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/sampling.h"

#include <algorithm>
#include <numeric>

#include "engine_torch/counter_rng.h"
#include "engine_torch/kernels.h"

namespace plexrl::model {
namespace {

constexpr std::uint32_t kSamplingDomain = 0x706c7872;  // keeps the stream apart from initialisation

std::int32_t most_likely(const float* logits, std::int64_t vocab) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + vocab) - logits);
}

// The first token at which the running sum passes target; the last one with weight when rounding
// leaves the sum short.
std::int32_t first_above(const std::vector<float>& weights, double target) {
  double sum = 0;
  std::int32_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = static_cast<std::int32_t>(i);
    sum += static_cast<double>(weights[i]);
    if (sum > target) break;
  }
  return last;
}

double total_of(const std::vector<float>& weights) {
  double total = 0;
  for (const float w : weights) total += static_cast<double>(w);
  return total;
}

// Zeroes the weights outside the smallest set that holds `mass`. Ties: the lower token first.
void keep_nucleus(double mass, SamplingScratch* s) {
  s->order.resize(s->weights.size());
  std::iota(s->order.begin(), s->order.end(), 0);
  std::sort(s->order.begin(), s->order.end(), [&](std::int32_t a, std::int32_t b) {
    const float wa = s->weights[static_cast<std::size_t>(a)];
    const float wb = s->weights[static_cast<std::size_t>(b)];
    return wa != wb ? wa > wb : a < b;
  });
  double sum = 0;
  for (const std::int32_t token : s->order) {
    float& weight = s->weights[static_cast<std::size_t>(token)];
    if (sum >= mass) weight = 0;
    sum += static_cast<double>(weight);
  }
}

}  // namespace

SampledToken sample(const float* logits, std::int64_t vocab, const SamplingRule& rule,
                    std::uint32_t row, std::uint32_t position, SamplingScratch* scratch) {
  SampledToken result;
  if (rule.temperature == 0.0F) {
    result.token = most_likely(logits, vocab);
  } else {
    scratch->weights.resize(static_cast<std::size_t>(vocab));
    exp_weights(logits, 1.0F / rule.temperature, scratch->weights.data(), vocab);
    if (rule.top_p < 1.0F)
      keep_nucleus(static_cast<double>(rule.top_p) * total_of(scratch->weights), scratch);
    const PhiloxBlock random = philox(rule.seed, {row, position, 0, kSamplingDomain});
    result.token =
        first_above(scratch->weights, uniform53(random[0], random[1]) * total_of(scratch->weights));
  }
  result.logprob = logits[result.token] - log_sum_exp(logits, vocab);
  return result;
}

}  // namespace plexrl::model
