// SPDX-License-Identifier: Apache-2.0
#include "engine/fake_engine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "device/device_backend.h"
#include "loop/event_loop.h"

namespace plexrl::engine {
namespace {

constexpr std::size_t kChunk = 4096;
constexpr std::size_t kChunks = 32;
constexpr std::uint64_t kModel = 5;
using wire::SegmentKind;

class Listener final : public EngineListener {
 public:
  void on_engine_up(EngineId, const wire::EngineHelloT& hello, std::vector<UniqueFd> fds) override {
    ++ups;
    models_held = hello.models.size();
    running_op = hello.running_op;
    fds_held = fds.size();
  }
  void on_engine_down(EngineId, const Status& status) override {
    ++downs;
    why = status;
  }
  int ups = 0;
  int downs = 0;
  std::size_t models_held = 0;
  std::size_t fds_held = 0;
  std::uint64_t running_op = 0;
  Status why;
};

class FakeEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    loop_ = loop::EventLoop::create().value();
    device_ = device::create_cpu_pool("device", kChunk, kChunks).value();
    host_ = device::create_cpu_pool("host", kChunk, kChunks).value();
    EngineSpec spec;
    spec.id = {3};
    spec.base_name = "demo";
    engine_ = make_fake_engine(*loop_, spec, listener_);
    start();
  }
  void start() {
    const int before = listener_.ups;
    engine_->start();
    ASSERT_TRUE(turn_until([&] { return listener_.ups > before; }));
    if (listener_.fds_held == 2) return;
    wire::EngineAttachPoolsT attach;
    attach.chunk_bytes = kChunk;
    attach.device_chunks = attach.host_chunks = kChunks;
    ASSERT_TRUE(call(attach, {device_.get(), host_.get()}).has_value());
  }
  template <class Condition>
  bool turn_until(Condition condition) {
    const TimePoint end = system_clock().now() + Duration{10 * kSecond.ns};  // a busy machine
    while (!condition() && system_clock().now() < end)
      EXPECT_TRUE(loop_->run_once(Duration{10 * kMillisecond.ns}).has_value());
    return condition();
  }
  using Answer = std::shared_ptr<std::optional<Result<Reply>>>;
  template <class Message>
  Answer send(Message message, std::vector<int> fds = {}) {
    wire::EngineBodyUnion body;
    body.Set(std::move(message));
    auto answer = std::make_shared<std::optional<Result<Reply>>>();
    engine_->call(std::move(body), std::move(fds),
                  [answer](Result<Reply> reply) { answer->emplace(std::move(reply)); });
    return answer;
  }
  template <class Message>
  Result<Reply> call(Message message, std::vector<int> fds = {}) {
    const Answer answer = send(std::move(message), std::move(fds));
    EXPECT_FALSE(answer->has_value()) << "answers come from the loop";
    if (!turn_until([&] { return answer->has_value(); }))
      return error(Code::TIMEOUT, "no answer in 10 seconds");
    return std::move(**answer);
  }

  // Segment k of the model lies on device chunk k and host chunk first_host + k.
  template <class Message>
  static void place(Message& message, std::optional<std::uint32_t> first_host, bool gradients) {
    std::uint32_t index = 0;
    for (const auto& size : fake_description({}, wire::TrainMode::Full).segments) {
      auto place = std::make_unique<wire::SegmentPlaceT>();
      place->kind = size->kind;
      place->bytes = size->bytes;
      place->device = {index};
      if (first_host && (size->committed || gradients)) place->host = {*first_host + index};
      ++index;
      message.segments.push_back(std::move(place));
    }
  }
  Result<Reply> resume(std::optional<std::uint32_t> first_host = {}, std::uint64_t step = 0,
                       std::uint64_t seq = 0, bool gradients = false) {
    wire::EngineResumeT request;
    request.model = kModel;
    request.mode = wire::TrainMode::Full;
    request.seed = 7;
    request.step = step;
    request.seq = seq;
    request.gradients_pending = gradients;
    place(request, first_host, gradients);
    return call(std::move(request));
  }
  Result<Reply> suspend(std::uint32_t first_host, bool gradients = false) {
    wire::EngineSuspendT request;
    request.model = kModel;
    place(request, first_host, gradients);
    return call(std::move(request));
  }
  static wire::EngineRunOpT op(std::uint64_t number, std::uint64_t seq) {
    wire::EngineRunOpT request;
    request.op = number;
    request.model = kModel;
    request.seq = seq;
    return request;
  }
  static wire::EngineRunOpT forward_backward(std::uint64_t seq, int token) {
    auto request = op(100 + seq, seq);
    wire::ForwardBackwardArgsT args;
    auto datum = std::make_unique<wire::DatumT>();
    datum->tokens = datum->target_tokens = {token, token + 1};
    args.data.push_back(std::move(datum));
    request.args.Set(std::move(args));
    return request;
  }
  static wire::EngineRunOpT optim_step(std::uint64_t seq) {
    auto request = op(100 + seq, seq);
    request.args.Set(wire::OptimStepArgsT());
    return request;
  }
  static wire::EngineRunOpT generate(std::uint64_t number, std::uint64_t seed) {
    auto request = op(number, 0);
    wire::GenerateArgsT args;
    args.prompts.push_back(std::make_unique<wire::PromptT>());
    args.samples_per_prompt = 2;
    args.max_new_tokens = 8;
    args.seed = seed;
    request.args.Set(std::move(args));
    return request;
  }
  void train(std::uint64_t first_seq, int steps) {
    for (int i = 0; i < steps; ++i) {
      ASSERT_TRUE(call(forward_backward(first_seq + 2 * i, i)).has_value());
      ASSERT_TRUE(call(optim_step(first_seq + 2 * i + 1)).has_value());
    }
  }
  std::string bytes(const UniqueFd& pool, std::uint32_t chunk) {
    std::string text(kChunk, '\0');
    EXPECT_EQ(::pread(pool.get(), text.data(), kChunk, static_cast<off_t>(chunk * kChunk)),
              static_cast<ssize_t>(kChunk));
    return text;
  }
  std::string state() {
    std::string all;
    for (std::uint32_t chunk = 0; chunk < 3; ++chunk) all += bytes(device_, chunk);
    return all;
  }
  static std::vector<int> tokens(const Result<Reply>& reply) {
    std::vector<int> all;
    if (!reply) return all;
    const auto* done = reply->body.AsEngineOpDone();
    for (const auto& sequence : done->value.AsGenerateResult()->sequences)
      all.insert(all.end(), sequence->tokens.begin(), sequence->tokens.end());
    return all;
  }

  Listener listener_;
  std::unique_ptr<loop::EventLoop> loop_;
  UniqueFd device_;
  UniqueFd host_;
  std::unique_ptr<FakeEngine> engine_;
};

TEST_F(FakeEngineTest, TokensAreAFunctionOfSeedRowAndPosition) {
  ASSERT_TRUE(resume().has_value());
  const auto first = tokens(call(generate(1, 11)));
  EXPECT_EQ(first.size(), 16u);
  EXPECT_EQ(tokens(call(generate(2, 11))), first);
  EXPECT_NE(tokens(call(generate(3, 12))), first);
}

TEST_F(FakeEngineTest, SuspendAndResumeKeepEveryBit) {
  ASSERT_TRUE(resume().has_value());
  train(1, 2);
  ASSERT_TRUE(call(forward_backward(5, 9)).has_value());
  const auto out = suspend(10, true);
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->body.AsEngineMoved()->seq, 4u);
  EXPECT_TRUE(out->body.AsEngineMoved()->gradients_pending);
  ASSERT_TRUE(resume(10, 2, 4, true).has_value());
  ASSERT_TRUE(call(optim_step(6)).has_value());
  const std::string moved = state();

  engine_->kill();
  ASSERT_TRUE(turn_until([&] { return listener_.downs == 1; }));
  start();
  ASSERT_TRUE(resume().has_value());
  train(1, 2);
  ASSERT_TRUE(call(forward_backward(5, 9)).has_value());
  ASSERT_TRUE(call(optim_step(6)).has_value());
  EXPECT_EQ(state(), moved);
}

TEST_F(FakeEngineTest, CommitAndReplayAfterADeathGiveTheSameState) {
  ASSERT_TRUE(resume().has_value());
  train(1, 1);
  wire::EngineCommitT commit;
  commit.model = kModel;
  commit.epoch = 4;
  place(commit, 10, false);
  std::erase_if(commit.segments, [](const auto& p) { return p->kind == SegmentKind::Gradients; });
  const auto committed = call(std::move(commit));
  ASSERT_TRUE(committed.has_value());
  EXPECT_EQ(committed->body.AsEngineCommitted()->seq, 2u);
  EXPECT_EQ(committed->body.AsEngineCommitted()->epoch, 4u);
  train(3, 2);
  const std::string before = state();
  engine_->kill();
  ASSERT_TRUE(turn_until([&] { return listener_.downs == 1; }));
  start();
  ASSERT_TRUE(resume(10, 1, 2).has_value());
  train(3, 2);
  EXPECT_EQ(state(), before);
}

TEST_F(FakeEngineTest, ATrainingOpIsNotAppliedTwice) {
  ASSERT_TRUE(resume().has_value());
  train(1, 1);
  const std::string before = state();
  EXPECT_TRUE(call(optim_step(2)).has_value()) << "its last answer, once more";
  auto other = optim_step(2);
  other.op = 77;
  EXPECT_EQ(call(std::move(other)).error().code(), Code::PROTOCOL);
  EXPECT_EQ(state(), before);
}

TEST_F(FakeEngineTest, ASavedStateComesBackWithoutPendingGradients) {
  ASSERT_TRUE(resume().has_value());
  train(1, 2);
  const std::string saved = state();
  const UniqueFd file(::memfd_create("checkpoint", MFD_CLOEXEC));
  auto save = op(50, 5);
  wire::SaveArgsT to_store;
  to_store.target = wire::SaveTarget::Store;
  save.args.Set(std::move(to_store));
  const auto done = call(std::move(save), {file.get()});
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->body.AsEngineOpDone()->value.AsSaveResult()->step, 2U);
  train(6, 1);
  ASSERT_TRUE(call(forward_backward(8, 1)).has_value());
  EXPECT_NE(state(), saved);
  auto load = op(51, 9);
  load.args.Set(wire::LoadArgsT());
  const auto loaded = call(std::move(load), {file.get()});
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->body.AsEngineOpDone()->value.AsLoadResult()->step, 2U);
  EXPECT_EQ(state(), saved);
  EXPECT_FALSE(call(optim_step(10)).has_value()) << "the gradients of before are gone";
  auto without = op(52, 11);
  without.args.Set(wire::LoadArgsT());
  EXPECT_FALSE(call(std::move(without)).has_value());
}

TEST_F(FakeEngineTest, OpsNeedAResidentModel) {
  EXPECT_EQ(call(generate(1, 1)).error().code(), Code::INVALID_ARGUMENT);
}

TEST_F(FakeEngineTest, ARunningOpYieldsAndGoesOn) {
  ASSERT_TRUE(resume().has_value());
  engine_->options().op_time = Duration{40 * kMillisecond.ns};
  const auto whole = tokens(call(generate(1, 5)));
  const Answer running = send(generate(2, 5));
  wire::EngineYieldT yield;
  yield.op = 2;
  ASSERT_TRUE(call(yield).has_value());
  ASSERT_TRUE(turn_until([&] { return running->has_value(); }));
  ASSERT_NE((**running)->body.AsEngineYielded(), nullptr);
  EXPECT_EQ(tokens(call(generate(2, 5))), whole);
}

TEST_F(FakeEngineTest, OneOpAtATime) {
  ASSERT_TRUE(resume().has_value());
  engine_->options().op_time = Duration{20 * kMillisecond.ns};
  const Answer running = send(generate(1, 5));
  EXPECT_EQ(call(generate(2, 5)).error().code(), Code::INVALID_ARGUMENT);
}

TEST_F(FakeEngineTest, KvComesBackWithAParkedModel) {
  ASSERT_TRUE(resume().has_value());
  engine_->options().op_time = kSecond;
  const auto kv = [](std::vector<std::uint32_t> host) {
    auto place = std::make_unique<wire::SegmentPlaceT>();
    place->kind = SegmentKind::Kv;
    place->bytes = 2 * kChunk;
    place->device = {20, 21};
    place->host = std::move(host);
    return place;
  };
  auto request = generate(1, 5);
  request.kv = kv({});
  const Answer running = send(std::move(request));
  wire::EngineYieldT yield;
  yield.op = 1;
  ASSERT_TRUE(call(yield).has_value());
  ASSERT_TRUE(turn_until([&] { return running->has_value(); }));
  EXPECT_EQ(suspend(10).error().code(), Code::INVALID_ARGUMENT) << "no host chunks for the KV";
  wire::EngineSuspendT out;
  out.model = kModel;
  place(out, 10, false);
  out.segments.push_back(kv({20, 21}));
  ASSERT_TRUE(call(std::move(out)).has_value());
  wire::EngineResumeT in;
  in.model = kModel;
  in.mode = wire::TrainMode::Full;
  place(in, 10, false);
  in.segments.push_back(kv({20, 21}));
  ASSERT_TRUE(call(std::move(in)).has_value());
  EXPECT_TRUE(call(generate(1, 5)).has_value());
}

TEST_F(FakeEngineTest, ADroppedOpIsCancelled) {
  ASSERT_TRUE(resume().has_value());
  engine_->options().op_time = kSecond;
  const Answer running = send(generate(1, 5));
  wire::EngineDropOpT drop;
  drop.op = 1;
  ASSERT_TRUE(call(drop).has_value());
  ASSERT_TRUE(turn_until([&] { return running->has_value(); }));
  EXPECT_EQ((*running)->error().code(), Code::CANCELLED);
}

TEST_F(FakeEngineTest, DeathFailsWhatIsOutstandingAndThenSaysSo) {
  ASSERT_TRUE(resume().has_value());
  engine_->options().die_at_op = engine_->ops_started() + 1;
  const Answer running = send(generate(1, 5));
  ASSERT_TRUE(turn_until([&] { return listener_.downs == 1; }));
  ASSERT_TRUE(running->has_value());
  EXPECT_EQ((*running)->error().code(), Code::ENGINE_DOWN);
  EXPECT_EQ(call(generate(2, 5)).error().code(), Code::ENGINE_DOWN);
  start();
  EXPECT_EQ(listener_.models_held, 0u);
}

TEST_F(FakeEngineTest, DeathInAnOpLeavesTheStateBeforeIt) {
  ASSERT_TRUE(resume().has_value());
  engine_->options().op_time = Duration{4 * kMillisecond.ns};
  ASSERT_TRUE(call(forward_backward(1, 1)).has_value());
  engine_->options().die_in_op = engine_->ops_started() + 1;
  EXPECT_EQ(call(optim_step(2)).error().code(), Code::ENGINE_DOWN);
  EXPECT_TRUE(turn_until([&] { return listener_.downs == 1; }));
}

TEST_F(FakeEngineTest, ADetachedEngineKeepsModelsAndResults) {
  ASSERT_TRUE(resume().has_value());
  const auto expected = tokens(call(generate(1, 5)));
  engine_->options().op_time = Duration{10 * kMillisecond.ns};
  const Answer lost = send(generate(2, 5));
  engine_->detach();
  start();
  EXPECT_EQ(listener_.models_held, 1u);
  EXPECT_EQ(listener_.fds_held, 2u);
  EXPECT_EQ(tokens(call(generate(2, 5))), expected);
  EXPECT_FALSE(lost->has_value());
}

TEST_F(FakeEngineTest, FaultsOnDemand) {
  engine_->options().fail_resumes = 1;
  EXPECT_EQ(resume().error().code(), Code::NO_CAPACITY);
  ASSERT_TRUE(resume().has_value());
  engine_->options().fail_suspends = 1;
  EXPECT_EQ(suspend(10).error().code(), Code::IO);
  engine_->options().corrupt_commits = true;
  wire::EngineCommitT commit;
  commit.model = kModel;
  place(commit, 10, false);
  std::erase_if(commit.segments, [](const auto& p) { return p->kind == SegmentKind::Gradients; });
  ASSERT_TRUE(call(std::move(commit)).has_value());
  EXPECT_NE(bytes(host_, 10), bytes(device_, 0));
  engine_->options().fail_starts = 1;
  engine_->kill();
  ASSERT_TRUE(turn_until([&] { return listener_.downs == 1; }));
  engine_->start();
  ASSERT_TRUE(turn_until([&] { return listener_.downs == 2; }));
}

TEST_F(FakeEngineTest, NeverYieldAndSilence) {
  ASSERT_TRUE(resume().has_value());
  engine_->options().op_time = Duration{20 * kMillisecond.ns};
  engine_->options().never_yield = true;
  const Answer running = send(generate(1, 5));
  wire::EngineYieldT yield;
  yield.op = 1;
  ASSERT_TRUE(call(yield).has_value());
  ASSERT_TRUE(turn_until([&] { return running->has_value(); }));
  EXPECT_NE((**running)->body.AsEngineOpDone(), nullptr);
  engine_->options().silent = true;
  const Answer ping = send(wire::EnginePingT());
  (void)loop_->run_once(Duration{5 * kMillisecond.ns});
  EXPECT_FALSE(ping->has_value());
}

TEST_F(FakeEngineTest, AfterStopNoCallbackComes) {
  ASSERT_TRUE(resume().has_value());
  const Answer running = send(generate(1, 5));
  engine_->stop(kSecond);
  for (int i = 0; i < 3; ++i) (void)loop_->run_once(Duration{1});
  EXPECT_FALSE(running->has_value());
  EXPECT_EQ(listener_.downs, 0);
  EXPECT_EQ(engine_->pid(), 0);
}

}  // namespace
}  // namespace plexrl::engine
