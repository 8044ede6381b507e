// SPDX-License-Identifier: Apache-2.0
#include "cli/train/train_state.h"

#include <algorithm>

#include "cli/train/json_field.h"

namespace plexrl::cli {
namespace {

// Ops after the last step: a publish and the saves.
constexpr std::uint64_t kFinalOps = 4;

}  // namespace

nlohmann::json to_json(const TrainState& state) {
  nlohmann::json document = {{"sft_done", state.sft_done},
                             {"sft_finished", state.sft_finished},
                             {"grpo_done", state.grpo_done},
                             {"first_known_step", state.first_known_step},
                             {"rewards", state.rewards},
                             {"busy_s", state.busy_s},
                             {"wall_s", state.wall_s},
                             {"wait_s", state.wait_s},
                             {"tool_s", state.tool_s},
                             {"new_tokens", state.new_tokens},
                             {"max_logprob_drop", state.max_logprob_drop}};
  if (state.drawn) document["drawn"] = to_json(*state.drawn);
  return document;
}

Result<TrainState> state_from_json(const nlohmann::json& document) {
  if (!document.is_object()) return error(Code::CORRUPT, "the state is not an object");
  TrainState state;
  PLEXRL_TRY(take_field(document, "sft_done", state.sft_done));
  PLEXRL_TRY(take_field(document, "sft_finished", state.sft_finished));
  PLEXRL_TRY(take_field(document, "grpo_done", state.grpo_done));
  PLEXRL_TRY(take_field(document, "first_known_step", state.first_known_step));
  PLEXRL_TRY(take_field(document, "rewards", state.rewards));
  PLEXRL_TRY(take_field(document, "busy_s", state.busy_s));
  PLEXRL_TRY(take_field(document, "wall_s", state.wall_s));
  PLEXRL_TRY(take_field(document, "wait_s", state.wait_s));
  PLEXRL_TRY(take_field(document, "tool_s", state.tool_s));
  PLEXRL_TRY(take_field(document, "new_tokens", state.new_tokens));
  PLEXRL_TRY(take_field(document, "max_logprob_drop", state.max_logprob_drop));
  if (document.contains("drawn")) {
    auto drawn = drawn_from_json(document["drawn"]);
    if (!drawn.has_value()) return drawn.error().within("drawn");
    state.drawn = std::move(drawn).value();
  }
  if (state.first_known_step + state.rewards.size() != state.grpo_done)
    return error(Code::CORRUPT, "%zu rewards for step %llu", state.rewards.size(),
                 static_cast<unsigned long long>(state.grpo_done));
  return state;
}

nlohmann::json fingerprint(const TrainOptions& options) {
  return {{"env", options.environment},
          {"base", options.base},
          {"train", options.train_mode},
          {"rank", options.lora_rank},
          {"seed", options.seed},
          {"env-cmd", options.env_command},
          {"env-workers", options.env_command.empty() ? 0 : options.env_workers},
          {"max-turns", options.env_command.empty() ? 0 : options.max_turns},
          {"chat", options.chat},
          {"system", options.system},
          {"prompts", options.prompts},
          {"samples", options.samples},
          {"minibatches", options.minibatches},
          {"lr", options.learning_rate},
          {"warmup", options.warmup_updates},
          {"temperature", options.temperature},
          {"grad-clip", options.grad_clip_norm},
          {"algo", options.algorithm},
          {"loss", options.loss},
          {"clip-low", options.clip_low.value_or(0.0)},
          {"clip-high", options.clip_high.value_or(0.0)},
          {"dro-beta", options.dro_beta.value_or(0.0)},
          {"dynamic-sampling", options.resample_rounds.value_or(0)},
          {"length-penalty", options.length_penalty.value_or(0.0)},
          {"overlong-buffer", options.overlong_buffer},
          {"kl-coef", options.kl_coefficient},
          {"max-new-tokens", options.max_new_tokens},
          {"max-staleness", std::min(options.max_staleness, 1U)},
          {"sft-steps", options.sft_steps},
          {"sft-target", options.sft_target},
          {"sft-batch", options.sft_batch},
          {"sft-lr", options.sft_learning_rate},
          {"sft-warmup", options.sft_warmup_updates}};
}

Status same_run(const nlohmann::json& saved, const nlohmann::json& now) {
  // A file of a version that did not know an option was written as with its default.
  const nlohmann::json before = fingerprint(TrainOptions());
  for (const auto& [name, value] : now.items()) {
    const bool known = saved.is_object() && saved.contains(name);
    if (!known && !before.contains(name)) continue;
    if ((known ? saved[name] : before[name]) != value)
      return error(
          Code::INVALID_ARGUMENT,
          "it was written with another --%s (now %s); use the same options or another file",
          name.c_str(), value.dump().c_str());
  }
  return {};
}

Result<RunPosition> locate(const TrainOptions& options, std::uint64_t next_seq) {
  if (options.sft_steps > 0 && options.sft_target > 0)
    return error(
        Code::INVALID_ARGUMENT,
        "model '%s' has been trained before; with --sft-target a run can be continued only "
        "with its --checkpoint file; give that or another --model-name",
        options.model_name.c_str());
  if (options.max_staleness > 0)
    return error(Code::INVALID_ARGUMENT,
                 "model '%s' has been trained before; with --max-staleness a run can be continued "
                 "only with its --checkpoint file; give that or another --model-name",
                 options.model_name.c_str());
  const std::uint64_t accepted = next_seq - 1;
  const std::uint64_t sft_ops = 2 * static_cast<std::uint64_t>(options.sft_steps);
  const std::uint64_t step_ops = 1 + 2 * static_cast<std::uint64_t>(options.minibatches);
  if (accepted > sft_ops + options.steps * step_ops + kFinalOps)
    return error(
        Code::INVALID_ARGUMENT,
        "model '%s' has had %llu training operations, more than this run has: it belongs to "
        "another run; give another --model-name",
        options.model_name.c_str(), static_cast<unsigned long long>(accepted));
  RunPosition position;
  TrainState& state = position.state;
  state.sft_done = std::min<std::uint64_t>(accepted / 2, options.sft_steps);
  state.sft_finished = state.sft_done == options.sft_steps;
  if (accepted > sft_ops)
    state.grpo_done = std::min<std::uint64_t>((accepted - sft_ops) / step_ops, options.steps);
  state.first_known_step = state.grpo_done;
  position.first_seq = 1 + 2 * state.sft_done + state.grpo_done * step_ops;
  return position;
}

}  // namespace plexrl::cli
