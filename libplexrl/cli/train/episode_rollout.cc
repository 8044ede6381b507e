// SPDX-License-Identifier: Apache-2.0
#include "cli/train/episode_rollout.h"

#include <algorithm>

#include "cli/output.h"
#include "cli/train/command_environment.h"

namespace plexrl::cli {

Result<RolloutBatch> EpisodeRollout::run(const std::vector<std::uint64_t>& seeds, bool held_out,
                                         const GenerateRequest& request, Random random) {
  prompts_.assign(seeds.size(), {});
  episodes_.assign(seeds.size() * request.samples_per_prompt, {});
  for (std::size_t row = 0; row < episodes_.size(); ++row) {
    episodes_[row].prompt = row / request.samples_per_prompt;
    waiting_.push_back(row);
  }
  seats_.assign(pool_.size(), nullptr);
  for (;;) {
    seat_waiting();
    if (std::all_of(seats_.begin(), seats_.end(), [](Episode* one) { return one == nullptr; }))
      return collect(request.samples_per_prompt);
    PLEXRL_TRY(ask_workers(seeds, held_out));
    GenerateRequest round = request;
    round.seed = random.next();
    PLEXRL_TRY(ask_model(std::move(round)));
  }
}

void EpisodeRollout::seat_waiting() {
  for (Episode*& seat : seats_) {
    if (seat != nullptr && seat->over) seat = nullptr;
    if (seat != nullptr || waiting_.empty()) continue;
    seat = &episodes_[waiting_.front()];
    waiting_.pop_front();
  }
}

Status EpisodeRollout::ask_workers(const std::vector<std::uint64_t>& seeds, bool held_out) {
  std::vector<EnvPool::Request> requests;
  for (std::size_t place = 0; place < seats_.size(); ++place) {
    const Episode* episode = seats_[place];
    if (episode == nullptr) continue;
    requests.push_back({place, episode->turns == 0
                                   ? reset_request(seeds[episode->prompt], held_out)
                                   : step_request(episode->action, episode->said.stopped)});
  }
  const TimePoint start = system_clock().now();
  const auto replies = pool_.exchange(requests);
  env_s_ += static_cast<double>((system_clock().now() - start).ns) * 1e-9;
  for (std::size_t i = 0; i < replies.size(); ++i) PLEXRL_TRY(take(requests[i].worker, replies[i]));
  return {};
}

Status EpisodeRollout::take(std::size_t place, const Result<nlohmann::json>& reply) {
  Episode& episode = *seats_[place];
  if (!reply.has_value()) return failed(place, reply.error());
  const bool first = episode.turns == 0;
  const auto read = first ? read_reset(*reply) : read_step(*reply);
  if (!read.has_value()) {
    pool_.replace(place);
    return failed(place, read.error().within("environment worker " + std::to_string(place)));
  }
  if (!read->messages.empty() && !format_.is_chat())
    return error(Code::INVALID_ARGUMENT, "--env-cmd: the environment writes messages: give --chat");
  const Status heard = first ? begin(episode, *read) : go_on(episode, *read);
  return heard.ok() ? heard : failed(place, heard);
}

// Ends the run only where going on has no sense.
Status EpisodeRollout::failed(std::size_t place, const Status& why) {
  Episode& episode = *seats_[place];
  if (why.code() == Code::UNSUPPORTED) return why;
  if (first_failure_.ok()) first_failure_ = why;
  if (episode.turns > 0) {
    episode.failed = episode.over = true;
    return {};
  }
  if (++episode.resets == kMaxResets)
    return why.within("the environment failed to begin an episode " + std::to_string(kMaxResets) +
                      " times");
  waiting_.push_front(static_cast<std::size_t>(&episode - episodes_.data()));
  seats_[place] = nullptr;
  return {};
}

Status EpisodeRollout::begin(Episode& episode, const EnvReply& reply) {
  const std::string& shown =
      reply.messages.empty() ? reply.observation : reply.messages.back().content;
  PLEXRL_ASSIGN(Tokens prompt, format_.first({shown, "", reply.messages}));
  if (prompt.empty() || prompt.size() + limits_.max_new_tokens > limits_.max_positions)
    return error(Code::TOO_LARGE,
                 "the first observation '%.60s': %zu tokens and %u new ones do not fit the model's "
                 "%u positions; shorten it or give --max-new-tokens",
                 shown.c_str(), prompt.size(), limits_.max_new_tokens, limits_.max_positions);
  Tokens& known = prompts_[episode.prompt];
  if (known.empty()) known = prompt;
  if (known != prompt)
    return error(Code::PROTOCOL,
                 "a reset with the same seed gives another observation ('%.60s'): the samples of a "
                 "prompt need the same task",
                 shown.c_str());
  episode.context = std::move(prompt);
  return {};
}

Status EpisodeRollout::go_on(Episode& episode, const EnvReply& reply) {
  episode.reward += reply.reward;
  if (reply.done || episode.turns >= options_.max_turns) {
    episode.over = true;
    return {};
  }
  PLEXRL_ASSIGN(const Tokens heard,
                format_.next(reply.observation, reply.messages, episode.context.back()));
  // No room for another answer: the episode ends with what it has.
  if (episode.context.size() + heard.size() + limits_.max_new_tokens > limits_.max_positions) {
    episode.over = true;
    return {};
  }
  episode.context.insert(episode.context.end(), heard.begin(), heard.end());
  Sequence& said = episode.said;
  said.tokens.insert(said.tokens.end(), heard.begin(), heard.end());
  said.logprobs.insert(said.logprobs.end(), heard.size(), 0.0F);
  said.own.insert(said.own.end(), heard.size(), false);
  return {};
}

Status EpisodeRollout::ask_model(GenerateRequest request) {
  std::vector<Episode*> asked;
  for (Episode* episode : seats_)
    if (episode != nullptr && !episode->over) asked.push_back(episode);
  if (asked.empty()) return {};
  for (const Episode* episode : asked) request.prompts.push_back(episode->context);
  request.samples_per_prompt = 1;
  request.max_new_tokens = limits_.max_new_tokens;
  request.stop_tokens = limits_.stops;
  PLEXRL_ASSIGN(const auto future, service_.generate(request));
  PLEXRL_ASSIGN(const std::vector<Sequence> answers, meter_.wait(*future));
  if (answers.size() != asked.size())
    return error(Code::PROTOCOL, "generate: %zu sequences for %zu prompts", answers.size(),
                 asked.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Sequence& answer = answers[i];
    Episode& episode = *asked[i];
    PLEXRL_TRY(check_sequence(answer, i));
    episode.context.insert(episode.context.end(), answer.tokens.begin(), answer.tokens.end());
    Sequence& said = episode.said;
    said.tokens.insert(said.tokens.end(), answer.tokens.begin(), answer.tokens.end());
    said.logprobs.insert(said.logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
    said.own.insert(said.own.end(), answer.tokens.size(), true);
    said.stopped = answer.stopped;
    Tokens text = answer.tokens;
    if (answer.stopped) text.pop_back();
    episode.action = tokenizer_.decode(text);
    ++episode.turns;
  }
  return {};
}

Result<RolloutBatch> EpisodeRollout::collect(std::uint32_t samples) {
  RolloutBatch batch;
  batch.prompts = std::move(prompts_);
  batch.env_s = env_s_;
  std::vector<double> sums(batch.prompts.size()), counts(batch.prompts.size());
  double all = 0.0;
  for (const Episode& episode : episodes_) {
    if (episode.failed) {
      ++batch.failed;
      continue;
    }
    sums[episode.prompt] += episode.reward;
    counts[episode.prompt] += 1.0;
    all += episode.reward;
  }
  if (batch.failed == episodes_.size())
    return first_failure_.within("all " + std::to_string(batch.failed) + " episodes failed");
  all /= static_cast<double>(episodes_.size() - batch.failed);
  for (Episode& episode : episodes_) {
    const double count = counts[episode.prompt];
    const double others = count > 0.0 ? sums[episode.prompt] / count : all;
    batch.rewards.push_back(episode.failed ? others : episode.reward);
    batch.new_tokens += episode.said.own_tokens();
    batch.stopped += episode.said.stopped ? 1 : 0;
    if (episode.failed) episode.said.own.assign(episode.said.tokens.size(), false);
    batch.sequences.push_back(std::move(episode.said));
  }
  if (!first_failure_.ok())
    print_progress("environment: " + std::to_string(batch.failed) + " of " +
                   std::to_string(episodes_.size()) + " episodes dropped of " +
                   std::to_string(samples) +
                   " a prompt; the first failure: " + first_failure_.text());
  return batch;
}

}  // namespace plexrl::cli
