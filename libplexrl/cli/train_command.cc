// SPDX-License-Identifier: Apache-2.0
#include "cli/train_command.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "cli/output.h"
#include "cli/train/controller.h"
#include "cli/train/file_io.h"
#include "cli/train/grpo.h"
#include "cli/train/objective.h"
#include "cli/train/plexrl_service.h"

namespace plexrl::cli {
namespace {

struct TrainCommandOptions {
  TrainOptions train;
  bool json = false;
};

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "it is set in a signal handler");

constexpr char kStopping[] =
    "plexrl: the run ends after this step; another signal ends it at once\n";

void request_stop(int) {
  const int saved = errno;
  stop_requested = true;
  // A step may take minutes: say that the signal has been seen. Nothing else can be done of a
  // failure.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kStopping, sizeof kStopping - 1);
  errno = saved;
}

// The first signal ends the run after the step in progress, a second one at once. No SA_RESTART, so
// that the wait for tools ends early.
void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = request_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

// Options that do not go together.
Status check_options(const TrainOptions& options) {
  TrainOptions chosen = options;
  PLEXRL_TRY(choose_objective(chosen));
  PLEXRL_TRY(check_environment(options));
  if (options.minibatches > options.prompts * options.samples)
    return error(Code::INVALID_ARGUMENT,
                 "--minibatches %u is more than --prompts %u x --samples %u", options.minibatches,
                 options.prompts, options.samples);
  return {};
}

Status check_run(const TrainOptions& options) {
  if (options.samples == 1 && options.steps > 0 &&
      algorithm_of(options.algorithm) != Algorithm::kReinforcePlusPlus)
    print_progress(
        "warning: with --samples 1 each group is one answer, whose advantage is 0: nothing is "
        "learnt");
  for (const std::string* path : {&options.summary, &options.checkpoint, &options.save})
    if (!path->empty()) PLEXRL_TRY(can_create(*path));
  return {};
}

// Slurm counts how often it has started a job again.
bool requeued() {
  const char* const count = std::getenv("SLURM_RESTART_COUNT");
  return count != nullptr && *count != '\0' && std::strcmp(count, "0") != 0;
}

Status run_train(const TrainCommandOptions& command) {
  TrainOptions options = command.train;
  options.requeued = requeued();
  PLEXRL_TRY(check_run(options));
  PLEXRL_ASSIGN(const auto environment, make_environment(options));
  PLEXRL_ASSIGN(TrainLog log, TrainLog::open(options.log, options.resume));
  install_signal_handlers();
  PLEXRL_ASSIGN(const auto service, connect_service(options));
  if (!options.tensorboard.empty()) {
    PLEXRL_ASSIGN(EventFile events, EventFile::create(options.tensorboard, options.resume));
    log.also_to(std::move(events));
  }
  Controller controller(options, *service, *environment, log, system_clock(), stop_requested);
  PLEXRL_ASSIGN(const nlohmann::json summary, controller.run());
  if (!options.summary.empty())
    PLEXRL_TRY(write_atomically(options.summary, summary.dump(2) + "\n"));
  if (command.json) print_json(summary);
  return {};
}

// CLI::PositiveNumber and NonNegativeNumber print the largest double, of 309 digits, as their end.
CLI::Validator number_above_zero(bool or_zero) {
  return {[or_zero](std::string& text) -> std::string {
            double value = 0.0;
            if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) &&
                (value > 0.0 || (or_zero && value == 0.0)))
              return "";
            return "'" + text + "' is not a number " + (or_zero ? "from 0 up" : "above 0");
          },
          or_zero ? "0.." : "above 0"};
}

void add_environment_options(CLI::App& command, TrainOptions& options) {
  auto* environment =
      command.add_option("--env", options.environment, "sort, add, countdown[:N] or jsonl:FILE")
          ->capture_default_str();
  auto* workers = command
                      .add_option("--env-cmd", options.env_command,
                                  "command of an environment's workers, in place of --env")
                      ->excludes(environment);
  command.add_option("--env-workers", options.env_workers, "workers of --env-cmd")
      ->check(CLI::Range(1U, 200U))
      ->needs(workers)
      ->capture_default_str();
  command.add_option("--env-timeout", options.env_timeout_s, "seconds for a worker's reply")
      ->check(CLI::Range(0.001, 86'400.0))
      ->needs(workers)
      ->capture_default_str();
  command.add_option("--max-turns", options.max_turns, "answers of the model in an episode")
      ->check(CLI::Range(1U, 1000U))
      ->needs(workers)
      ->capture_default_str();
}

void add_model_options(CLI::App& command, TrainOptions& options) {
  command.add_option("--model-name", options.model_name, "the job's name for its model")
      ->capture_default_str();
  command.add_option("--base", options.base, "base model; default: the first of the grant");
  command.add_option("--train", options.train_mode, "lora or full; default: the grant's")
      ->check(CLI::IsMember({"lora", "full"}));
  command.add_option("--rank", options.lora_rank, "LoRA rank; default: the grant's");
  auto* chat =
      command.add_flag("--chat", options.chat, "ask in messages, by the model's chat template");
  command.add_option("--system", options.system, "the system message of --chat")->needs(chat);
  command.add_option("--seed", options.seed, "seed of everything that is random")
      ->capture_default_str();
}

void add_grpo_options(CLI::App& command, TrainOptions& options) {
  command.add_option("--steps", options.steps, "policy gradient steps")
      ->check(CLI::Range(0U, 1'000'000U))
      ->capture_default_str();
  command.add_option("--prompts", options.prompts, "prompts per step")
      ->check(CLI::Range(1U, 65'536U))
      ->capture_default_str();
  command.add_option("--samples", options.samples, "samples per prompt")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  command.add_option("--minibatches", options.minibatches, "optimizer steps per step")
      ->check(CLI::Range(1U, 1024U))
      ->capture_default_str();
  command.add_option("--algo", options.algorithm, "grpo, dapo, rloo or reinforce++")
      ->check(CLI::IsMember(
          std::vector<std::string>(std::begin(kAlgorithmNames), std::end(kAlgorithmNames))))
      ->capture_default_str();
  command.add_option("--lr", options.learning_rate, "learning rate; default: 2e-4 full, 5e-4 lora")
      ->check(number_above_zero(false));
  command.add_option("--warmup", options.warmup_updates, "optimizer steps of linear warm-up")
      ->capture_default_str();
  command.add_option("--temperature", options.temperature, "of sampling")
      ->check(number_above_zero(false))
      ->capture_default_str();
  command.add_option("--grad-clip", options.grad_clip_norm, "global gradient norm; 0: none")
      ->check(number_above_zero(true))
      ->capture_default_str();
  command.add_option("--max-new-tokens", options.max_new_tokens,
                     "longest answer; default: the environment's");
  command
      .add_option("--tool-latency", options.tool_latency_s,
                  "seconds of simulated waiting for tools in each step, in the mean")
      ->check(CLI::Range(0.0, 86'400.0));
  command
      .add_option("--tool-latency-sd", options.tool_latency_sd_s,
                  "standard deviation of that, in seconds")
      ->check(CLI::Range(0.0, 86'400.0));
  command
      .add_option("--max-staleness", options.max_staleness,
                  "steps by which a rollout's version may be behind; 0: none")
      ->check(CLI::Range(0U, 1'000'000U))
      ->capture_default_str();
}

void add_objective_options(CLI::App& command, TrainOptions& options) {
  command
      .add_option("--loss", options.loss,
                  "ppo, importance_sampling, cispo or dro; default: the algorithm's")
      ->check(
          CLI::IsMember(std::vector<std::string>(std::begin(kLossNames), std::end(kLossNames))));
  command
      .add_option("--clip-low", options.clip_low,
                  "least ratio that has a gradient; default: the algorithm's")
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--clip-high", options.clip_high,
                  "largest ratio that has a gradient; default: the algorithm's")
      ->check(CLI::Range(1.0, 1000.0));
  command
      .add_option("--dro-beta", options.dro_beta,
                  "weight of the drift in --loss dro; default: 0.01")
      ->check(number_above_zero(true));
  command
      .add_option("--dynamic-sampling", options.resample_rounds,
                  "draw groups without a signal again, so often; default: the algorithm's")
      ->check(CLI::Range(0U, kMaxResampleRounds));
  command
      .add_option("--length-penalty", options.length_penalty,
                  "taken off the reward of the longest answer")
      ->check(CLI::Range(0.0, 1000.0));
  command
      .add_option("--overlong-buffer", options.overlong_buffer,
                  "last tokens over which the length penalty grows; 0: all")
      ->capture_default_str();
  command
      .add_option("--kl-coef", options.kl_coefficient,
                  "penalty on the KL divergence from the base; 0: none")
      ->check(number_above_zero(true))
      ->capture_default_str();
}

void add_sft_options(CLI::App& command, TrainOptions& options) {
  command
      .add_option("--sft-steps", options.sft_steps, "steps of supervised warm start before GRPO")
      ->check(CLI::Range(0U, 1'000'000U))
      ->capture_default_str();
  command
      .add_option("--sft-target", options.sft_target, "end the warm start at this held-out reward")
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--sft-batch", options.sft_batch, "problems per warm-start step")
      ->check(CLI::Range(1U, 65'536U))
      ->capture_default_str();
  command.add_option("--sft-lr", options.sft_learning_rate, "learning rate of the warm start")
      ->check(number_above_zero(false))
      ->capture_default_str();
  command.add_option("--sft-warmup", options.sft_warmup_updates, "its steps of linear warm-up")
      ->capture_default_str();
}

void add_check_options(CLI::App& command, TrainOptions& options) {
  command
      .add_option("--eval-every", options.eval_every,
                  "held-out evaluation every so many steps; 0: at the end")
      ->capture_default_str();
  command.add_option("--eval-prompts", options.eval_prompts, "held-out prompts; 0: no evaluation")
      ->check(CLI::Range(0U, 65'536U))
      ->capture_default_str();
  command.add_option("--verifier", options.verifier, "command that checks an answer of jsonl:FILE");
  command.add_option("--verifier-timeout", options.verifier_timeout_s, "seconds for one answer")
      ->check(CLI::Range(0.001, 86'400.0))
      ->capture_default_str();
  command.add_option("--verifier-jobs", options.verifier_jobs, "answers checked at a time")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  command.add_option("--stop", options.stop_text,
                     "the token that ends an answer of jsonl:FILE; default: the model's");
}

void add_file_options(CLI::App& command, TrainOptions& options) {
  command.add_option("--log", options.log, "write one JSON line per step to this file");
  command.add_option("--tensorboard", options.tensorboard,
                     "write TensorBoard event files to this directory");
  command.add_option("--summary", options.summary, "write the summary to this file");
  auto* checkpoint =
      command.add_option("--checkpoint", options.checkpoint, "keep a checkpoint in this file");
  command
      .add_option("--checkpoint-every", options.checkpoint_every,
                  "steps between checkpoints; 0: at the end")
      ->capture_default_str();
  command.add_flag("--resume", options.resume, "go on from the checkpoint when there is one")
      ->needs(checkpoint);
  auto* save = command.add_option("--save", options.save, "write the final model to this file");
  command
      .add_option_function<std::string>(
          "--format",
          [&options](const std::string& name) {
            options.save_format =
                name == "weights" ? SaveFormat::kWeights : SaveFormat::kCheckpoint;
          },
          "of --save: checkpoint or weights")
      ->check(CLI::IsMember({"checkpoint", "weights"}))
      ->needs(save);
}

}  // namespace

void add_train(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand(
      "train", "train a model on verifiable rewards, by GRPO or another policy gradient");
  auto options = std::make_shared<TrainCommandOptions>();
  add_environment_options(*command, options->train);
  add_model_options(*command, options->train);
  add_grpo_options(*command, options->train);
  add_objective_options(*command, options->train);
  add_sft_options(*command, options->train);
  add_check_options(*command, options->train);
  add_file_options(*command, options->train);
  add_json_option(*command, options->json);
  command->parse_complete_callback([options] {
    const Status sound = check_options(options->train);
    if (!sound.ok()) throw CLI::ValidationError(sound.text());
  });
  on_chosen(*command, chosen, options, run_train);
}

}  // namespace plexrl::cli
