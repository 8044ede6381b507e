// SPDX-License-Identifier: Apache-2.0
#include "sim/distribution.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plexrl::sim {
namespace {

constexpr double kLargest = 1e9;  // 30 years in seconds: more is a typing error

double lognormal(const Distribution& d, double upper) {
  const double drawn = d.value * std::exp(d.sigma * normal_upper_quantile(upper));
  return d.max > 0 ? std::min(drawn, d.max) : drawn;
}

bool sensible(double value) { return std::isfinite(value) && value >= 0 && value <= kLargest; }

}  // namespace

// Abramowitz and Stegun 26.2.23 (error below 4.5e-4), then one step of Newton's method.
double normal_upper_quantile(double q) {
  if (q > 0.5) return -normal_upper_quantile(1 - q);
  const double t = std::sqrt(-2 * std::log(q));
  double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                     (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  const double error = 0.5 * std::erfc(x / std::numbers::sqrt2) - q;
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  if (density > 0) x += error / density;
  return x;
}

double Distribution::quantile(double u) const {
  switch (kind) {
    case Kind::kConstant:
      return scale * value;
    case Kind::kUniform:
      return scale * (min + u * (max - min));
    case Kind::kExponential:
      return scale * -value * std::log1p(-u);
    case Kind::kLognormal:
      return scale * lognormal(*this, 1 - u);
    case Kind::kLongest:
      break;
  }
  // P(longest <= x) = u means P(one > x) = 1 - u^(1/samples).
  return scale * lognormal(*this, -std::expm1(std::log(u) / samples));
}

double Distribution::mean() const {
  if (kind == Kind::kConstant) return scale * value;
  constexpr int kPoints = 2000;
  double sum = 0;
  for (int i = 0; i < kPoints; ++i) sum += quantile((i + 0.5) / kPoints);
  return sum / kPoints;
}

Status Distribution::check() const {
  for (const double number : {value, min, max, samples, scale})
    if (!sensible(number))
      return error(Code::INVALID_ARGUMENT, "a number is negative or above %.0g", kLargest);
  if (!sensible(sigma) || sigma > 5)
    return error(Code::INVALID_ARGUMENT, "sigma must be between 0 and 5");
  if (kind == Kind::kUniform && max < min) return error(Code::INVALID_ARGUMENT, "max is below min");
  if (kind == Kind::kLongest && samples < 1)
    return error(Code::INVALID_ARGUMENT, "samples must be 1 or more");
  return {};
}

}  // namespace plexrl::sim
