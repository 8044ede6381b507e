// SPDX-License-Identifier: Apache-2.0
#include "cli/train/random.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace plexrl::cli {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

std::uint64_t finalise(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed, Stream stream, std::uint64_t index)
    : state_(finalise(finalise(seed + kGolden) + static_cast<std::uint64_t>(stream)) ^
             finalise(index + kGolden)) {}

std::uint64_t Random::next() { return finalise(state_ += kGolden); }

std::uint64_t Random::below(std::uint64_t bound) {
  PLEXRL_CHECK(bound > 0, "an empty range has no number");
  const std::uint64_t unfair = (0 - bound) % bound;  // 2^64 mod bound
  std::uint64_t value = next();
  while (value < unfair) value = next();
  return value % bound;
}

// Box and Muller; the logarithm has the variance that gives this mean and deviation.
double Random::log_normal(double mean, double sd) {
  PLEXRL_CHECK(mean > 0.0 && sd >= 0.0, "a log-normal variable is above 0");
  const auto uniform = [this] { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; };
  const double radius = std::sqrt(-2.0 * std::log(uniform()));
  const double normal = radius * std::cos(2.0 * std::numbers::pi * uniform());
  const double variance = std::log1p(sd * sd / (mean * mean));
  return mean * std::exp(std::sqrt(variance) * normal - variance / 2.0);
}

std::vector<std::uint32_t> Random::permutation(std::uint32_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (std::uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[below(i)]);
  return order;
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return finalise(hash);
}

bool is_held_out(std::string_view text) { return hash_text(text) % 10 == 0; }

}  // namespace plexrl::cli
