// SPDX-License-Identifier: Apache-2.0
#include "cli/train/rollout.h"

#include <numeric>

#include "cli/train/episode_rollout.h"

namespace plexrl::cli {

namespace {

// Of the tasks of a worker. Those of training are even and those held out odd, so that even an
// environment that looks at nothing else does not train on what it is evaluated with; below 2^53,
// which every JSON reader keeps.
std::vector<std::uint64_t> task_seeds(Random random, std::uint32_t count, bool held_out) {
  std::vector<std::uint64_t> seeds;
  for (std::uint32_t i = 0; i < count; ++i)
    seeds.push_back((random.next() >> 12) * 2 + (held_out ? 1 : 0));
  return seeds;
}

}  // namespace

Status check_sequence(const Sequence& sequence, std::size_t row) {
  if (!sequence.tokens.empty() && sequence.tokens.size() == sequence.logprobs.size()) return {};
  return error(Code::PROTOCOL, "generate: row %zu has %zu tokens and %zu log-probabilities", row,
               sequence.tokens.size(), sequence.logprobs.size());
}

double RolloutBatch::mean_reward() const {
  if (rewards.empty()) return 0.0;
  return std::accumulate(rewards.begin(), rewards.end(), 0.0) / static_cast<double>(rewards.size());
}

void move_group(RolloutBatch& from, std::uint32_t samples, std::size_t group, RolloutBatch& to) {
  to.prompts.push_back(std::move(from.prompts[group]));
  for (std::size_t row = group * samples; row < (group + 1) * samples; ++row) {
    to.sequences.push_back(std::move(from.sequences[row]));
    to.rewards.push_back(from.rewards[row]);
  }
}

Rollout::Rollout(Service& service, OpMeter& meter, Environment& environment,
                 const TextTokenizer& tokenizer, const PromptFormat& format,
                 const TrainOptions& options, AnswerLimits limits)
    : service_(service),
      meter_(meter),
      environment_(environment),
      tokenizer_(tokenizer),
      format_(format),
      options_(options),
      limits_(std::move(limits)) {}

void Rollout::announce() {
  if (const auto call = std::exchange(when_device_free_, nullptr)) call();
}

Result<RolloutBatch> Rollout::train(std::uint64_t step, std::uint64_t version) {
  return draw({Random(options_.seed, Stream::kProblems, step), Stream::kProblemOrder,
               step * options_.prompts},
              Random(options_.seed, Stream::kRolloutSeed, step), options_.prompts, version);
}

Result<RolloutBatch> Rollout::resample(std::uint64_t step, std::uint64_t round,
                                       std::uint32_t prompts, std::uint64_t version) {
  const std::uint64_t index = step * (kMaxResampleRounds + 1) + round;
  // Room for all rounds, also those that are not needed, so that the place follows from the step.
  const std::uint64_t place = step * options_.resample_rounds.value_or(0) + round - 1;
  return draw({Random(options_.seed, Stream::kResampledProblems, index), Stream::kResampledOrder,
               place * options_.prompts},
              Random(options_.seed, Stream::kResampleSeed, index), prompts, version);
}

Result<RolloutBatch> Rollout::draw(ProblemSource source, Random seed, std::uint32_t prompts,
                                   std::uint64_t version) {
  GenerateRequest request;
  request.version = version;
  request.samples_per_prompt = options_.samples;
  request.temperature = options_.temperature;
  if (environment_.workers() != nullptr)
    return episodes(task_seeds(source.random, prompts, false), false, request, seed);
  std::vector<Problem> problems;
  problems.reserve(prompts);
  for (std::uint32_t i = 0; i < prompts; ++i)
    problems.push_back(environment_.training_problem(source));
  request.seed = seed.next();
  return run(problems, std::move(request));
}

Result<RolloutBatch> Rollout::held_out(std::uint64_t step, std::uint64_t version,
                                       double temperature) {
  Random random(options_.seed, Stream::kEvaluation, 0);
  Random seeds(options_.seed, Stream::kEvaluationSeed, step);
  GenerateRequest request;
  request.version = version;
  request.temperature = temperature;
  if (environment_.workers() != nullptr)
    return episodes(task_seeds(random, options_.eval_prompts, true), true, request, seeds);
  std::vector<Problem> problems;
  problems.reserve(options_.eval_prompts);
  for (std::uint32_t i = 0; i < options_.eval_prompts; ++i)
    problems.push_back(environment_.held_out_problem(random));
  request.seed = seeds.next();
  return run(problems, std::move(request));
}

Result<RolloutBatch> Rollout::episodes(const std::vector<std::uint64_t>& tasks, bool held_out,
                                       const GenerateRequest& request, Random seeds) {
  EpisodeRollout rollout(service_, meter_, *environment_.workers(), tokenizer_, format_, options_,
                         limits_);
  announce();
  return rollout.run(tasks, held_out, request, seeds);
}

Status Rollout::check_length(const Problem& problem, const Tokens& prompt) const {
  if (!prompt.empty() && prompt.size() + limits_.max_new_tokens <= limits_.max_positions) return {};
  return error(Code::TOO_LARGE,
               "prompt '%.60s': %zu tokens and %u new ones do not fit the model's %u positions; "
               "shorten it or give --max-new-tokens",
               problem.prompt.c_str(), prompt.size(), limits_.max_new_tokens,
               limits_.max_positions);
}

Result<RolloutBatch> Rollout::run(const std::vector<Problem>& problems, GenerateRequest request) {
  RolloutBatch batch;
  batch.prompts.reserve(problems.size());
  for (const Problem& problem : problems) {
    auto prompt = format_.first(problem);
    if (!prompt.has_value()) return prompt.error().within("prompt '" + problem.prompt + "'");
    PLEXRL_TRY(check_length(problem, *prompt));
    batch.prompts.push_back(std::move(prompt).value());
  }
  request.prompts = batch.prompts;
  request.max_new_tokens = limits_.max_new_tokens;
  request.stop_tokens = limits_.stops;
  PLEXRL_ASSIGN(const auto future, service_.generate(request));
  PLEXRL_ASSIGN(batch.sequences, meter_.wait(*future));
  announce();
  if (batch.sequences.size() != problems.size() * request.samples_per_prompt)
    return error(Code::PROTOCOL, "generate: %zu sequences for %zu prompts of %u samples",
                 batch.sequences.size(), problems.size(), request.samples_per_prompt);
  PLEXRL_TRY(score(problems, request.samples_per_prompt, batch));
  return batch;
}

Status Rollout::score(const std::vector<Problem>& problems, std::uint32_t samples,
                      RolloutBatch& batch) {
  std::vector<Attempt> attempts;
  attempts.reserve(batch.sequences.size());
  for (std::size_t row = 0; row < batch.sequences.size(); ++row) {
    const Sequence& sequence = batch.sequences[row];
    PLEXRL_TRY(check_sequence(sequence, row));
    Tokens answer = sequence.tokens;
    if (sequence.stopped) answer.pop_back();
    attempts.push_back({&problems[row / samples], tokenizer_.decode(answer), sequence.stopped});
    batch.new_tokens += sequence.tokens.size();
    batch.stopped += sequence.stopped ? 1 : 0;
  }
  PLEXRL_ASSIGN(batch.rewards, environment_.score(attempts));
  return {};
}

}  // namespace plexrl::cli
