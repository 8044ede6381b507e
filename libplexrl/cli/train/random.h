// SPDX-License-Identifier: Apache-2.0
// Random numbers that depend on (seed, stream, index) only, so that step k of a run draws the same
// whether or not the run was interrupted before it. SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, OOPSLA 2014).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace plexrl::cli {

enum class Stream : std::uint64_t {
  kSftProblems = 1,
  kProblems,
  kPermutation,
  kEvaluation,
  kRolloutSeed,
  kEvaluationSeed,
  kResampledProblems,
  kResampleSeed,
  kProblemOrder,  // these three: of a list, by pass
  kSftOrder,
  kResampledOrder,
  kToolLatency
};

class Random {
 public:
  Random(std::uint64_t seed, Stream stream, std::uint64_t index);
  [[nodiscard]] std::uint64_t next();
  // Uniform in [0, bound); bound > 0. Rejects, so there is no modulo bias.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound);
  // Log-normal with this mean and standard deviation; mean > 0, sd >= 0.
  [[nodiscard]] double log_normal(double mean, double sd);
  // 0 .. count-1 in random order (Fisher and Yates).
  [[nodiscard]] std::vector<std::uint32_t> permutation(std::uint32_t count);

 private:
  std::uint64_t state_;
};

// 64-bit hash of a text, the same on every machine: FNV-1a with the finaliser of SplitMix64, whose
// avalanche the low digits need.
[[nodiscard]] std::uint64_t hash_text(std::string_view text);

// The held-out split: one text in ten. `text` is whatever must not be on both sides.
[[nodiscard]] bool is_held_out(std::string_view text);

}  // namespace plexrl::cli
