// SPDX-License-Identifier: Apache-2.0
// Draws one token from a row of logits. Pure: the same arguments give the same token.
#pragma once

#include <cstdint>
#include <vector>

namespace plexrl::model {

struct SamplingRule {
  float temperature = 1.0F;  // 0 = greedy; ties go to the lowest token
  float top_p = 1.0F;        // keeps the smallest set of most likely tokens with at least this mass
  std::uint64_t seed = 0;
};
struct SampledToken {
  std::int32_t token = 0;
  float logprob = 0;  // at temperature 1, top_p 1
};

// Scratch is reused from call to call and grows to the vocabulary. `row` and `position` select the
// random number. The logits must be finite.
struct SamplingScratch {
  std::vector<float> weights;
  std::vector<std::int32_t> order;
};
[[nodiscard]] SampledToken sample(const float* logits, std::int64_t vocab, const SamplingRule& rule,
                                  std::uint32_t row, std::uint32_t position,
                                  SamplingScratch* scratch);

}  // namespace plexrl::model
