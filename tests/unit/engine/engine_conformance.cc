// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_conformance.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <utility>

#include "device/device_backend.h"

namespace plexrl::engine {
namespace {

constexpr std::size_t kChunk = 16 * 1024;
constexpr std::uint32_t kDeviceChunks = 256;
constexpr std::uint32_t kHostChunks = 512;
constexpr std::uint64_t kModel = 7;

template <class BodyT>
wire::OpArgsUnion args_of(BodyT value) {
  wire::OpArgsUnion out;
  out.Set(std::move(value));
  return out;
}

}  // namespace

EngineFixture::EngineFixture(const EngineKind& kind)
    : kind_(kind), loop_(loop::EventLoop::create().value()) {
  std::string pattern = ::testing::TempDir() + "plexrl-engine-XXXXXX";
  dir_ = ::mkdtemp(pattern.data());
  device_pool_ = device::create_cpu_pool("device", kChunk, kDeviceChunks).value();
  host_pool_ = device::create_cpu_pool("host", kChunk, kHostChunks).value();
  engine_ = kind_.make(*loop_, *this, dir_);
}

EngineFixture::~EngineFixture() {
  engine_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

void EngineFixture::on_engine_up(EngineId /*engine*/, const wire::EngineHelloT& told,
                                 std::vector<UniqueFd> fds) {
  hello = told;
  hello_fds = std::move(fds);
}

void EngineFixture::on_engine_down(EngineId /*engine*/, const Status& why) { downs.push_back(why); }

bool EngineFixture::wait_until(const std::function<bool()>& condition) {
  const TimePoint end = system_clock().now() + Duration{60 * kSecond.ns};
  while (!condition() && system_clock().now() < end)
    static_cast<void>(loop_->run_once(Duration{100 * kMillisecond.ns}));
  return condition();
}

void EngineFixture::start() {
  hello.reset();
  engine_->start();
  ASSERT_TRUE(wait_until([this] { return hello.has_value() || !downs.empty(); }));
  ASSERT_TRUE(downs.empty()) << downs.back().to_string();
}

void EngineFixture::recreate() { engine_ = kind_.make(*loop_, *this, dir_); }

Result<Reply> EngineFixture::ask_any(wire::EngineBodyUnion body, const std::vector<int>& fds) {
  auto slot = std::make_shared<std::optional<Result<Reply>>>();
  engine_->call(std::move(body), fds, [slot](Result<Reply> reply) { *slot = std::move(reply); });
  EXPECT_FALSE(slot->has_value()) << "the reply came from inside the call";
  if (!wait_until([&] { return slot->has_value(); }))
    return error(Code::TIMEOUT, "no reply from the engine");
  return std::move(**slot);
}

std::shared_ptr<std::optional<Result<Reply>>> EngineFixture::send(wire::EngineRunOpT op) {
  auto slot = std::make_shared<std::optional<Result<Reply>>>();
  wire::EngineBodyUnion body;
  body.Set(std::move(op));
  engine_->call(std::move(body), {}, [slot](Result<Reply> reply) { *slot = std::move(reply); });
  return slot;
}

void EngineFixture::attach() {
  wire::EngineAttachPoolsT pools;
  pools.chunk_bytes = kChunk;
  pools.device_chunks = kDeviceChunks;
  pools.host_chunks = kHostChunks;
  const auto reply = ask(pools, {device_pool_.get(), host_pool_.get()});
  ASSERT_TRUE(reply.has_value()) << reply.error().to_string();
}

void EngineFixture::describe() {
  wire::EngineDescribeT ask_sizes;
  ask_sizes.mode = wire::TrainMode::Full;
  const auto reply = ask(ask_sizes);
  ASSERT_TRUE(reply.has_value()) << reply.error().to_string();
  const auto* const description = reply->body.AsEngineDescription();
  ASSERT_NE(description, nullptr);
  max_positions_ = description->max_positions;
  kv_bytes_per_position_ = description->kv_bytes_per_position;
  for (const auto& size : description->segments) {
    Area area{size->kind,      size->bytes,
              size->committed, {},
              shadow_chunks_,  static_cast<std::uint32_t>((size->bytes + kChunk - 1) / kChunk)};
    area.device.resize(area.chunks);
    std::iota(area.device.begin(), area.device.end(), next_device_);
    next_device_ += area.chunks;
    shadow_chunks_ += area.chunks;
    areas_.push_back(std::move(area));
  }
  ASSERT_LE(3 * shadow_chunks_, kHostChunks);
  ASSERT_LT(next_device_, kDeviceChunks);
}

std::vector<std::unique_ptr<wire::SegmentPlaceT>> EngineFixture::places(
    bool device, std::optional<std::uint32_t> shadow, bool committed_only) const {
  std::vector<std::unique_ptr<wire::SegmentPlaceT>> out;
  for (const Area& area : areas_) {
    if (committed_only && !area.committed) continue;
    auto place = std::make_unique<wire::SegmentPlaceT>();
    place->kind = area.kind;
    place->bytes = area.bytes;
    if (device) place->device = area.device;
    if (shadow && area.committed) {
      place->host.resize(area.chunks);
      std::iota(place->host.begin(), place->host.end(), *shadow * shadow_chunks_ + area.host);
    }
    out.push_back(std::move(place));
  }
  return out;
}

Status EngineFixture::resume(std::uint64_t step, std::uint64_t seq, bool from_host) {
  wire::EngineResumeT request;
  request.model = kModel;
  request.mode = wire::TrainMode::Full;
  request.seed = 5;
  request.step = step;
  request.seq = seq;
  request.segments =
      places(true, from_host ? std::optional<std::uint32_t>(0) : std::nullopt, false);
  const auto reply = ask(std::move(request));
  if (!reply) return reply.error();
  return reply->body.AsEngineMoved() != nullptr ? Status() : error(Code::INTERNAL, "not Moved");
}

Status EngineFixture::suspend() {
  wire::EngineSuspendT request;
  request.model = kModel;
  request.segments = places(true, 0, false);
  const auto reply = ask(std::move(request));
  return reply ? Status() : reply.error();
}

Result<wire::EngineCommittedT> EngineFixture::commit(std::uint64_t epoch, std::uint32_t shadow,
                                                     const std::set<wire::SegmentKind>& only) {
  wire::EngineCommitT request;
  request.model = kModel;
  request.epoch = epoch;
  request.segments = places(false, shadow, true);
  std::erase_if(request.segments,
                [&](const auto& place) { return !only.empty() && !only.contains(place->kind); });
  PLEXRL_ASSIGN(const auto reply, ask(std::move(request)));
  if (reply.body.AsEngineCommitted() == nullptr) return error(Code::INTERNAL, "not Committed");
  return *reply.body.AsEngineCommitted();
}

wire::EngineRunOpT EngineFixture::op(wire::OpArgsUnion args, std::uint64_t seq) {
  wire::EngineRunOpT out;
  out.op = next_op_++;
  out.model = kModel;
  out.seq = seq;
  out.version_out = 1;
  out.args = std::move(args);
  return out;
}

Result<wire::EngineOpDoneT> EngineFixture::run(wire::EngineRunOpT request) {
  PLEXRL_ASSIGN(const auto reply, ask(std::move(request)));
  if (reply.body.AsEngineOpDone() == nullptr) return error(Code::INTERNAL, "not OpDone");
  return *reply.body.AsEngineOpDone();
}

wire::OpArgsUnion EngineFixture::forward_backward_args(std::size_t data) {
  wire::ForwardBackwardArgsT args;
  args.loss = wire::LossKind::CrossEntropy;
  for (std::size_t i = 0; i < data; ++i) {
    auto datum = std::make_unique<wire::DatumT>();
    datum->tokens = {1, 2, 3, 4, static_cast<std::int32_t>(i % 8)};
    datum->target_tokens = {2, 3, 4, 5, 6};
    datum->weights.assign(5, 1.0F);
    args.data.push_back(std::move(datum));
  }
  return args_of(std::move(args));
}

std::uint64_t EngineFixture::train_step(std::uint64_t seq) {
  const auto gradients = run(op(forward_backward_args(), seq));
  EXPECT_TRUE(gradients.has_value()) << gradients.error().to_string();
  wire::OptimStepArgsT args;
  args.learning_rate = 0.01;
  const auto step = run(op(args_of(std::move(args)), seq + 1));
  EXPECT_TRUE(step.has_value()) << step.error().to_string();
  return step ? step->value.AsOptimStepResult()->step : 0;
}

wire::EngineRunOpT EngineFixture::generate(std::uint32_t new_tokens) {
  wire::GenerateArgsT args;
  args.version = 1;
  args.prompts.push_back(std::make_unique<wire::PromptT>());
  args.prompts[0]->tokens = {1, 2, 3};
  args.max_new_tokens = std::min(new_tokens, max_positions_ - 3);
  args.seed = 11;
  const std::uint64_t bytes = (3 + args.max_new_tokens) * kv_bytes_per_position_;
  auto request = op(args_of(std::move(args)), 0);
  request.kv = std::make_unique<wire::SegmentPlaceT>();
  request.kv->kind = wire::SegmentKind::Kv;
  request.kv->bytes = std::max<std::uint64_t>(bytes, 1);
  request.kv->device.resize((request.kv->bytes + kChunk - 1) / kChunk);
  std::iota(request.kv->device.begin(), request.kv->device.end(), next_device_);
  return request;
}

std::string EngineFixture::host_bytes(wire::SegmentKind kind, std::uint32_t shadow) {
  for (const Area& area : areas_) {
    if (area.kind != kind) continue;
    std::string out(area.bytes, '\0');
    const auto offset = static_cast<off_t>((shadow * shadow_chunks_ + area.host) * kChunk);
    EXPECT_EQ(::pread(host_pool_.get(), out.data(), out.size(), offset),
              static_cast<ssize_t>(out.size()));
    return out;
  }
  return {};
}

std::string EngineFixture::all_committed(std::uint32_t shadow) {
  std::string out;
  for (const Area& area : areas_)
    if (area.committed) out += host_bytes(area.kind, shadow);
  return out;
}

namespace {

TEST_P(EngineConformance, SaysHelloWithNothingHeld) {
  EXPECT_EQ(f().hello->engine, f().engine().spec().id.value);
  EXPECT_EQ(f().hello->mode, wire::TrainMode::Full);
  EXPECT_TRUE(f().hello->models.empty());
  EXPECT_EQ(f().hello->running_op, 0U);
  EXPECT_NE(f().engine().pid(), 0);
}

TEST_P(EngineConformance, AnswersPing) {
  wire::EnginePingT ping;
  ping.nonce = 99;
  const auto reply = f().ask(ping);
  ASSERT_TRUE(reply.has_value());
  ASSERT_NE(reply->body.AsEnginePong(), nullptr);
  EXPECT_EQ(reply->body.AsEnginePong()->nonce, 99U);
}

TEST_P(EngineConformance, AFailureBecomesTheStatus) {
  f().attach();
  wire::EngineSuspendT nothing;
  nothing.model = 4711;
  const auto reply = f().ask(std::move(nothing));
  ASSERT_FALSE(reply.has_value());
  EXPECT_NE(reply.error().code(), Code::ENGINE_DOWN);
  EXPECT_FALSE(reply.error().text().empty());
}

TEST_P(EngineConformance, TrainsAndCountsSteps) {
  ready();
  EXPECT_EQ(f().train_step(1), 1U);
  EXPECT_EQ(f().train_step(3), 2U);
}

TEST_P(EngineConformance, ACommitNamesItsPosition) {
  ready();
  ASSERT_EQ(f().train_step(1), 1U);
  const auto committed = f().commit(3, 0);
  ASSERT_TRUE(committed.has_value()) << committed.error().to_string();
  EXPECT_EQ(committed->epoch, 3U);
  EXPECT_EQ(committed->step, 1U);
  EXPECT_EQ(committed->seq, 2U);
}

// plexrld plans a commit before it hears of an op that has just ended.
TEST_P(EngineConformance, ACommitWithoutWhatAnOpWroteIsRefused) {
  ready();
  ASSERT_EQ(f().train_step(1), 1U);
  ASSERT_TRUE(f().commit(1, 0).has_value());
  ASSERT_EQ(f().train_step(3), 2U);
  const auto torn = f().commit(2, 1, {wire::SegmentKind::SamplerWeights});
  ASSERT_FALSE(torn.has_value()) << "at step " << torn->step << " without its weights";
  EXPECT_EQ(torn.error().code(), Code::BUSY) << torn.error().to_string();
  const auto whole = f().commit(3, 1);
  ASSERT_TRUE(whole.has_value()) << whole.error().to_string();
  EXPECT_EQ(whole->step, 2U);
}

TEST_P(EngineConformance, ACommitEqualsTheStateThatIsParked) {
  ready();
  ASSERT_EQ(f().train_step(1), 1U);
  ASSERT_TRUE(f().commit(1, 1).has_value());
  ASSERT_TRUE(f().suspend().ok());
  EXPECT_EQ(f().all_committed(1), f().all_committed(0));
}

TEST_P(EngineConformance, SuspendAndResumeKeepTheBits) {
  ready();
  ASSERT_EQ(f().train_step(1), 1U);
  ASSERT_TRUE(f().commit(1, 1).has_value());
  ASSERT_TRUE(f().suspend().ok());
  ASSERT_TRUE(f().resume(1, 2, true).ok());
  ASSERT_TRUE(f().commit(2, 2).has_value());
  EXPECT_EQ(f().all_committed(1), f().all_committed(2));
  EXPECT_EQ(f().train_step(3), 2U);
}

TEST_P(EngineConformance, ReplayFromACommitGivesTheSameBits) {
  ready();
  ASSERT_EQ(f().train_step(1), 1U);
  ASSERT_TRUE(f().commit(1, 0).has_value());
  ASSERT_EQ(f().train_step(3), 2U);
  ASSERT_TRUE(f().commit(2, 1).has_value());
  f().engine().kill();
  ASSERT_TRUE(f().wait_until([&] { return !f().downs.empty(); }));
  f().downs.clear();
  f().start();
  f().attach();
  ASSERT_TRUE(f().resume(1, 2, true).ok());
  ASSERT_EQ(f().train_step(3), 2U);
  ASSERT_TRUE(f().commit(3, 2).has_value());
  EXPECT_EQ(f().all_committed(1), f().all_committed(2));
}

TEST_P(EngineConformance, OpsOfAModelThatIsNotResidentAreRefused) {
  ready();
  ASSERT_TRUE(f().suspend().ok());
  EXPECT_FALSE(f().run(f().op(EngineFixture::forward_backward_args(), 1)).has_value());
}

TEST_P(EngineConformance, KillFailsCallsFirstAndThenReportsDown) {
  ready();
  const auto pending = f().send(f().op(EngineFixture::forward_backward_args(2000), 1));
  f().engine().kill();
  ASSERT_TRUE(f().wait_until([&] { return !f().downs.empty(); }));
  ASSERT_TRUE(pending->has_value());
  if (!(*pending)->has_value()) {
    EXPECT_EQ((*pending)->error().code(), Code::ENGINE_DOWN);
  }
  EXPECT_EQ(f().downs.size(), 1U);
  EXPECT_EQ(f().downs[0].code(), Code::ENGINE_DOWN);
  EXPECT_EQ(f().engine().pid(), 0);
  const auto after = f().ask(wire::EnginePingT());
  EXPECT_EQ(after.error().code(), Code::ENGINE_DOWN);
}

TEST_P(EngineConformance, StartsAgainAfterDownWithNothingHeld) {
  ready();
  f().engine().kill();
  ASSERT_TRUE(f().wait_until([&] { return !f().downs.empty(); }));
  f().downs.clear();
  f().start();
  EXPECT_TRUE(f().hello->models.empty());
  EXPECT_TRUE(f().hello_fds.empty());
}

TEST_P(EngineConformance, StopEndsWithoutACallback) {
  ready();
  f().engine().stop(Duration{5 * kSecond.ns});
  ASSERT_TRUE(f().wait_until([&] { return f().engine().pid() == 0; }));
  EXPECT_TRUE(f().downs.empty());
}

TEST_P(EngineConformance, DetachAndAttachGiveBackModelsAndPools) {
  if (!GetParam().survives_detach) GTEST_SKIP() << "this engine is not a process of its own";
  ready();
  ASSERT_EQ(f().train_step(1), 1U);
  const int pid = f().engine().pid();
  f().engine().detach();
  f().recreate();
  f().start();
  EXPECT_EQ(f().engine().pid(), pid);
  ASSERT_EQ(f().hello_fds.size(), 2U);
  ASSERT_EQ(f().hello->models.size(), 1U);
  EXPECT_EQ(f().hello->models[0]->step, 1U);
  EXPECT_EQ(f().hello->models[0]->applied_seq, 2U);
  EXPECT_EQ(f().train_step(3), 2U);
}

TEST_P(EngineConformance, AYieldedGenerateGoesOnToTheSameTokens) {
  ready();
  wire::SaveArgsT publish;
  publish.target = wire::SaveTarget::Sampler;
  wire::OpArgsUnion args;
  args.Set(std::move(publish));
  const auto published = f().run(f().op(std::move(args), 1));
  ASSERT_TRUE(published.has_value()) << published.error().to_string();
  const auto whole = f().run(f().generate(40));
  ASSERT_TRUE(whole.has_value()) << whole.error().to_string();
  auto request = f().generate(40);
  const std::uint64_t number = request.op;
  auto running = f().send(std::move(request));
  wire::EngineYieldT yield;
  yield.op = number;
  ASSERT_TRUE(f().ask(yield).has_value());
  ASSERT_TRUE(f().wait_until([&] { return running->has_value(); }));
  ASSERT_TRUE((*running)->has_value()) << (*running)->error().to_string();
  if ((**running)->body.AsEngineYielded() != nullptr) {
    auto again = f().generate(40);
    again.op = number;
    running = f().send(std::move(again));
    ASSERT_TRUE(f().wait_until([&] { return running->has_value(); }));
    ASSERT_TRUE((*running)->has_value()) << (*running)->error().to_string();
  }
  const auto* const done = (**running)->body.AsEngineOpDone();
  ASSERT_NE(done, nullptr);
  EXPECT_EQ(done->value.AsGenerateResult()->sequences[0]->tokens,
            whole->value.AsGenerateResult()->sequences[0]->tokens);
}

TEST_P(EngineConformance, ADroppedOpIsGone) {
  ready();
  auto request = f().op(EngineFixture::forward_backward_args(500), 1);
  wire::EngineDropOpT drop;
  drop.op = request.op;
  const auto running = f().send(std::move(request));
  ASSERT_TRUE(f().ask(drop).has_value());
  ASSERT_TRUE(f().wait_until([&] { return running->has_value(); }));
  // Dropped, or it was over already; the engine takes the next op either way.
  EXPECT_TRUE(f().run(f().op(EngineFixture::forward_backward_args(), 2)).has_value());
}

}  // namespace
}  // namespace plexrl::engine
