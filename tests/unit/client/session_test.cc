// SPDX-License-Identifier: Apache-2.0
// The library as a program sees it, through plexrl.hpp, against a scripted service.
#include <fcntl.h>
#include <sys/mman.h>

#include <numeric>

#include "../../fakes/fake_service.h"
#include "plexrl/plexrl.hpp"

namespace plexrl {
namespace {

using fakes::FakeService;
using fakes::Verdict;
using std::chrono::milliseconds;

class SessionTest : public ::testing::Test {
 protected:
  [[nodiscard]] Session connect(milliseconds timeout = milliseconds(5000)) {
    return Session::connect({service_.socket(), "token", "test", timeout});
  }
  // What does the call throw?
  template <class Call>
  static plexrl_status status_of(Call call) {
    try {
      call();
      return PLEXRL_OK;
    } catch (const Error& e) {
      return e.code();
    }
  }
  FakeService service_;
};

GenerateOptions prompt_of(std::int32_t token) {
  GenerateOptions options;
  options.prompts = {{token}};
  options.max_new_tokens = 4;
  return options;
}

TEST_F(SessionTest, InfoIsTheGrants) {
  const Session session = connect();
  const SessionInfo info = session.info();
  EXPECT_EQ(info.job_id, 99U);
  EXPECT_EQ(info.node, "node1");
  EXPECT_EQ(info.bases, (std::vector<std::string>{"tiny", "other"}));
  EXPECT_EQ(info.train_mode, "lora");
}

TEST_F(SessionTest, ModelTakesFromTheGrantWhatIsLeftOut) {
  const Session session = connect();
  const Model model = session.create_model({});
  const ModelInfo info = model.info();
  EXPECT_EQ(info.base, "tiny");
  EXPECT_EQ(info.lora_rank, 8U);
  EXPECT_EQ(info.next_seq, 1U);
  EXPECT_EQ(info.tokenizer, "{}");
}

TEST_F(SessionTest, EveryKindOfOperationReturnsItsResult) {
  const Session session = connect();
  const Model model = session.create_model({});
  const auto sequences = model.generate(prompt_of(7)).get();
  ASSERT_EQ(sequences.size(), 1U);
  EXPECT_EQ(sequences[0].tokens, Tokens{7});
  EXPECT_TRUE(sequences[0].stopped);
  EXPECT_EQ(model.logprobs(0, {{1, 2, 3}}).get(),
            (std::vector<std::vector<float>>{{-1.0F, -2.0F}}));
  ForwardBackwardOptions train;
  train.data = {{{1}, {2}, {1.0F}, {}, {}}};
  const TrainResult trained = model.forward_backward(train).get();
  EXPECT_DOUBLE_EQ(trained.loss_sum, 2.5);
  EXPECT_FLOAT_EQ(static_cast<float>(trained.entropy_mean), 0.01F);  // the fake says beta
  train.beta = 0;                                                    // a value, not the default
  EXPECT_EQ(model.forward_backward(train).get().entropy_mean, 0.0);
  EXPECT_EQ(model.optim_step({.learning_rate = 1e-3}).get().step, 3U);
  EXPECT_EQ(model.publish().get().version, 4U);
  EXPECT_EQ(model.save("name").get().sha256, "abc");
  EXPECT_EQ(model.load("name").get().step, 0U);
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(SessionTest, ReadersRefuseAnOperationOfAnotherKind) {
  const Session session = connect();
  const Model model = session.create_model({});
  const auto op = model.publish();
  op.wait();
  const plexrl_sequence* sequences = nullptr;
  std::size_t count = 0;
  plexrl_error error{};
  EXPECT_EQ(plexrl_op_get_sequences(op.handle(), &sequences, &count, &error),
            PLEXRL_INVALID_ARGUMENT);
  EXPECT_EQ(sequences, nullptr);
  EXPECT_STREQ(error.text, "the operation has no sequences: it is of another kind");
}

TEST_F(SessionTest, TimingComesWithTheReply) {
  const Session session = connect();
  const auto op = session.create_model({}).generate(prompt_of(1));
  op.wait();
  EXPECT_EQ(op.timing().run.count(), 77);
}

TEST_F(SessionTest, WaitTimesOutAndTheOperationGoesOn) {
  service_.script([](const auto&, std::size_t) { return Verdict::kHold; });
  const Session session = connect();
  const auto op = session.create_model({}).generate(prompt_of(3));
  EXPECT_FALSE(op.wait_for(milliseconds(20)));
  EXPECT_FALSE(op.done());
  EXPECT_EQ(status_of([&] { (void)op.timing(); }), PLEXRL_UNAVAILABLE);
  service_.release();
  EXPECT_TRUE(op.wait_for(milliseconds(2000)));
  EXPECT_EQ(op.get()[0].tokens, Tokens{3});
}

TEST_F(SessionTest, CancelEndsAHeldOperation) {
  service_.script([](const auto&, std::size_t) { return Verdict::kHold; });
  const Session session = connect();
  const auto op = session.create_model({}).generate(prompt_of(3));
  EXPECT_FALSE(op.wait_for(milliseconds(10)));
  op.cancel();
  EXPECT_EQ(status_of([&] { op.wait(); }), PLEXRL_CANCELLED);
}

TEST_F(SessionTest, ExplainIsTheServicesSentence) {
  service_.script([](const auto&, std::size_t) { return Verdict::kHold; });
  const Session session = connect();
  const auto op = session.create_model({}).generate(prompt_of(3));
  EXPECT_EQ(op.explain(), "It waits for job 7.");
}

TEST_F(SessionTest, FailureCarriesTheServicesText) {
  service_.script([](const auto&, std::size_t) { return Verdict::kFail; });
  const Session session = connect();
  const auto op = session.create_model({}).publish();
  try {
    op.wait();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), PLEXRL_INVALID_ARGUMENT);
    EXPECT_STREQ(e.what(), "INVALID_ARGUMENT: the script says no");
    EXPECT_FALSE(e.retryable());
  }
}

TEST_F(SessionTest, BusySamplingIsTheCallersBusiness) {
  service_.script([](const auto&, std::size_t) { return Verdict::kBusy; });
  const Session session = connect();
  const auto op = session.create_model({}).generate(prompt_of(1));
  try {
    op.wait();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), PLEXRL_BUSY);
    EXPECT_EQ(e.retry_after(), milliseconds(20));
  }
}

TEST_F(SessionTest, SamplingThatARestartingServiceRefusesIsSubmittedAgain) {
  service_.script([](const auto&, std::size_t nth) {
    return nth <= 2 ? Verdict::kUnavailable : Verdict::kAnswer;
  });
  const Session session = connect();
  session.create_model({}).generate(prompt_of(1)).wait();
  EXPECT_EQ(service_.submitted().size(), 3U);
}

TEST_F(SessionTest, SamplingThatStaysRefusedEndsAfterTheTimeout) {
  service_.script([](const auto&, std::size_t) { return Verdict::kUnavailable; });
  const Session session = connect(milliseconds(60));
  EXPECT_EQ(status_of([&] { session.create_model({}).generate(prompt_of(1)).wait(); }),
            PLEXRL_UNAVAILABLE);
}

TEST_F(SessionTest, RefusedTrainingIsSubmittedAgainUnderItsNumber) {
  service_.script([](const auto&, std::size_t nth) {
    return nth == 1 ? Verdict::kBusy : nth == 2 ? Verdict::kUnavailable : Verdict::kAnswer;
  });
  const Session session = connect();
  const Model model = session.create_model({});
  const auto op = model.optim_step({.learning_rate = 1e-3});
  EXPECT_EQ(op.get().step, 1U);
  EXPECT_EQ(service_.submitted().size(), 3U);
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1}));
}

TEST_F(SessionTest, TrainingThatStaysRefusedEndsAfterTheTimeoutAndTheNumberIsUsedAgain) {
  service_.script([](const auto&, std::size_t) { return Verdict::kUnavailable; });
  const Session session = connect(milliseconds(600));
  const Model model = session.create_model({});
  EXPECT_EQ(status_of([&] { model.publish().wait(); }), PLEXRL_UNAVAILABLE);
  service_.script(nullptr);
  model.publish().wait();
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1}));
}

TEST_F(SessionTest, LostBeforeAcceptanceIsExecutedOnce) {
  service_.script([](const auto&, std::size_t nth) {
    return nth == 1 ? Verdict::kDropBefore : Verdict::kAnswer;
  });
  const Session session = connect();
  EXPECT_EQ(session.create_model({}).optim_step({.learning_rate = 1}).get().step, 1U);
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(service_.hellos(), 2U);
}

TEST_F(SessionTest, LostAfterExecutionIsNotExecutedTwice) {
  service_.script([](const auto&, std::size_t nth) {
    return nth == 2 ? Verdict::kDropAfter : Verdict::kAnswer;
  });
  const Session session = connect();
  const Model model = session.create_model({});
  for (std::uint64_t step = 1; step <= 4; ++step)
    EXPECT_EQ(model.optim_step({.learning_rate = 1}).get().step, step);
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(service_.submitted().size(), 5U);
}

TEST_F(SessionTest, SamplingIsRepeatedUnderItsNumber) {
  service_.script([](const auto&, std::size_t nth) {
    return nth == 1 ? Verdict::kDropAfter : Verdict::kAnswer;
  });
  const Session session = connect();
  EXPECT_EQ(session.create_model({}).generate(prompt_of(9)).get()[0].tokens, Tokens{9});
  const auto seen = service_.submitted();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].number, seen[1].number);
  EXPECT_EQ(seen[0].sampling_client, seen[1].sampling_client);
  EXPECT_NE(seen[0].sampling_client, 0U);
}

TEST_F(SessionTest, ARestartedServiceIsFoundAgainWithAllThatIsUnderWay) {
  service_.script(
      [](const auto&, std::size_t nth) { return nth <= 8 ? Verdict::kHold : Verdict::kAnswer; });
  const Session session = connect();
  const Model model = session.create_model({});
  std::vector<Future<OptimResult>> training;
  std::vector<Future<std::vector<Sequence>>> sampling;
  for (std::int32_t i = 0; i < 4; ++i) {
    training.push_back(model.optim_step({.learning_rate = 1}));
    sampling.push_back(model.generate(prompt_of(i)));
  }
  while (service_.submitted().size() < 8) std::this_thread::sleep_for(milliseconds(1));
  service_.stop();
  std::this_thread::sleep_for(milliseconds(30));
  service_.start();
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(training[i].get().step, i + 1);
  for (std::int32_t i = 0; i < 4; ++i)
    EXPECT_EQ(sampling[static_cast<std::size_t>(i)].get()[0].tokens, Tokens{i});
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1, 2, 3, 4}));
}

TEST_F(SessionTest, AServiceThatDoesNotComeBackEndsOperationsAndIsTriedAgainLater) {
  service_.script([](const auto&, std::size_t) { return Verdict::kHold; });
  const Session session = connect(milliseconds(100));
  const Model model = session.create_model({});
  const auto op = model.publish();
  while (service_.executed().empty()) std::this_thread::sleep_for(milliseconds(1));
  service_.stop();
  EXPECT_EQ(status_of([&] { op.wait(); }), PLEXRL_UNAVAILABLE);
  service_.start();
  service_.script(nullptr);
  model.publish().wait();  // number 1 was taken, so this is 2
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(SessionTest, AServiceThatForgotTheModelIsNotTrainedOn) {
  service_.script(
      [](const auto&, std::size_t nth) { return nth >= 3 ? Verdict::kHold : Verdict::kAnswer; });
  const Session session = connect();
  const Model model = session.create_model({});
  model.publish().wait();
  model.publish().wait();
  const auto op = model.publish();
  while (service_.submitted().size() < 3) std::this_thread::sleep_for(milliseconds(1));
  service_.stop();
  service_.forget();
  service_.start();
  EXPECT_EQ(status_of([&] { op.wait(); }), PLEXRL_LOST);
}

TEST_F(SessionTest, ATokenThatEndedEndsTheSession) {
  service_.accept_token("token");
  service_.script([](const auto&, std::size_t) { return Verdict::kHold; });
  const Session session = connect();
  const Model model = session.create_model({});
  const auto op = model.generate(prompt_of(1));
  service_.accept_token("another");
  service_.stop();
  service_.start();
  EXPECT_EQ(status_of([&] { op.wait(); }), PLEXRL_AUTH);
  EXPECT_EQ(status_of([&] { (void)model.generate(prompt_of(1)); }), PLEXRL_AUTH);
}

TEST_F(SessionTest, WrongTokenAtFirst) {
  service_.accept_token("right");
  EXPECT_EQ(status_of([&] { (void)connect(); }), PLEXRL_AUTH);
}

TEST_F(SessionTest, NoServiceIsUnavailableAfterTheTimeout) {
  service_.stop();
  EXPECT_EQ(status_of([&] { (void)connect(milliseconds(100)); }), PLEXRL_UNAVAILABLE);
}

TEST_F(SessionTest, ResultOfAnotherKindIsAProtocolError) {
  service_.script([](const auto&, std::size_t) { return Verdict::kWrongKind; });
  const Session session = connect();
  const auto op = session.create_model({}).generate(prompt_of(1));
  EXPECT_EQ(status_of([&] { op.wait(); }), PLEXRL_PROTOCOL);
}

TEST_F(SessionTest, GarbageFromTheServiceMeansANewConnection) {
  service_.script(
      [](const auto&, std::size_t nth) { return nth == 1 ? Verdict::kGarbage : Verdict::kAnswer; });
  const Session session = connect();
  EXPECT_EQ(session.create_model({}).generate(prompt_of(5)).get()[0].tokens, Tokens{5});
  EXPECT_EQ(service_.hellos(), 2U);
}

TEST_F(SessionTest, TwoThreadsKeepOneStreamWithoutGaps) {
  const Session session = connect();
  const Model model = session.create_model({});
  const auto work = [&] {
    for (int i = 0; i < 200; ++i) model.publish().wait();
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
  std::vector<std::uint64_t> expected(400);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(service_.executed(), expected);
}

TEST_F(SessionTest, TwoHandlesOfOneModelShareItsNumbers) {
  const Session session = connect();
  const Model a = session.create_model({.name = "m"}), b = session.create_model({.name = "m"});
  a.publish().wait();
  b.publish().wait();
  a.publish().wait();
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(SessionTest, TooLargeRequestTakesNoNumber) {
  const Session session = connect();
  const Model model = session.create_model({});
  ForwardBackwardOptions train;
  const std::size_t n = 200'000;
  train.data = {{Tokens(n), Tokens(n), std::vector<float>(n), {}, {}}};
  EXPECT_EQ(status_of([&] { (void)model.forward_backward(train); }), PLEXRL_TOO_LARGE);
  model.publish().wait();
  EXPECT_EQ(service_.executed(), (std::vector<std::uint64_t>{1}));
}

TEST_F(SessionTest, OutstandingOperationsAreBounded) {
  service_.script([](const auto&, std::size_t) { return Verdict::kHold; });
  const Session session = connect();
  const Model model = session.create_model({});
  std::vector<Future<std::vector<Sequence>>> ops;
  plexrl_status status = PLEXRL_OK;
  while (status == PLEXRL_OK && ops.size() < 5000)
    status = status_of([&] { ops.push_back(model.generate(prompt_of(1))); });
  EXPECT_EQ(status, PLEXRL_BUSY);
  EXPECT_EQ(ops.size(), 4096U);
}

TEST_F(SessionTest, DisconnectCancelsSamplingAndEndsHandles) {
  service_.script([](const auto&, std::size_t) { return Verdict::kHold; });
  std::optional<Session> session = connect();
  const Model model = session->create_model({});
  const auto op = model.generate(prompt_of(1));
  session.reset();
  EXPECT_EQ(status_of([&] { op.wait(); }), PLEXRL_UNAVAILABLE);
  EXPECT_EQ(status_of([&] { (void)model.generate(prompt_of(1)); }), PLEXRL_UNAVAILABLE);
  for (int i = 0; i < 1000 && service_.cancels() == 0; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(service_.cancels(), 1U);
}

TEST_F(SessionTest, SaveToAFileSendsItsDescriptor) {
  const Session session = connect();
  const UniqueFd file(::memfd_create("plexrl-test", MFD_CLOEXEC));
  session.create_model({}).save_fd(file.get(), PLEXRL_FILE_CHECKPOINT).wait();
  char bytes[6] = {};
  EXPECT_EQ(::pread(file.get(), bytes, 5, 0), 5);
  EXPECT_STREQ(bytes, "saved");
  EXPECT_EQ(status_of([&] { (void)session.create_model({}).save_fd(-1, PLEXRL_FILE_CHECKPOINT); }),
            PLEXRL_INVALID_ARGUMENT);
}

TEST_F(SessionTest, QueryIsJson) {
  const Session session = connect();
  EXPECT_EQ(session.query("report", 12), "{\"job\":12}");
  EXPECT_EQ(status_of([&] { (void)session.query("weather"); }), PLEXRL_INVALID_ARGUMENT);
}

TEST_F(SessionTest, ADeletedModelIsGone) {
  const Session session = connect();
  const Model model = session.create_model({});
  model.remove();
  EXPECT_EQ(status_of([&] { model.generate(prompt_of(1)).wait(); }), PLEXRL_NOT_FOUND);
}

TEST_F(SessionTest, EnvironmentNamesTheService) {
  ::unsetenv("PLEXRL_SOCKET");
  EXPECT_EQ(status_of([&] { (void)Session::connect(); }), PLEXRL_INVALID_ARGUMENT);
  ::setenv("PLEXRL_SOCKET", service_.socket().c_str(), 1);
  ::setenv("PLEXRL_TOKEN", "token", 1);
  EXPECT_EQ(Session::connect().info().job_id, 99U);
  ::unsetenv("PLEXRL_SOCKET");
  ::unsetenv("PLEXRL_TOKEN");
}

}  // namespace
}  // namespace plexrl
