// SPDX-License-Identifier: Apache-2.0
// Distribution: how a duration (seconds) or a count is spread. A value, drawn by its quantile.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "sim/draws.h"

namespace plexrl::sim {

struct Distribution {
  enum class Kind : std::uint8_t {
    kConstant,     // value
    kUniform,      // min, max
    kExponential,  // mean
    kLognormal,    // median, sigma (of the logarithm), max (0: none)
    // The longest of `samples` log-normal ones: a batch of rollouts ends with its last sequence.
    kLongest,  // median, sigma, max of one; samples
  };
  Kind kind = Kind::kConstant;
  double value = 0;  // constant; median; mean
  double sigma = 0;
  double min = 0;
  double max = 0;  // 0: none; of lognormal and longest in the unit of `value`
  double samples = 1;
  double scale = 1;  // multiplies what is drawn

  [[nodiscard]] static Distribution constant(double value) {
    Distribution made;
    made.value = value;
    return made;
  }
  [[nodiscard]] double quantile(double u) const;  // u in (0, 1)
  [[nodiscard]] double draw(Draws& draws) const {
    return kind == Kind::kConstant ? value * scale : quantile(draws.uniform());
  }
  // By 2,000 quantiles: exact to about 1 % for the tails that are in use.
  [[nodiscard]] double mean() const;
  [[nodiscard]] bool is_zero() const { return kind == Kind::kConstant && value * scale == 0; }
  [[nodiscard]] Status check() const;  // INVALID_ARGUMENT
};

// x with P(X > x) = q for a standard normal X; q in (0, 1).
[[nodiscard]] double normal_upper_quantile(double q);

}  // namespace plexrl::sim
