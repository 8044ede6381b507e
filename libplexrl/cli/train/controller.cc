// SPDX-License-Identifier: Apache-2.0
#include "cli/train/controller.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <future>
#include <system_error>

#include "cli/output.h"
#include "cli/train/dynamic_sampling.h"
#include "cli/train/grpo.h"
#include "cli/train/kl_penalty.h"
#include "cli/train/objective.h"
#include "cli/train/sft.h"

namespace plexrl::cli {
namespace {

// Measured on the 0.6M demo model, sort, 30 steps from a held-out reward of 0.44, scale 4 of LoRA
// rank 8: full 2e-4 gains 0.34-0.37; LoRA 5e-4 gains 0.27-0.28 (3 seeds), 7e-4 0.28-0.30 (2), 1e-3
// 0.29-0.34 (2), 2e-3 0.24 with a log-probability drop of 0.15. 5e-4 keeps the widest distance to
// where it breaks.
constexpr double kFullLearningRate = 2e-4;
constexpr double kLoraLearningRate = 5e-4;
constexpr std::uint64_t kSftJudgeEvery = 25;
constexpr double kLongestToolLatency = 86'400.0;  // seconds

double seconds(Duration duration) { return static_cast<double>(duration.ns) * 1e-9; }

// While it lives SIGINT and SIGTERM do not come to this thread, nor ever to one that it starts.
class StopSignalsHeld {
 public:
  StopSignalsHeld() noexcept {
    sigset_t held;
    ::sigemptyset(&held);
    ::sigaddset(&held, SIGINT);
    ::sigaddset(&held, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  StopSignalsHeld(const StopSignalsHeld&) = delete;
  StopSignalsHeld& operator=(const StopSignalsHeld&) = delete;
  ~StopSignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// A file without a name, for a state that is only hashed.
Result<UniqueFd> scratch_file() {
  std::error_code code;
  const auto directory = std::filesystem::temp_directory_path(code);
  if (code) return error(Code::IO, "no temporary directory: set TMPDIR");
  UniqueFd fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd) return errno_error(Code::IO, errno, "temporary file in '%s'", directory.c_str());
  return fd;
}

nlohmann::json mean_of(const std::vector<double>& rewards, std::size_t first, std::size_t count) {
  if (rewards.empty() || count == 0) return nullptr;
  double sum = 0.0;
  for (std::size_t i = first; i < first + count; ++i) sum += rewards[i];
  return sum / static_cast<double>(count);
}

}  // namespace

Controller::Controller(TrainOptions options, Service& service, Environment& environment,
                       TrainLog& log, const Clock& clock, const std::atomic<bool>& stop)
    : options_(std::move(options)),
      service_(service),
      environment_(environment),
      log_(log),
      clock_(clock),
      stop_(stop),
      meter_(clock),
      rollout_meter_(clock) {}

Result<nlohmann::json> Controller::run() {
  PLEXRL_TRY(attach());
  while (!done()) {
    if (stop_) return stopped();
    const Status status = advance();
    if (status.code() == Code::LOST && checkpoint_->exists()) {
      print_progress("the service lost the model (" + status.text() + "); loading the checkpoint");
      PLEXRL_TRY(restore());
    } else if (!status.ok()) {
      return status;
    }
  }
  return finish();
}

// ---- start ----

Status Controller::attach() {
  PLEXRL_ASSIGN(const ModelFacts facts, service_.model());
  model_id_ = facts.id;
  PLEXRL_TRY(choose_defaults(facts));
  PLEXRL_ASSIGN(tokenizer_, make_tokenizer(facts.tokenizer));
  PLEXRL_TRY(choose_format());
  PLEXRL_TRY(read_problems(facts));
  rollout_.emplace(service_, rollout_meter_, environment_, *tokenizer_, *format_, options_,
                   limits_);
  nlohmann::json run = fingerprint(options_);
  run["stop"] = limits_.stops;
  checkpoint_.emplace(options_.checkpoint, std::move(run));
  return position(facts);
}

Status Controller::choose_defaults(const ModelFacts& facts) {
  PLEXRL_TRY(choose_objective(options_));
  if (facts.train_mode == "none")
    return error(Code::PERMISSION,
                 "this job may not train: submit with --plexrl-train=lora or --plexrl-train=full");
  options_.base = facts.base;
  options_.train_mode = facts.train_mode;
  options_.lora_rank = facts.lora_rank;
  if (options_.learning_rate == 0.0)
    options_.learning_rate = facts.train_mode == "full" ? kFullLearningRate : kLoraLearningRate;
  if (!environment_.has_held_out()) options_.eval_prompts = 0;
  return {};
}

Status Controller::choose_format() {
  format_.emplace(*tokenizer_);
  if (options_.chat || environment_.has_messages()) {
    PLEXRL_ASSIGN(auto chat, PromptFormat::chat(*tokenizer_, options_.system));
    format_.emplace(std::move(chat));
  }
  auto stops = format_->stop_tokens(environment_.stop_text(), options_.stop_text);
  if (!stops && options_.stop_text.empty())
    return stops.error().within("the end of an answer in this environment");
  if (!stops) return stops.error();
  limits_.stops = *std::move(stops);
  return {};
}

// A problem that the model cannot read would end the run at the step that draws it.
Status Controller::read_problems(const ModelFacts& facts) {
  std::size_t longest = environment_.max_answer_chars();
  const Status readable = environment_.check_problems([&](const Problem& problem) -> Status {
    PLEXRL_TRY(format_->first(problem).status().within("prompt '" + problem.prompt + "'"));
    const auto answer = tokenizer_->encode(problem.answer);
    if (!answer.has_value()) return {};  // a verifier may have one that the model cannot write
    longest = std::max(longest, answer->size() + 1);
    for (const std::int32_t stop : limits_.stops)
      if (std::find(answer->begin(), answer->end(), stop) != answer->end())
        return error(Code::INVALID_ARGUMENT,
                     "answer '%.60s' contains what ends an answer, '%s'; see --stop",
                     problem.answer.c_str(), tokenizer_->decode({stop}).c_str());
    return {};
  });
  PLEXRL_TRY(readable);
  limits_.max_positions = facts.max_positions;
  limits_.max_new_tokens =
      options_.max_new_tokens > 0 ? options_.max_new_tokens : static_cast<std::uint32_t>(longest);
  if (options_.overlong_buffer > limits_.max_new_tokens)
    return error(Code::INVALID_ARGUMENT,
                 "--overlong-buffer %u: an answer has at most %u tokens; see --max-new-tokens",
                 options_.overlong_buffer, limits_.max_new_tokens);
  return {};
}

void Controller::start_stream(std::uint64_t first_seq, std::uint64_t accepted_end) {
  stream_.emplace(service_, meter_, first_seq, accepted_end);
  last_checkpoint_ = state_.sft_done + state_.grpo_done;
}

// Three ways to begin: the model has a past (a requeued job found its state), a checkpoint, or
// anew.
Status Controller::position(const ModelFacts& facts) {
  if (facts.next_seq > 1) {
    PLEXRL_ASSIGN(auto known, checkpoint_->read_journal(facts.id));
    if (!known.has_value()) {
      if (!options_.requeued)
        return error(Code::EXISTS,
                     "model '%s' of this job has been trained before: give another --model-name, "
                     "or the --checkpoint of the run that is to go on",
                     options_.model_name.c_str());
      PLEXRL_ASSIGN(known, locate(options_, facts.next_seq));
    }
    state_ = known->state;
    if (state_.drawn)
      PLEXRL_TRY(check_drawn(*state_.drawn, options_, state_.grpo_done)
                     .within("'" + options_.checkpoint + ".journal'"));
    print_progress("going on with model '" + options_.model_name + "' at step " +
                   std::to_string(state_.grpo_done));
    start_stream(known->first_seq, facts.next_seq);
    return {};
  }
  if (options_.resume && checkpoint_->exists()) return restore();
  if (checkpoint_->exists())
    return error(Code::EXISTS,
                 "checkpoint '%s' exists: give --resume to go on from it, or remove it",
                 options_.checkpoint.c_str());
  state_.sft_finished = options_.sft_steps == 0;
  start_stream(1, 1);
  return {};
}

Status Controller::restore() {
  PLEXRL_ASSIGN(auto loaded, checkpoint_->read());
  PLEXRL_ASSIGN(const ModelFacts facts, service_.model());
  state_ = std::move(loaded.state);
  if (state_.drawn)
    PLEXRL_TRY(check_drawn(*state_.drawn, options_, state_.grpo_done)
                   .within("checkpoint '" + options_.checkpoint + "'"));
  start_stream(facts.next_seq, facts.next_seq);
  PLEXRL_ASSIGN(const SaveResult result, stream_->load_fd(loaded.model.get()));
  if (!loaded.sha256.empty() && !result.sha256.empty() && loaded.sha256 != result.sha256)
    return error(Code::CORRUPT, "checkpoint '%s': the model's sha256 is %s, not %s",
                 options_.checkpoint.c_str(), result.sha256.c_str(), loaded.sha256.c_str());
  print_progress("resumed from '" + options_.checkpoint + "' at step " +
                 std::to_string(state_.grpo_done));
  return {};
}

// ---- steps ----

bool Controller::done() const { return state_.sft_finished && state_.grpo_done >= options_.steps; }

Status Controller::advance() {
  PLEXRL_TRY(checkpoint_->write_journal(state_, model_id_, stream_->next()));
  PLEXRL_TRY(state_.sft_finished ? grpo_step() : sft_step());
  return write_checkpoint_if_due();
}

Status Controller::sft_step() {
  const auto prompt_of = [this](const Problem& problem) { return format_->first(problem); };
  PLEXRL_ASSIGN(const auto data,
                sft_batch(environment_, *tokenizer_, prompt_of, limits_.stops.front(),
                          options_.sft_batch, options_.seed, state_.sft_done));
  OptimRequest request;
  request.learning_rate =
      warmed_up(options_.sft_learning_rate, state_.sft_done, options_.sft_warmup_updates);
  request.beta2 = 0.98;
  request.grad_clip_norm = options_.grad_clip_norm;
  PLEXRL_TRY(stream_->forward_backward(Loss::kCrossEntropy, data));
  PLEXRL_TRY(stream_->optim_step(request));
  PLEXRL_ASSIGN(const UpdateResult result, stream_->finish());
  const OpTimes times = meter_.take();
  ++state_.sft_done;
  PLEXRL_TRY(log_.write({{"phase", "sft"},
                         {"step", state_.sft_done},
                         {"loss", result.loss_sum},
                         {"grad_norm", result.grad_norm},
                         {"busy_s", times.busy_s}}));
  if (state_.sft_done % kSftJudgeEvery == 0 || state_.sft_done == options_.sft_steps)
    print_progress("warm start " + std::to_string(state_.sft_done) + "/" +
                   std::to_string(options_.sft_steps) + "  loss " +
                   format_fixed(result.loss_sum, 3));
  PLEXRL_TRY(judge_warm_start());
  if (state_.sft_done >= options_.sft_steps) state_.sft_finished = true;
  return {};
}

Status Controller::judge_warm_start() {
  if (options_.sft_target <= 0.0 || state_.sft_done % kSftJudgeEvery != 0) return {};
  PLEXRL_ASSIGN(const std::uint64_t version, stream_->publish());
  PLEXRL_ASSIGN(const auto held_out, evaluate(version));
  if (held_out.is_object() && held_out["sampled"].get<double>() >= options_.sft_target)
    state_.sft_finished = true;
  return {};
}

double Controller::wait_for_tools(std::uint64_t step) const {
  if (options_.tool_latency_s <= 0.0) return 0.0;
  Random random(options_.seed, Stream::kToolLatency, step);
  const double wait = std::min(
      random.log_normal(options_.tool_latency_s, options_.tool_latency_sd_s), kLongestToolLatency);
  const TimePoint start = clock_.now();
  // poll and not a sleep that restarts: a signal ends the wait.
  (void)::poll(nullptr, 0, static_cast<int>(wait * 1e3));
  return seconds(clock_.now() - start);
}

Status Controller::grpo_step() {
  StepRecord record;
  record.step = state_.grpo_done + 1;
  record.steps = options_.steps;
  // A checkpoint that was saved or loaded before is not part of the step.
  (void)meter_.take();
  (void)rollout_meter_.take();
  TimePoint start = clock_.now();
  PLEXRL_ASSIGN(const std::uint64_t version, stream_->publish());
  if (options_.eval_every > 0 && state_.grpo_done % options_.eval_every == 0) {
    const TimePoint evaluation = clock_.now();
    PLEXRL_TRY(evaluate(version).status());
    (void)rollout_meter_.take();  // an evaluation is not part of the step
    start = start + (clock_.now() - evaluation);
  }
  PLEXRL_ASSIGN(const RolloutBatch batch, take_rollout(version, record));
  const bool ahead = options_.max_staleness > 0 && record.step < options_.steps;
  PLEXRL_TRY(ahead ? train_and_draw(batch, version, record) : train_on(batch, record));
  record.wall_s = seconds(clock_.now() - start);
  record.times += meter_.take();
  account(record);
  return log_.step(record);
}

Result<DrawnStep> Controller::draw(std::uint64_t step, std::uint64_t version) {
  DrawnStep drawn;
  drawn.version = version;
  drawn.policy_step = state_.grpo_done;
  PLEXRL_ASSIGN(drawn.samples, sample_step(*rollout_, options_, step, version));
  drawn.tool_s = wait_for_tools(step);
  drawn.times = rollout_meter_.take();
  return drawn;
}

Result<RolloutBatch> Controller::take_rollout(std::uint64_t version, StepRecord& record) {
  if (!state_.drawn) {
    PLEXRL_ASSIGN(state_.drawn, draw(state_.grpo_done, version));
  }
  DrawnStep drawn = *std::exchange(state_.drawn, std::nullopt);
  const StepSamples& samples = drawn.samples;
  const auto answers = static_cast<double>(samples.answers);
  record.version = drawn.version;
  record.staleness = state_.grpo_done - drawn.policy_step;
  record.tool_s = drawn.tool_s;
  record.times = drawn.times;
  record.reward = samples.reward_sum / answers;
  record.new_tokens = samples.new_tokens;
  record.failed_episodes = samples.failed;
  record.env_s = samples.env_s;
  record.stopped_fraction = static_cast<double>(samples.stopped) / answers;
  record.answer_tokens = static_cast<double>(samples.new_tokens) / answers;
  record.groups = samples.groups;
  record.groups_without_signal = samples.groups_without_signal;
  record.resample_rounds = samples.rounds;
  RolloutBatch batch = std::move(drawn.samples.batch);
  for (std::size_t row = 0; row < batch.sequences.size(); ++row) {
    const double penalty =
        length_penalty(options_, limits_.max_new_tokens, batch.sequences[row].own_tokens());
    batch.rewards[row] -= penalty;
    record.length_penalty += penalty / static_cast<double>(batch.sequences.size());
  }
  return batch;
}

Status Controller::train_and_draw(const RolloutBatch& batch, std::uint64_t version,
                                  StepRecord& record) {
  std::future<Status> training;
  std::promise<void> device_free;  // after `training`: its end lets that go on
  // The device is for the rollout until that waits for its environment or for tools. Asked for
  // both, the service lets them take turns by its quantum: they would end together, and nothing
  // would be left to train during the wait.
  rollout_->when_device_free([&] { device_free.set_value(); });
  try {
    // A signal comes to this thread, whose wait for tools it ends.
    const StopSignalsHeld held;
    training = std::async(std::launch::async, [&, ready = device_free.get_future()] {
      ready.wait();
      return train_on(batch, record);
    });
  } catch (const std::system_error& failure) {
    return error(Code::NO_CAPACITY, "start a thread for the training: %s", failure.what());
  }
  auto next = draw(state_.grpo_done + 1, version);
  rollout_->announce();  // of one that failed before
  // Both are over before either is looked at: what follows may load another model.
  PLEXRL_TRY(training.get());
  if (!next.has_value()) return next.error();
  state_.drawn = std::move(next).value();
  return {};
}

// One optimizer step per minibatch; every sample is used once. The loss is a sum over tokens, so
// the mean over the minibatch's answer tokens is in the advantages.
Status Controller::train_on(const RolloutBatch& batch, StepRecord& record) {
  const Algorithm algorithm = *algorithm_of(options_.algorithm);
  const auto advantages = advantages_of(algorithm, batch.rewards, options_.samples);
  const LossRequest loss = loss_request(options_);
  KlPenalty kl;
  if (options_.kl_coefficient > 0.0) {
    PLEXRL_ASSIGN(kl, KlPenalty::measure(service_, meter_, batch, options_.samples,
                                         options_.minibatches, options_.kl_coefficient));
    record.kl = kl.mean();
  }
  const auto rows = static_cast<std::uint32_t>(batch.sequences.size());
  std::uint64_t update = state_.grpo_done * options_.minibatches;
  for (const auto& part :
       minibatches(rows, options_.minibatches, options_.seed, state_.grpo_done)) {
    double tokens = 0.0;
    for (const auto row : part) tokens += static_cast<double>(batch.sequences[row].own_tokens());
    tokens = std::max(tokens, 1.0);  // all may have been dropped
    std::vector<Datum> data;
    data.reserve(part.size());
    for (const auto row : part) {
      Datum datum = ppo_datum(batch.prompts[row / options_.samples], batch.sequences[row],
                              static_cast<float>(advantages[row] / tokens));
      if (record.kl) kl.add_to(datum, row, 1.0 / tokens);
      // What counts nowhere adds nothing, but an op needs a datum.
      if (counts(datum) || (row == part.back() && data.empty())) data.push_back(std::move(datum));
    }
    OptimRequest request;
    request.learning_rate = warmed_up(options_.learning_rate, update++, options_.warmup_updates);
    request.grad_clip_norm = options_.grad_clip_norm;
    record.learning_rate = request.learning_rate;
    PLEXRL_TRY(stream_->forward_backward(loss, data));
    // One by one, so that what a rollout asks meanwhile waits for one of them only.
    if (options_.max_staleness > 0) PLEXRL_TRY(stream_->settle());
    PLEXRL_TRY(stream_->optim_step(request));
    if (options_.max_staleness > 0) PLEXRL_TRY(stream_->settle());
  }
  PLEXRL_ASSIGN(const UpdateResult result, stream_->finish());
  record.loss = result.loss_sum;
  record.grad_norm = result.grad_norm;
  trained_here_ = true;
  gradient_seen_ = gradient_seen_ || result.grad_norm > 0.0;
  record.means = result.means;
  return {};
}

void Controller::account(const StepRecord& record) {
  ++state_.grpo_done;
  state_.rewards.push_back(record.reward);
  state_.busy_s += record.times.busy_s;
  state_.wall_s += record.wall_s;
  state_.wait_s += record.times.wait_s();
  state_.tool_s += record.tool_s;
  state_.new_tokens += record.new_tokens;
  if (record.means)
    state_.max_logprob_drop = std::max(state_.max_logprob_drop, record.means->logprob_drop);
}

Result<nlohmann::json> Controller::evaluate(std::uint64_t version) {
  if (options_.eval_prompts == 0) return nlohmann::json(nullptr);
  const std::uint64_t step = state_.sft_done + state_.grpo_done;
  PLEXRL_ASSIGN(const RolloutBatch sampled, rollout_->held_out(step, version, 1.0));
  PLEXRL_ASSIGN(const RolloutBatch greedy, rollout_->held_out(step, version, 0.0));
  nlohmann::json result = {{"sampled", sampled.mean_reward()},
                           {"greedy", greedy.mean_reward()},
                           {"prompts", options_.eval_prompts}};
  print_progress("held out  sampled " + format_fixed(sampled.mean_reward(), 3) + "  greedy " +
                 format_fixed(greedy.mean_reward(), 3));
  nlohmann::json line = result;
  line["phase"] = "evaluation";
  line["step"] = state_.grpo_done;
  line["sft_step"] = state_.sft_done;
  PLEXRL_TRY(log_.write(line));
  return result;
}

// ---- files and end ----

Status Controller::write_checkpoint() {
  if (!checkpoint_->wanted()) return {};
  PLEXRL_ASSIGN(PendingFile model, checkpoint_->create_model(state_));
  PLEXRL_ASSIGN(const SaveResult saved, stream_->save_fd(model.fd(), SaveFormat::kCheckpoint));
  PLEXRL_TRY(checkpoint_->commit(model, state_, saved.sha256));
  last_checkpoint_ = state_.sft_done + state_.grpo_done;
  return checkpoint_->write_journal(state_, model_id_, stream_->next());
}

Status Controller::write_checkpoint_if_due() {
  const std::uint64_t now = state_.sft_done + state_.grpo_done;
  if (options_.checkpoint_every == 0 || now - last_checkpoint_ < options_.checkpoint_every)
    return {};
  return write_checkpoint();
}

Status Controller::stopped() {
  PLEXRL_TRY(write_checkpoint());
  const char* next = checkpoint_->wanted() ? "the checkpoint is written; go on with --resume"
                                           : "no --checkpoint was given";
  return error(Code::CANCELLED, "stopped by a signal after %llu steps; %s",
               static_cast<unsigned long long>(state_.grpo_done), next);
}

Result<SaveResult> Controller::save_result() {
  if (options_.save.empty()) {
    PLEXRL_ASSIGN(const UniqueFd scratch, scratch_file());
    return stream_->save_fd(scratch.get(), SaveFormat::kCheckpoint);
  }
  PLEXRL_ASSIGN(PendingFile file, PendingFile::create(options_.save));
  PLEXRL_ASSIGN(SaveResult saved, stream_->save_fd(file.fd(), options_.save_format));
  PLEXRL_TRY(file.publish());
  return saved;
}

Result<nlohmann::json> Controller::finish() {
  if (trained_here_ && !gradient_seen_)
    print_progress(
        "warning: every gradient was 0: the answers to each prompt were all rewarded alike");
  nlohmann::json held_out;
  if (options_.eval_prompts > 0) {
    PLEXRL_ASSIGN(const std::uint64_t version, stream_->publish());
    PLEXRL_ASSIGN(held_out, evaluate(version));
  }
  PLEXRL_TRY(write_checkpoint());
  if (options_.save.empty() && options_.summary.empty()) return summary(held_out, nullptr);
  PLEXRL_ASSIGN(const SaveResult saved, save_result());
  // The save has a number: with the journal's, a run of more steps would take its first op for
  // done.
  PLEXRL_TRY(checkpoint_->write_journal(state_, model_id_, stream_->next()));
  return summary(held_out, &saved);
}

nlohmann::json Controller::summary(const nlohmann::json& held_out, const SaveResult* saved) const {
  const auto& rewards = state_.rewards;
  const std::size_t few = std::min<std::size_t>(3, rewards.size());
  const bool whole = state_.first_known_step == 0;
  nlohmann::json document = {
      {"env", options_.env_command.empty() ? options_.environment : options_.env_command},
      {"base", options_.base},
      {"train", options_.train_mode},
      {"lora_rank", options_.lora_rank},
      {"seed", options_.seed},
      {"algo", options_.algorithm},
      {"loss", options_.loss},
      {"kl_coef", options_.kl_coefficient},
      {"max_staleness", options_.max_staleness},
      {"learning_rate", options_.learning_rate},
      {"sft_steps", state_.sft_done},
      {"steps", state_.grpo_done},
      {"reward_first", whole ? mean_of(rewards, 0, few) : nlohmann::json()},
      {"reward_last", mean_of(rewards, rewards.size() - few, few)},
      {"held_out", held_out},
      {"busy_s", state_.busy_s},
      {"wall_s", state_.wall_s},
      {"wait_s", state_.wait_s},
      {"busy_fraction",
       state_.wall_s > 0.0 ? nlohmann::json(state_.busy_s / state_.wall_s) : nlohmann::json()},
      {"tool_s", state_.tool_s},
      {"tool_simulated", state_.tool_s > 0.0},
      {"new_tokens", state_.new_tokens},
      {"max_logprob_drop", state_.max_logprob_drop}};
  if (saved != nullptr) {
    document["state_sha256"] = saved->sha256;
    document["model_step"] = saved->step;
  }
  return document;
}

}  // namespace plexrl::cli
