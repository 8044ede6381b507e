// SPDX-License-Identifier: Apache-2.0
#include "cli/train/grpo.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"

namespace plexrl::cli {
namespace {

constexpr double kStdFloor = 1e-4;

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
};

Moments moments(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  Moments result;
  for (const double value : values) result.mean += value / count;
  double variance = 0.0;
  for (const double value : values)
    variance += (value - result.mean) * (value - result.mean) / count;
  result.deviation = std::sqrt(variance);
  return result;
}

}  // namespace

std::optional<Algorithm> algorithm_of(std::string_view name) {
  const auto found = std::find(std::begin(kAlgorithmNames), std::end(kAlgorithmNames), name);
  if (found == std::end(kAlgorithmNames)) return std::nullopt;
  return static_cast<Algorithm>(found - std::begin(kAlgorithmNames));
}

Loss loss_of(Algorithm algorithm) {
  return algorithm == Algorithm::kRloo ? Loss::kImportanceSampling : Loss::kPpo;
}

std::vector<double> advantages_of(Algorithm algorithm, std::span<const double> rewards,
                                  std::uint32_t group) {
  PLEXRL_CHECK(group > 0 && rewards.size() % group == 0, "rewards come in whole groups");
  const std::size_t together =
      algorithm == Algorithm::kReinforcePlusPlus ? rewards.size() : std::size_t{group};
  std::vector<double> advantages;
  advantages.reserve(rewards.size());
  for (std::size_t first = 0; first < rewards.size(); first += together) {
    const auto members = rewards.subspan(first, together);
    const Moments m = moments(members);
    // Less the mean of the others: (n r - sum) / (n - 1).
    const double scale = algorithm != Algorithm::kRloo ? 1.0 / (m.deviation + kStdFloor)
                         : group == 1                  ? 0.0
                                                       : group / (group - 1.0);
    for (const double reward : members) advantages.push_back((reward - m.mean) * scale);
  }
  return advantages;
}

Datum ppo_datum(const Tokens& prompt, const Sequence& sequence, float advantage) {
  PLEXRL_CHECK(!prompt.empty() && sequence.logprobs.size() == sequence.tokens.size(),
               "a sequence has a log-probability per token");
  Tokens all = prompt;
  all.insert(all.end(), sequence.tokens.begin(), sequence.tokens.end());
  const std::size_t count = all.size() - 1;
  const std::size_t first = prompt.size() - 1;  // this position predicts the first new token
  Datum datum;
  datum.tokens.assign(all.begin(), all.end() - 1);
  datum.targets.assign(all.begin() + 1, all.end());
  datum.logprobs.assign(count, 0.0F);
  datum.advantages.assign(count, 0.0F);
  for (std::size_t i = first; i < count; ++i) {
    if (!sequence.own.empty() && !sequence.own[i - first]) continue;
    datum.logprobs[i] = sequence.logprobs[i - first];
    datum.advantages[i] = advantage;
  }
  return datum;
}

bool counts(const Datum& datum) {
  return std::any_of(datum.advantages.begin(), datum.advantages.end(),
                     [](float advantage) { return advantage != 0.0F; });
}

std::vector<std::vector<std::uint32_t>> minibatches(std::uint32_t rows, std::uint32_t count,
                                                    std::uint64_t seed, std::uint64_t step) {
  PLEXRL_CHECK(count > 0 && count <= rows, "a minibatch has at least one row");
  const auto order = Random(seed, Stream::kPermutation, step).permutation(rows);
  std::vector<std::vector<std::uint32_t>> parts(count);
  for (std::uint64_t part = 0; part < count; ++part) {
    const auto begin = static_cast<std::ptrdiff_t>(part * rows / count);
    const auto end = static_cast<std::ptrdiff_t>((part + 1) * rows / count);
    parts[part].assign(order.begin() + begin, order.begin() + end);
  }
  return parts;
}

double warmed_up(double learning_rate, std::uint64_t update, std::uint32_t warmup) {
  if (update + 1 >= warmup) return learning_rate;
  return learning_rate * static_cast<double>(update + 1) / static_cast<double>(warmup);
}

}  // namespace plexrl::cli
