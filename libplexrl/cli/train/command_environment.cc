// SPDX-License-Identifier: Apache-2.0
#include "cli/train/command_environment.h"

#include <cmath>

#include "base/check.h"
#include "cli/train/messages.h"

namespace plexrl::cli {
namespace {

constexpr double kMaxReward = 1e6;

// "observation" or "messages" into `to`.
Status read_observation(const nlohmann::json& reply, EnvReply& to) {
  const bool text = reply.contains("observation");
  if (text == reply.contains("messages"))
    return error(Code::PROTOCOL, R"(a reply needs either "observation" or "messages")");
  if (!text) {
    auto messages = read_messages(reply["messages"]);
    if (!messages.has_value()) return error(Code::PROTOCOL, "%s", messages.error().text().c_str());
    to.messages = std::move(messages).value();
    return {};
  }
  if (!reply["observation"].is_string())
    return error(Code::PROTOCOL, "\"observation\" is not a string");
  to.observation = reply["observation"].get<std::string>();
  return {};
}

}  // namespace

Result<EnvReply> read_reset(const nlohmann::json& reply) {
  EnvReply read;
  PLEXRL_TRY(read_observation(reply, read));
  return read;
}

Result<EnvReply> read_step(const nlohmann::json& reply) {
  EnvReply read;
  const auto done = reply.find("done");
  if (done == reply.end() || !done->is_boolean())
    return error(Code::PROTOCOL, "\"done\" is not true or false");
  read.done = done->get<bool>();
  const auto reward = reply.find("reward");
  if (reward == reply.end() || !reward->is_number())
    return error(Code::PROTOCOL, "\"reward\" is not a number");
  read.reward = reward->get<double>();
  if (!std::isfinite(read.reward) || std::abs(read.reward) > kMaxReward)
    return error(Code::PROTOCOL, "a reward of %g; at most %g either way", read.reward, kMaxReward);
  if (!read.done) PLEXRL_TRY(read_observation(reply, read));
  return read;
}

nlohmann::json reset_request(std::uint64_t seed, bool held_out) {
  return {{"op", "reset"}, {"seed", seed}, {"split", held_out ? "held_out" : "train"}};
}

nlohmann::json step_request(const std::string& action, bool stopped) {
  return {{"op", "step"}, {"action", action}, {"stopped", stopped}};
}

Result<std::unique_ptr<Environment>> CommandEnvironment::open(const TrainOptions& options) {
  if (!options.verifier.empty())
    return error(Code::INVALID_ARGUMENT, "--verifier: --env-cmd gives the rewards itself");
  if (options.sft_steps > 0)
    return error(Code::INVALID_ARGUMENT,
                 "--sft-steps: --env-cmd has no answers to learn from; warm start by --env jsonl:");
  auto made = std::make_unique<CommandEnvironment>(options);
  PLEXRL_TRY(made->pool_.check().within("--env-cmd '" + options.env_command + "'"));
  return std::unique_ptr<Environment>(std::move(made));
}

CommandEnvironment::CommandEnvironment(const TrainOptions& options)
    : stop_(options.stop_text),
      pool_(options.env_command, options.env_workers,
            Duration{static_cast<std::int64_t>(options.env_timeout_s * 1e9)}) {}

Problem CommandEnvironment::training_problem(ProblemSource& source) {
  return held_out_problem(source.random);
}

Problem CommandEnvironment::held_out_problem(Random&) {
  PLEXRL_CHECK(false, "episodes are not drawn");
  return {};
}

Result<std::vector<double>> CommandEnvironment::score(const std::vector<Attempt>&) {
  return error(Code::INTERNAL, "episodes score themselves");
}

}  // namespace plexrl::cli
