// SPDX-License-Identifier: Apache-2.0
// Draws: random numbers that belong to a key (seed, job, step, what) and not to a sequence. So a
// job meets the same durations whoever else is simulated, and alone and shared can be compared.
#pragma once

#include <cstdint>

namespace plexrl::sim {

// What a number is drawn for; part of the key.
enum class DrawFor : std::uint8_t { kArrival, kClass, kSteps, kScale, kStep };

class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t job, DrawFor what, std::uint64_t step = 0)
      : state_(mix(mix(mix(seed) ^ job) ^ (static_cast<std::uint64_t>(what) << 56 ^ step))) {}

  // In (0, 1), never the ends.
  [[nodiscard]] double uniform() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return (static_cast<double>(mix(state_) >> 12) + 0.5) * 0x1p-52;
  }

 private:
  // The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
  static std::uint64_t mix(std::uint64_t z) {
    z += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace plexrl::sim
