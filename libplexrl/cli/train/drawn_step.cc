// SPDX-License-Identifier: Apache-2.0
#include "cli/train/drawn_step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "cli/train/json_field.h"

namespace plexrl::cli {
namespace {

// A text of one digit per token: "false" would take five times the room.
std::string digits(const std::vector<bool>& flags) {
  std::string text;
  for (const bool flag : flags) text += flag ? '1' : '0';
  return text;
}

nlohmann::json to_json(const Sequence& sequence) {
  std::vector<std::uint32_t> bits;
  for (const float value : sequence.logprobs) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return {{"tokens", sequence.tokens},
          {"logprob_bits", std::move(bits)},
          {"stopped", sequence.stopped},
          {"own", digits(sequence.own)}};
}

Result<Sequence> sequence_from(const nlohmann::json& document) {
  Sequence sequence;
  std::vector<std::uint32_t> bits;
  std::string own;
  PLEXRL_TRY(take_field(document, "tokens", sequence.tokens));
  PLEXRL_TRY(take_field(document, "logprob_bits", bits));
  PLEXRL_TRY(take_field(document, "stopped", sequence.stopped));
  PLEXRL_TRY(take_field(document, "own", own));
  for (const std::uint32_t value : bits) sequence.logprobs.push_back(std::bit_cast<float>(value));
  for (const char digit : own) sequence.own.push_back(digit == '1');
  if (sequence.logprobs.size() != sequence.tokens.size() ||
      (!own.empty() && own.size() != sequence.tokens.size()))
    return error(Code::CORRUPT, "%zu tokens, %zu log-probabilities", sequence.tokens.size(),
                 sequence.logprobs.size());
  return sequence;
}

nlohmann::json to_json(const RolloutBatch& batch) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Sequence& sequence : batch.sequences) rows.push_back(to_json(sequence));
  return {{"prompts", batch.prompts}, {"rewards", batch.rewards}, {"rows", std::move(rows)}};
}

// Its counts are those of the step.
Result<RolloutBatch> batch_from(const nlohmann::json& document) {
  RolloutBatch batch;
  std::vector<nlohmann::json> rows;
  PLEXRL_TRY(take_field(document, "prompts", batch.prompts));
  PLEXRL_TRY(take_field(document, "rewards", batch.rewards));
  PLEXRL_TRY(take_field(document, "rows", rows));
  for (const nlohmann::json& row : rows) {
    auto sequence = sequence_from(row);
    if (!sequence.has_value()) return sequence.error().within("row");
    batch.sequences.push_back(std::move(sequence).value());
  }
  return batch;
}

}  // namespace

nlohmann::json to_json(const DrawnStep& drawn) {
  const StepSamples& samples = drawn.samples;
  return {{"version", drawn.version},
          {"policy_step", drawn.policy_step},
          {"tool_s", drawn.tool_s},
          {"busy_s", drawn.times.busy_s},
          {"blocked_s", drawn.times.blocked_s},
          {"other_tenants_s", drawn.times.other_tenants_s},
          {"switch_s", drawn.times.switch_s},
          {"groups", samples.groups},
          {"groups_without_signal", samples.groups_without_signal},
          {"rounds", samples.rounds},
          {"answers", samples.answers},
          {"stopped", samples.stopped},
          {"new_tokens", samples.new_tokens},
          {"failed", samples.failed},
          {"env_s", samples.env_s},
          {"reward_sum", samples.reward_sum},
          {"batch", to_json(samples.batch)}};
}

Result<DrawnStep> drawn_from_json(const nlohmann::json& document) {
  DrawnStep drawn;
  StepSamples& samples = drawn.samples;
  nlohmann::json batch;
  PLEXRL_TRY(take_field(document, "version", drawn.version));
  PLEXRL_TRY(take_field(document, "policy_step", drawn.policy_step));
  PLEXRL_TRY(take_field(document, "tool_s", drawn.tool_s));
  PLEXRL_TRY(take_field(document, "busy_s", drawn.times.busy_s));
  PLEXRL_TRY(take_field(document, "blocked_s", drawn.times.blocked_s));
  PLEXRL_TRY(take_field(document, "other_tenants_s", drawn.times.other_tenants_s));
  PLEXRL_TRY(take_field(document, "switch_s", drawn.times.switch_s));
  PLEXRL_TRY(take_field(document, "groups", samples.groups));
  PLEXRL_TRY(take_field(document, "groups_without_signal", samples.groups_without_signal));
  PLEXRL_TRY(take_field(document, "rounds", samples.rounds));
  PLEXRL_TRY(take_field(document, "answers", samples.answers));
  PLEXRL_TRY(take_field(document, "stopped", samples.stopped));
  PLEXRL_TRY(take_field(document, "new_tokens", samples.new_tokens));
  PLEXRL_TRY(take_field(document, "failed", samples.failed));
  PLEXRL_TRY(take_field(document, "env_s", samples.env_s));
  PLEXRL_TRY(take_field(document, "reward_sum", samples.reward_sum));
  PLEXRL_TRY(take_field(document, "batch", batch));
  PLEXRL_ASSIGN(samples.batch, batch_from(batch));
  return drawn;
}

Status check_drawn(const DrawnStep& drawn, const TrainOptions& options, std::uint64_t step) {
  const RolloutBatch& batch = drawn.samples.batch;
  const std::size_t rows = batch.sequences.size();
  const bool fits = rows == batch.prompts.size() * options.samples &&
                    rows == batch.rewards.size() && rows >= options.minibatches &&
                    drawn.samples.answers >= rows && drawn.policy_step <= step;
  if (!fits) return error(Code::CORRUPT, "'drawn' is not a rollout of this run");
  if (std::any_of(batch.prompts.begin(), batch.prompts.end(),
                  [](const Tokens& prompt) { return prompt.empty(); }))
    return error(Code::CORRUPT, "'drawn' has an empty prompt");
  return {};
}

}  // namespace plexrl::cli
