// SPDX-License-Identifier: Apache-2.0
// Rows grpo: steps and reward of a model that has the device to itself and is committed after every
// step, beside the next one. Rows commit: what that cost. Rows switch: the same steps again, two
// models by turns, beside raw copies of the bytes that a turn moves.
#include "gpu/grpo_run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "engine_torch/model_dir.h"
#include "gpu/raw_copy.h"
#include "gpu/raw_driver.h"

namespace plexrl::gpu {
namespace {

constexpr const char* kTokenizer =
    R"({"type":"char","alphabet":"0123456789+=>;ab?","vocab_size":32})";
constexpr std::uint64_t kShared = 100;  // number of a model that takes turns: this and its own
constexpr std::size_t kCommitSlot = 2;  // slots 0 and 1: where the two models are parked
constexpr std::size_t kSlots = 3;

class ScratchDir {
 public:
  explicit ScratchDir(const std::string& below) : path_(below + "/plexrl-grpo-XXXXXX") {
    made_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~ScratchDir() {
    std::error_code ignored;
    if (made_) std::filesystem::remove_all(path_, ignored);
  }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  [[nodiscard]] Status status() const {
    return made_ ? Status() : errno_error(Code::IO, errno, "make directory '%s'", path_.c_str());
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

// One of the two, with what its run alone gave.
struct Learner {
  std::uint64_t number = 0;
  std::size_t slot = 0;
  std::uint64_t hash = 0;  // after all steps
  std::vector<double> rewards, step_s;
};

double mean_of(const std::vector<double>& values, std::size_t first, std::size_t count) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
  return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), 0.0) /
         static_cast<double>(count);
}
// The first and the last steps, several because each draws other problems.
double early(const std::vector<double>& rewards) {
  return mean_of(rewards, 0, std::min<std::size_t>(3, rewards.size()));
}
double late(const std::vector<double>& rewards) {
  const std::size_t count = std::min<std::size_t>(3, rewards.size());
  return mean_of(rewards, rewards.size() - count, count);
}

class Experiment {
 public:
  Experiment(GpuRun& run, const GrpoRun& what) : run_(run), what_(what) {}

  [[nodiscard]] Status open(const std::string& directory);
  [[nodiscard]] Status train_alone(Learner& learner);
  // The commit of the last step against the state that was suspended: the same bits.
  [[nodiscard]] Status train_by_turns(std::array<Learner, 2>& learners);
  [[nodiscard]] Status check_rewards(const std::array<Learner, 2>& learners) const;

 private:
  [[nodiscard]] Status train_committing(Trainer& trainer, Learner& learner);
  [[nodiscard]] Status turn(Learner& in, const Learner* out, MoveCost& cost);
  [[nodiscard]] Status report_switch(const std::vector<MoveCost>& turns);
  void report_alone(const Learner& learner, const LocalEngine::CommitCost& before);

  GpuRun& run_;
  const GrpoRun& what_;
  std::unique_ptr<LocalEngine> engine_;
  bool commits_match_ = true;
};

Status Experiment::open(const std::string& directory) {
  PLEXRL_TRY(model::init_model_dir(directory, model::format_model_config(what_.config), kTokenizer,
                                   /*seed=*/7));
  EngineSetup setup;
  setup.device = what_.device;
  setup.driver = what_.driver;
  setup.library = run_.options.library;
  setup.base_dir = directory;
  setup.chunk_bytes = what_.chunk_bytes;
  setup.slots = kSlots;
  const std::uint64_t positions = 7 + cli::SortEnvironment().max_answer_chars();
  setup.kv_bytes = positions * what_.plan.prompts * what_.plan.samples *
                   model::kv_bytes_per_position(what_.config);
  PLEXRL_ASSIGN(engine_, LocalEngine::open(setup));
  return {};
}

// Leaves the warm start in the learner's slot: the run by turns begins there.
Status Experiment::train_alone(Learner& learner) {
  PLEXRL_ASSIGN(auto trainer,
                Trainer::make(*engine_, what_.plan, learner.number, /*seed=*/learner.number));
  PLEXRL_TRY(engine_->create(learner.number).status());
  PLEXRL_TRY(trainer.warm_start());
  PLEXRL_TRY(engine_->suspend(learner.number, learner.slot).status());
  engine_->branch(learner.number, kShared + learner.number);
  PLEXRL_TRY(engine_->resume(learner.number, learner.slot).status());
  const LocalEngine::CommitCost before = engine_->commits();
  PLEXRL_TRY(train_committing(trainer, learner));
  report_alone(learner, before);
  PLEXRL_TRY(engine_->end_commit());
  PLEXRL_ASSIGN(const std::uint64_t committed, engine_->hash(kCommitSlot));
  PLEXRL_TRY(engine_->suspend(learner.number, kCommitSlot).status());
  PLEXRL_ASSIGN(learner.hash, engine_->hash(kCommitSlot));
  PLEXRL_TRY(engine_->forget(learner.number));
  if (committed == learner.hash) return {};
  return error(Code::CORRUPT, "the last commit differs from the state that was suspended");
}

Status Experiment::train_committing(Trainer& trainer, Learner& learner) {
  for (std::uint32_t step = 0; step < what_.plan.steps; ++step) {
    const double start = seconds_now();
    PLEXRL_ASSIGN(const double reward, trainer.grpo_step(step));
    learner.step_s.push_back(seconds_now() - start);
    learner.rewards.push_back(reward);
    PLEXRL_TRY(engine_->begin_commit(trainer.model(), kCommitSlot));
  }
  return {};
}

void Experiment::report_alone(const Learner& learner, const LocalEngine::CommitCost& before) {
  const LocalEngine::CommitCost& now = engine_->commits();
  const double all = std::accumulate(learner.step_s.begin(), learner.step_s.end(), 0.0);
  const std::string_view size = what_.name;
  run_.row("grpo", {{"size", size},
                    {"model", learner.number},
                    {"parameters", engine_->parameters()},
                    {"steps", std::uint64_t{learner.rewards.size()}},
                    {"reward_first", early(learner.rewards)},
                    {"reward_last", late(learner.rewards)},
                    {"step_s", median(learner.step_s)}});
  const auto count = static_cast<double>(now.count - before.count);
  if (count == 0) return;
  run_.row("commit", {{"size", size},
                      {"model", learner.number},
                      {"commits", now.count - before.count},
                      {"bytes", (now.bytes - before.bytes) / (now.count - before.count)},
                      {"copy_s", (now.copy_s - before.copy_s) / count},
                      {"commit_stall_s", (now.stall_s - before.stall_s) / count},
                      {"stall_share", (now.stall_s - before.stall_s) / all}});
}

Status Experiment::turn(Learner& in, const Learner* out, MoveCost& cost) {
  if (out != nullptr) {
    PLEXRL_ASSIGN(const MoveCost left, engine_->suspend(kShared + out->number, out->slot));
    cost.seconds += left.seconds;
    cost.bytes_out = left.bytes_out;
  }
  PLEXRL_ASSIGN(const MoveCost came, engine_->resume(kShared + in.number, in.slot));
  cost.seconds += came.seconds;
  cost.bytes_in = came.bytes_in;
  return {};
}

Status Experiment::train_by_turns(std::array<Learner, 2>& learners) {
  std::vector<Trainer> trainers;
  for (const Learner& learner : learners) {
    PLEXRL_ASSIGN(auto trainer, Trainer::make(*engine_, what_.plan, kShared + learner.number,
                                              /*seed=*/learner.number));
    trainers.push_back(std::move(trainer));
  }
  std::vector<MoveCost> turns;
  const Learner* resident = nullptr;
  for (std::uint32_t step = 0; step < what_.plan.steps; ++step)
    for (std::size_t i = 0; i < learners.size(); ++i) {
      MoveCost cost;
      PLEXRL_TRY(turn(learners[i], resident, cost));
      if (resident != nullptr) turns.push_back(cost);
      resident = &learners[i];
      PLEXRL_ASSIGN(const double reward, trainers[i].grpo_step(step));
      if (reward != learners[i].rewards[step])
        return error(Code::CORRUPT, "model %zu step %u: reward %.17g by turns, %.17g alone", i,
                     step, reward, learners[i].rewards[step]);
    }
  PLEXRL_TRY(report_switch(turns));
  PLEXRL_TRY(engine_->suspend(kShared + resident->number, resident->slot).status());
  for (const Learner& learner : learners) {
    PLEXRL_ASSIGN(const std::uint64_t hash, engine_->hash(learner.slot));
    if (hash != learner.hash)
      return error(Code::CORRUPT, "model %llu: state %016llx by turns, %016llx alone",
                   static_cast<unsigned long long>(learner.number),
                   static_cast<unsigned long long>(hash),
                   static_cast<unsigned long long>(learner.hash));
  }
  return {};
}

// Nothing of a turn is hidden here: all of it is on the critical path.
Status Experiment::report_switch(const std::vector<MoveCost>& turns) {
  std::vector<double> seconds;
  for (const MoveCost& turn : turns) seconds.push_back(turn.seconds);
  const MoveCost& moved = turns.back();
  PLEXRL_ASSIGN(const double raw,
                raw_copy_seconds(run_.options, what_.driver, moved.bytes_out, moved.bytes_in));
  const double exposed = median(seconds);
  run_.row("switch", {{"size", std::string_view(what_.name)},
                      {"parameters", engine_->parameters()},
                      {"switches", std::uint64_t{turns.size()}},
                      {"bytes", moved.bytes_out + moved.bytes_in},
                      {"switch_exposed_s", exposed},
                      {"switch_first_s", seconds.front()},
                      {"raw_copy_s", raw},
                      {"exposed_ratio", exposed / raw}});
  return {};
}

Status Experiment::check_rewards(const std::array<Learner, 2>& learners) const {
  for (const Learner& learner : learners)
    if (what_.reward_must_rise && !(late(learner.rewards) > early(learner.rewards)))
      return error(Code::INTERNAL, "model %llu: reward %g at first, %g at last",
                   static_cast<unsigned long long>(learner.number), early(learner.rewards),
                   late(learner.rewards));
  return {};
}

}  // namespace

void measure_grpo(GpuRun& run, const GrpoRun& what, const std::string& scratch) {
  const std::string name = std::string("grpo ") + what.name + ": ";
  const ScratchDir directory(scratch);
  Experiment experiment(run, what);
  Status status = directory.status();
  const auto step = [&](const char* check, const auto& body) {
    const double start = seconds_now();
    if (status.ok()) status = body();
    run.count(name + check, status);
    std::fprintf(stderr, "        %.1f s\n", seconds_now() - start);
  };
  std::array<Learner, 2> learners;
  learners[0].number = 1;
  learners[1] = {2, 1, 0, {}, {}};
  step("open", [&] { return experiment.open(directory.path()); });
  step("alone, the last commit is the state", [&]() -> Status {
    for (Learner& learner : learners) PLEXRL_TRY(experiment.train_alone(learner));
    return {};
  });
  step("by turns, the same bits as alone", [&] { return experiment.train_by_turns(learners); });
  step("reward rises", [&] { return experiment.check_rewards(learners); });
}

}  // namespace plexrl::gpu
