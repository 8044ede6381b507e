// SPDX-License-Identifier: Apache-2.0
// --max-staleness: the rollout of a step runs while the step before it is trained.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <mutex>

#include "cli/train/sort_environment.h"
#include "unit/cli/train/controller_fixture.h"
#include "unit/cli/train/env_script.h"

namespace plexrl::cli {
namespace {

// When the training of each step began, against the rollouts.
class MeetingService final : public FakeService {
 public:
  std::vector<std::size_t> rollouts_asked;  // when a training began

  Result<FuturePtr<LossResult>> forward_backward(const LossRequest& loss,
                                                 const std::vector<Datum>& data) override {
    if (losses.size() % 2 == 0) {  // of two minibatches the first
      const std::lock_guard lock(mutex_);
      ++trainings_;
      rollouts_asked.push_back(requests.size());
      changed_.notify_all();
    }
    return FakeService::forward_backward(loss, data);
  }
  // False: not in 20 seconds, which is the end of a failing test.
  bool wait_for_trainings(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return trainings_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t trainings_ = 0;
};

// Gives no rewards for the rollout of step k + 1 before the training of step k has begun: a run
// goes through only when both are under way together.
class MeetingEnvironment final : public Environment {
 public:
  explicit MeetingEnvironment(MeetingService& service) : service_(service) {}
  bool met = true;

  std::uint32_t max_answer_chars() const override { return sort_.max_answer_chars(); }
  const std::string& stop_text() const override { return sort_.stop_text(); }
  Problem training_problem(ProblemSource& source) override {
    return sort_.training_problem(source);
  }
  Problem held_out_problem(Random& random) override { return sort_.held_out_problem(random); }
  Result<std::vector<double>> score(const std::vector<Attempt>& attempts) override {
    if (met) met = service_.wait_for_trainings(rollouts_++);
    return sort_.score(attempts);
  }

 private:
  MeetingService& service_;
  SortEnvironment sort_;
  std::size_t rollouts_ = 0;
};

// A signal comes in rollout number `rollout`, from 1.
class StoppingService final : public FakeService {
 public:
  StoppingService(std::atomic<bool>& stop, std::size_t rollout) : stop_(stop), rollout_(rollout) {}
  Result<FuturePtr<std::vector<Sequence>>> generate(const GenerateRequest& request) override {
    if (requests.size() + 1 == rollout_) stop_ = true;
    return FakeService::generate(request);
  }

 private:
  std::atomic<bool>& stop_;
  const std::size_t rollout_;
};

// Answers no rollout from number `rollout` on.
class FailingService final : public FakeService {
 public:
  explicit FailingService(std::size_t rollout) : rollout_(rollout) {}
  Result<FuturePtr<std::vector<Sequence>>> generate(const GenerateRequest& request) override {
    if (requests.size() + 1 >= rollout_) return error(Code::INTERNAL, "no answer");
    return FakeService::generate(request);
  }

 private:
  const std::size_t rollout_;
};

class StalenessTest : public ControllerTest {
 protected:
  void SetUp() override {
    ControllerTest::SetUp();
    options_.max_staleness = 1;
  }
  std::vector<std::uint64_t> recorded(const char* name) const {
    std::vector<std::uint64_t> values;
    std::ifstream file(options_.log);
    for (std::string line; std::getline(file, line);)
      values.push_back(nlohmann::json::parse(line).at(name).get<std::uint64_t>());
    return values;
  }
};

TEST_F(StalenessTest, AStepIsTrainedWhileTheRolloutOfTheNextWaitsForItsEnvironment) {
  MeetingService meeting;
  MeetingEnvironment environment(meeting);
  auto log = TrainLog::open("", false);
  testing::internal::CaptureStderr();
  Controller controller(options_, meeting, environment, *log, system_clock(), stop_);
  const auto summary = controller.run();
  progress_ = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_TRUE(environment.met);
  EXPECT_EQ((*summary)["max_staleness"], 1);
  EXPECT_EQ(meeting.rollouts_asked, (std::vector<std::size_t>{2, 3, 4, 5, 6, 6}))
      << "the rollout has the device first, so that its wait is where the training is";
  FakeService apart;
  ASSERT_TRUE(run(apart).has_value());
  EXPECT_EQ(meeting.sha(), apart.sha()) << "how they meet changes nothing";
}

TEST_F(StalenessTest, ARolloutSamplesTheVersionBeforeTheOneThatItsStepPublishes) {
  options_.log = path("log");
  FakeService service;
  ASSERT_TRUE(run(service).has_value());
  // A step is a publish and two of forward_backward and optim_step: versions 1, 6, 11 ...
  const std::vector<std::uint64_t> versions{1, 1, 6, 11, 16, 21};
  EXPECT_EQ(recorded("version"), versions);
  EXPECT_EQ(recorded("staleness"), (std::vector<std::uint64_t>{0, 1, 1, 1, 1, 1}));
  ASSERT_EQ(service.requests.size(), 6U) << "nothing is drawn that is not trained on";
  for (std::size_t step = 0; step < 6; ++step)
    EXPECT_EQ(service.requests[step].version, versions[step]);
}

TEST_F(StalenessTest, WithNoneARolloutSamplesTheVersionOfItsStep) {
  options_.max_staleness = 0;
  options_.log = path("log");
  FakeService service;
  ASSERT_TRUE(run(service).has_value());
  EXPECT_EQ(recorded("version"), (std::vector<std::uint64_t>{1, 6, 11, 16, 21, 26}));
  EXPECT_EQ(recorded("staleness"), std::vector<std::uint64_t>(6, 0));
}

TEST_F(StalenessTest, MoreThanOneIsAsOne) {
  FakeService none, one, more;
  ASSERT_TRUE(run(one).has_value());
  options_.max_staleness = 5;
  ASSERT_TRUE(run(more).has_value());
  options_.max_staleness = 0;
  ASSERT_TRUE(run(none).has_value());
  EXPECT_EQ(more.sha(), one.sha());
  EXPECT_NE(none.sha(), one.sha());
}

// What decides over rollouts and over training, in any combination.
TEST_F(StalenessTest, EveryRoundOfARolloutSamplesOneVersionWhateverElseIsAskedFor) {
  options_.algorithm = "dapo";
  options_.overlong_buffer = 3;
  options_.kl_coefficient = 0.1;
  options_.eval_every = 2;
  options_.eval_prompts = 8;
  options_.log = path("log");
  FakeService service;
  service.train_mode = "lora";
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  // Of step 0: an evaluation (sampled and greedy) and a rollout of version 1. Then each step draws
  // for the next on its own version, after an evaluation of it every other time.
  std::size_t request = 0, resampled = 0;
  const auto expect = [&](std::size_t count, std::uint64_t version) {
    for (std::size_t i = 0; i < count; ++i, ++request)
      EXPECT_EQ(service.requests.at(request).version, version) << "request " << request;
  };
  const auto all = records();
  for (std::size_t step = 0; step < all.size(); ++step) {
    const std::uint64_t version = step == 0 ? 1 : 1 + 5 * (step - 1);
    const auto rounds = all[step]["resample_rounds"].get<std::size_t>();
    if (step == 0 || (step > 1 && (step - 1) % 2 == 0)) expect(2, version);
    expect(rounds + 1, version);
    resampled += rounds;
  }
  expect(2, 31);  // the end
  EXPECT_EQ(request, service.requests.size());
  EXPECT_GT(resampled, 0U);
}

// A requeued job on the same node: the controller died after any accepted op. The rollout that had
// been drawn on a version that is gone comes from the journal.
TEST_F(StalenessTest, ACutAtEveryTrainingOpGivesTheSameCurve) {
  options_.algorithm = "dapo";
  options_.sft_steps = 2;
  options_.sft_batch = 4;
  options_.steps = 4;
  FakeService straight;
  ASSERT_TRUE(run(straight).has_value());
  for (std::uint64_t cut = 1; cut < 25; ++cut) {
    TrainOptions options = options_;
    options.checkpoint_every = 3;
    options.checkpoint = path(("checkpoint" + std::to_string(cut)).c_str());
    FakeService service;
    service.max_next_seq = cut;
    EXPECT_EQ(run(service, options).error().code(), Code::UNAVAILABLE);
    service.max_next_seq = UINT64_MAX;
    options.resume = true;
    const auto summary = run(service, options);
    ASSERT_TRUE(summary.has_value()) << cut << ": " << summary.error().to_string();
    EXPECT_EQ(service.sha(), straight.sha()) << "cut before op " << cut;
  }
}

// Neither is a step of --checkpoint-every.
TEST_F(StalenessTest, AStopAndResumeElsewhereGiveTheSameCurve) {
  options_.log = path("straight");
  FakeService straight;
  ASSERT_TRUE(run(straight).has_value());
  const auto expected = records();
  options_.log = path("log");
  options_.checkpoint = path("checkpoint");
  for (const std::size_t requests : {1U, 3U, 4U}) {
    std::filesystem::remove(options_.checkpoint);
    StoppingService stopped(stop_, requests);
    options_.resume = false;
    EXPECT_EQ(run(stopped).error().code(), Code::CANCELLED);
    stop_ = false;
    options_.resume = true;
    FakeService elsewhere;
    elsewhere.model_id = 99;
    const auto summary = run(elsewhere);
    ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
    EXPECT_EQ(elsewhere.sha(), straight.sha()) << "stopped in rollout " << requests;
    EXPECT_EQ(records(), expected) << "stopped in rollout " << requests;
  }
}

TEST_F(StalenessTest, EpisodesOfACommandRunAheadToo) {
  options_.env_command = worker_script(R"(
while next; do case $line in *reset*) turn=0; say '"observation":"21>"';;
*) turn=$((turn + 1))
  if [ $turn = 1 ]; then say '"observation":"3>","reward":0.5,"done":false'
  else say '"reward":1,"done":true'; fi;; esac; done)");
  options_.env_workers = 3;
  options_.max_new_tokens = 8;
  options_.prompts = options_.samples = 2;
  options_.steps = 3;
  options_.log = path("log");
  FakeService straight, elsewhere;
  const auto summary = run(straight);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(recorded("staleness"), (std::vector<std::uint64_t>{0, 1, 1}));
  const auto expected = records();
  EXPECT_EQ(expected.at(0)["reward"], 1.5);
  // What the environment said stays out of the loss behind a checkpoint too.
  options_.checkpoint = path("checkpoint");
  StoppingService stopped(stop_, 2);
  EXPECT_EQ(run(stopped).error().code(), Code::CANCELLED);
  stop_ = false;
  options_.resume = true;
  elsewhere.model_id = 99;
  ASSERT_TRUE(run(elsewhere).has_value());
  EXPECT_EQ(elsewhere.sha(), straight.sha());
}

TEST_F(StalenessTest, ALostModelIsLoadedWithItsRollout) {
  FakeService straight;
  ASSERT_TRUE(run(straight).has_value());
  options_.checkpoint = path("checkpoint");
  options_.checkpoint_every = 2;
  FakeService service;
  service.max_next_seq = 25;
  EXPECT_FALSE(run(service).has_value());
  service.max_next_seq = UINT64_MAX;
  service.lose_next_op = true;
  options_.resume = true;
  const auto summary = run(service);
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(service.sha(), straight.sha());
}

TEST_F(StalenessTest, WithoutACheckpointAModelWithAPastIsRefused) {
  FakeService service;
  service.max_next_seq = 9;
  EXPECT_EQ(run(service).error().code(), Code::UNAVAILABLE);
  service.max_next_seq = UINT64_MAX;
  options_.requeued = true;
  const auto again = run(service);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(again.error().text().find("--max-staleness"), std::string::npos);
}

// The rollout fails beside a training that goes well, and the other way round; then both.
TEST_F(StalenessTest, AFailureOfEitherSideEndsTheRunOnce) {
  for (const auto& [requests, ops] :
       std::vector<std::pair<std::size_t, std::uint64_t>>{{3, UINT64_MAX}, {99, 8}, {2, 3}}) {
    FailingService service(requests);
    service.max_next_seq = ops;
    const auto result = run(service);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), ops == UINT64_MAX ? Code::INTERNAL : Code::UNAVAILABLE);
    EXPECT_EQ(result.error().text(), ops == UINT64_MAX ? "no answer" : "cut");
    EXPECT_EQ(service.next_seq, ops == UINT64_MAX ? 11U : ops)
        << "what was under way beside the failure is over";
  }
}

TEST_F(StalenessTest, ACheckpointWhoseRolloutIsNotOfTheRunIsRefused) {
  options_.checkpoint = path("checkpoint");
  StoppingService stopped(stop_, 2);
  EXPECT_EQ(run(stopped).error().code(), Code::CANCELLED);
  stop_ = false;
  options_.resume = true;
  std::ifstream file(options_.checkpoint);
  const auto whole = nlohmann::json::parse(file);
  using Change = void (*)(nlohmann::json&);
  const Change changes[] = {
      [](nlohmann::json& drawn) { drawn.erase("version"); },
      [](nlohmann::json& drawn) { drawn["policy_step"] = 1000; },
      [](nlohmann::json& drawn) { drawn["batch"]["prompts"].erase(0); },
      [](nlohmann::json& drawn) { drawn["batch"]["prompts"][0] = nlohmann::json::array(); },
      [](nlohmann::json& drawn) { drawn["batch"]["rewards"].erase(0); },
      [](nlohmann::json& drawn) { drawn["batch"]["rewards"][0] = "much"; },
      [](nlohmann::json& drawn) { drawn["batch"]["rows"].erase(0); },
      [](nlohmann::json& drawn) { drawn["batch"]["rows"][0] = 1; },
      [](nlohmann::json& drawn) { drawn["batch"]["rows"][0]["tokens"].erase(0); },
      [](nlohmann::json& drawn) { drawn["batch"]["rows"][0]["own"] = "01"; },
      [](nlohmann::json& drawn) { drawn = 5; }};
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    auto broken = whole;
    ASSERT_TRUE(broken["state"].contains("drawn"));
    changes[i](broken["state"]["drawn"]);
    std::ofstream(options_.checkpoint) << broken;
    FakeService elsewhere;
    elsewhere.model_id = 99;
    EXPECT_EQ(run(elsewhere).error().code(), Code::CORRUPT) << i;
  }
}

}  // namespace
}  // namespace plexrl::cli
