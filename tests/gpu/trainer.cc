// SPDX-License-Identifier: Apache-2.0
#include "gpu/trainer.h"

#include <algorithm>
#include <numeric>

#include "cli/train/grpo.h"
#include "cli/train/sft.h"

namespace plexrl::gpu {
namespace {

constexpr std::uint32_t kWarmup = 30;

template <class Args>
wire::OpArgsUnion args_union(Args args) {
  wire::OpArgsUnion value;
  value.Set(std::move(args));
  return value;
}

double share_right(const cli::Attempt& attempt) {
  const std::string want = attempt.problem->answer + ";";
  const std::string got = attempt.completion + (attempt.stopped ? ";" : "");
  std::size_t right = 0;
  for (std::size_t i = 0; i < std::min(want.size(), got.size()); ++i)
    right += want[i] == got[i] ? 1 : 0;
  return static_cast<double>(right) / static_cast<double>(want.size());
}

}  // namespace

Result<Trainer> Trainer::make(LocalEngine& engine, const TrainPlan& plan, std::uint64_t model,
                              std::uint64_t seed) {
  PLEXRL_ASSIGN(auto tokenizer, cli::CharTokenizer::parse(engine.tokenizer()));
  return Trainer(engine, plan, model, seed, std::move(tokenizer));
}

Status Trainer::update(wire::LossKind loss, const std::vector<cli::Datum>& data, double rate) {
  wire::ForwardBackwardArgsT args;
  args.loss = loss;
  for (const cli::Datum& datum : data) {
    auto one = std::make_unique<wire::DatumT>();
    one->tokens = datum.tokens;
    one->target_tokens = datum.targets;
    one->weights = datum.weights;
    one->logprobs = datum.logprobs;
    one->advantages = datum.advantages;
    args.data.push_back(std::move(one));
  }
  PLEXRL_TRY(engine_->run(model_, args_union(std::move(args))).status());
  wire::OptimStepArgsT step;
  step.learning_rate = rate;
  step.grad_clip_norm = 1.0;
  return engine_->run(model_, args_union(std::move(step))).status();
}

Status Trainer::warm_start() {
  const auto prompt_of = [this](const cli::Problem& problem) {
    return tokenizer_.encode_prompt(problem.prompt);
  };
  for (std::uint32_t step = 0; step < plan_->sft_steps; ++step) {
    PLEXRL_ASSIGN(const cli::Tokens stops, tokenizer_.stop_tokens(environment_.stop_text()));
    PLEXRL_ASSIGN(const auto data, cli::sft_batch(environment_, tokenizer_, prompt_of,
                                                  stops.front(), plan_->sft_batch, seed_, step));
    PLEXRL_TRY(
        update(wire::LossKind::CrossEntropy, data, cli::warmed_up(plan_->sft_rate, step, kWarmup))
            .within("warm start"));
  }
  return publish(1);
}

Status Trainer::publish(std::uint64_t version) {
  wire::SaveArgsT args;
  args.target = wire::SaveTarget::Sampler;
  return engine_->run(model_, args_union(std::move(args)), version).status();
}

Result<wire::GenerateResultT> Trainer::generate(const std::vector<cli::Problem>& problems,
                                                std::uint64_t step) {
  wire::GenerateArgsT args;
  args.version = step + 1;
  args.samples_per_prompt = plan_->samples;
  args.max_new_tokens = environment_.max_answer_chars();
  args.seed = cli::Random(seed_, cli::Stream::kRolloutSeed, step).next();
  PLEXRL_ASSIGN(args.stop_tokens, tokenizer_.stop_tokens(environment_.stop_text()));
  for (const cli::Problem& problem : problems) {
    auto prompt = std::make_unique<wire::PromptT>();
    PLEXRL_ASSIGN(prompt->tokens, tokenizer_.encode(problem.prompt));
    args.prompts.push_back(std::move(prompt));
  }
  PLEXRL_ASSIGN(auto value, engine_->run(model_, args_union(std::move(args))));
  return std::move(*value.AsGenerateResult());
}

Result<std::vector<double>> Trainer::score(const std::vector<cli::Problem>& problems,
                                           const wire::GenerateResultT& answers) {
  std::vector<cli::Attempt> attempts;
  for (std::size_t row = 0; row < answers.sequences.size(); ++row) {
    const wire::SequenceT& sequence = *answers.sequences[row];
    const bool stopped = sequence.finish == wire::FinishReason::Stop;
    cli::Tokens text = sequence.tokens;
    if (stopped) text.pop_back();
    attempts.push_back({&problems[row / plan_->samples], tokenizer_.decode(text), stopped});
  }
  if (!plan_->partial_reward) return environment_.score(attempts);
  std::vector<double> rewards;
  for (const cli::Attempt& attempt : attempts) rewards.push_back(share_right(attempt));
  return rewards;
}

Result<double> Trainer::grpo_step(std::uint64_t step) {
  cli::ProblemSource source{cli::Random(seed_, cli::Stream::kProblems, step)};
  std::vector<cli::Problem> problems;
  for (std::uint32_t i = 0; i < plan_->prompts; ++i)
    problems.push_back(environment_.training_problem(source));
  PLEXRL_ASSIGN(const auto answers, generate(problems, step));
  PLEXRL_ASSIGN(const std::vector<double> rewards, score(problems, answers));
  const auto rows = static_cast<std::uint32_t>(rewards.size());
  const std::vector<double> advantages =
      cli::advantages_of(cli::Algorithm::kGrpo, rewards, plan_->samples);
  for (const auto& part : cli::minibatches(rows, plan_->minibatches, seed_, step)) {
    double tokens = 0;
    for (const std::uint32_t row : part)
      tokens += static_cast<double>(answers.sequences[row]->tokens.size());
    std::vector<cli::Datum> data;
    for (const std::uint32_t row : part) {
      const wire::SequenceT& sequence = *answers.sequences[row];
      PLEXRL_ASSIGN(const auto prompt, tokenizer_.encode(problems[row / plan_->samples].prompt));
      // The loss is a sum: its mean over the part's answer tokens.
      data.push_back(cli::ppo_datum(prompt, {sequence.tokens, sequence.logprobs, false},
                                    static_cast<float>(advantages[row] / tokens)));
    }
    PLEXRL_TRY(update(wire::LossKind::Ppo, data, plan_->rate));
  }
  PLEXRL_TRY(publish(step + 2));
  return std::accumulate(rewards.begin(), rewards.end(), 0.0) / static_cast<double>(rows);
}

}  // namespace plexrl::gpu
