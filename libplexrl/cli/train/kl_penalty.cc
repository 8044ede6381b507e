// SPDX-License-Identifier: Apache-2.0
#include "cli/train/kl_penalty.h"

#include "base/check.h"

namespace plexrl::cli {
namespace {

constexpr std::uint64_t kBaseVersion = 0;

using Rows = std::vector<std::vector<float>>;

Tokens whole(const RolloutBatch& batch, std::uint32_t samples, std::size_t row) {
  Tokens tokens = batch.prompts[row / samples];
  const Tokens& answer = batch.sequences[row].tokens;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  return tokens;
}

// All ops are submitted before the first is waited for.
Result<Rows> base_logprobs(Service& service, OpMeter& meter, const RolloutBatch& batch,
                           std::uint32_t samples, std::uint32_t parts) {
  const std::size_t rows = batch.sequences.size();
  std::vector<FuturePtr<Rows>> futures;
  for (std::size_t part = 0; part < parts; ++part) {
    std::vector<Tokens> sequences;
    for (std::size_t row = part * rows / parts; row < (part + 1) * rows / parts; ++row)
      sequences.push_back(whole(batch, samples, row));
    if (sequences.empty()) continue;
    PLEXRL_ASSIGN(auto future, service.logprobs(kBaseVersion, sequences));
    futures.push_back(std::move(future));
  }
  Rows result;
  for (const auto& future : futures) {
    PLEXRL_ASSIGN(Rows some, meter.wait(*future));
    for (auto& row : some) result.push_back(std::move(row));
  }
  if (result.size() != rows)
    return error(Code::PROTOCOL, "logprobs: %zu rows for %zu sequences", result.size(), rows);
  return result;
}

}  // namespace

Result<KlPenalty> KlPenalty::measure(Service& service, OpMeter& meter, const RolloutBatch& batch,
                                     std::uint32_t samples, std::uint32_t parts,
                                     double coefficient) {
  PLEXRL_ASSIGN(const Rows base, base_logprobs(service, meter, batch, samples, parts));
  KlPenalty penalty;
  penalty.coefficient_ = coefficient;
  double sum = 0.0, count = 0.0;
  for (std::size_t row = 0; row < base.size(); ++row) {
    const std::vector<float>& sampled = batch.sequences[row].logprobs;
    Row result;
    result.first = batch.prompts[row / samples].size() - 1;
    if (base[row].size() != result.first + sampled.size())
      return error(Code::PROTOCOL, "logprobs: row %zu has %zu values instead of %zu", row,
                   base[row].size(), result.first + sampled.size());
    result.own = batch.sequences[row].own;
    for (std::size_t i = 0; i < sampled.size(); ++i) {
      result.differences.push_back(static_cast<double>(sampled[i]) - base[row][result.first + i]);
      if (!result.is_own(i)) continue;
      sum += result.differences.back();
      count += 1.0;
    }
    penalty.rows_.push_back(std::move(result));
  }
  penalty.mean_ = count > 0.0 ? sum / count : 0.0;
  return penalty;
}

void KlPenalty::add_to(Datum& datum, std::size_t row, double scale) const {
  const Row& values = rows_[row];
  PLEXRL_CHECK(datum.advantages.size() == values.first + values.differences.size(),
               "a datum has a position per token");
  for (std::size_t i = 0; i < values.differences.size(); ++i)
    if (values.is_own(i))
      datum.advantages[values.first + i] +=
          static_cast<float>(scale * coefficient_ * (mean_ - values.differences[i]));
}

}  // namespace plexrl::cli
