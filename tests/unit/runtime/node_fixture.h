// SPDX-License-Identifier: Apache-2.0
// NodeFixture: a NodeRuntime on fake engines, a memory store and small pools. Engines outlive a
// restart() of the runtime, as processes do.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <optional>

#include "device/device_backend.h"
#include "engine/fake_engine.h"
#include "loop/event_loop.h"
#include "runtime/node_runtime.h"
#include "store/memory_blob_store.h"
#include "store/write_queue.h"

namespace plexrl::runtime {

// One fake engine, and whoever listens to it now.
class KeptEngine final : public engine::EngineListener {
 public:
  KeptEngine(loop::EventLoop& loop, engine::EngineSpec spec, engine::FakeEngineOptions options)
      : fake(engine::make_fake_engine(loop, std::move(spec), *this, options)) {}
  void on_engine_up(EngineId id, const wire::EngineHelloT& hello,
                    std::vector<UniqueFd> fds) override {
    if (listener != nullptr) listener->on_engine_up(id, hello, std::move(fds));
  }
  void on_engine_down(EngineId id, const Status& why) override {
    if (listener != nullptr) listener->on_engine_down(id, why);
  }
  std::unique_ptr<engine::FakeEngine> fake;
  engine::EngineListener* listener = nullptr;
};

// What a runtime owns: a handle that leaves the fake engine running when it was detached.
class EngineHandle final : public engine::Engine {
 public:
  EngineHandle(KeptEngine& kept, engine::EngineListener& listener) : kept_(kept) {
    kept_.listener = &listener;
  }
  ~EngineHandle() override { kept_.listener = nullptr; }
  void start() override { kept_.fake->start(); }
  void call(wire::EngineBodyUnion request, std::vector<int> fds,
            engine::ReplyHandler done) override {
    kept_.fake->call(std::move(request), std::move(fds), std::move(done));
  }
  void kill() override { kept_.fake->kill(); }
  void stop(Duration grace) override { kept_.fake->stop(grace); }
  void detach() override { kept_.fake->detach(); }
  [[nodiscard]] const engine::EngineSpec& spec() const override { return kept_.fake->spec(); }
  [[nodiscard]] int pid() const override { return kept_.fake->pid(); }

 private:
  KeptEngine& kept_;
};

class NodeFixture : public ::testing::Test {
 protected:
  NodeFixture() {
    char path[] = "/tmp/plexrl-node-XXXXXX";
    dir_ = ::mkdtemp(path);
    config_.cluster = "test";
    config::PoolEntry pool;
    pool.name = "rl";
    pool.nodes = {"n1"};
    pool.models = {"tiny"};
    pool.host_memory_mib = 4;
    pool.device_memory_mib = 1;
    // It does nothing ahead of time, so a test knows where state is.
    pool.policy = "round-robin";
    pool.quantum_ms = 5;
    config_.pools.push_back(pool);
    config::ModelEntry model;
    model.name = "tiny";
    model.path = "/nowhere";
    config_.models.push_back(model);
    config_.daemon.chunk_kib = 4;
  }
  ~NodeFixture() override {
    node_.reset();
    engines_.clear();
    std::filesystem::remove_all(dir_);
  }

  // The device holds one full model: weights, m, v, gradients and sampler are 800 KiB of 1 MiB.
  void start_with_room_for_one() {
    fake_options_.segment_bytes = 160 << 10;
    config_.pools[0].host_memory_mib = 8;
    start();
  }
  void start() {
    const Status status = start_status();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  Status start_status() {
    NodeOptions options{"n1", dir_, dir_, boot_};
    writes_ = std::make_unique<store::WriteQueue>(
        *store_, [this](std::function<void()> callback) { loop_->post(std::move(callback)); },
        [this] { loop_->post([this] { write_group(); }); });
    NodeSeams seams{
        system_clock(),
        *writes_,
        [this](engine::EngineSpec spec, engine::EngineListener& listener) {
          return make_engine(std::move(spec), listener);
        },
        make_pools,
        [this](const engine::EngineSpec& spec) { return engines_.count(spec.id) != 0; },
        [this] { return "token" + std::to_string(++tokens_); },
        [this](TimePoint when) { timer_.arm(when); },
        {},
        [this](std::function<void()> work) { loop_->post(std::move(work)); },
        [this](const std::string&) {
          return Result<std::unique_ptr<store::BlobStore>>(store::make_memory_blob_store(
              blob_disk_, [this](std::function<void()> done) { loop_->post(std::move(done)); }));
        },
        reaper_seam_};
    timer_ = loop_->make_timer([this] { node_->tick(); }).value();
    node_ = NodeRuntime::create(config_, options, std::move(seams)).value();
    std::optional<Status> ready;
    PLEXRL_TRY(node_->start([&](const Status& status) { ready = status; }));
    if (!turn_until([&] { return ready.has_value(); })) return error(Code::TIMEOUT, "start");
    return *ready;
  }
  // What was written reaches the store at the loop's next turn, unless the disk is held.
  void write_group() {
    if (!disk_held_) (void)writes_->write_group();
  }
  void hold_disk() { disk_held_ = true; }
  void let_disk_go() {
    disk_held_ = false;
    while (writes_->write_group()) continue;
  }
  // As a kill -9 of plexrld: nothing is said to anybody, and what waits never reaches the disk.
  void kill_plexrld() {
    node_->detach();
    writes_->drop();
    node_.reset();
    disk_held_ = false;
  }
  void restart() {
    kill_plexrld();
    start();
  }
  // As SIGTERM: what was written is on disk.
  void stop_plexrld() {
    node_->detach();
    let_disk_go();
    node_.reset();
  }
  // The engines go too, and with them the pools.
  void lose_engines() {
    kill_plexrld();
    engines_.clear();
  }

  TenantId open_job(std::uint32_t job, std::uint32_t uid = 1000, const std::string& mode = "lora",
                    std::uint64_t mib = 1) {
    wire::OpenJobT open;
    open.job_id = job;
    open.uid = uid;
    open.grant = grant_text(mode, mib);
    std::optional<Status> done;
    node_->tenant_service().open(open, [&](const Status& status) { done = status; });
    EXPECT_TRUE(turn_until([&] { return done.has_value(); }));
    EXPECT_TRUE(done->ok()) << done->to_string();
    const Tenant* const tenant = node_->tenants().find_job(job);
    return tenant == nullptr ? TenantId{} : tenant->id;
  }
  static std::string grant_text(const std::string& mode, std::uint64_t mib) {
    slurm::Grant grant;
    grant.pool = "rl";
    grant.share_percent = 50;
    grant.host_memory_mib = mib;
    grant.train_mode = mode;
    grant.lora_rank = mode == "lora" ? 8 : 0;
    grant.models = {"tiny"};
    return slurm::format_grant(grant);
  }
  Result<wire::ModelInfoT> create(TenantId tenant, const std::string& name = "policy",
                                  wire::TrainMode mode = wire::TrainMode::Lora) {
    wire::CreateModelT request;
    request.name = name;
    request.mode = mode;
    request.seed = 7;
    std::optional<Result<wire::ModelInfoT>> info;
    node_->model_service().create(tenant, request,
                                  [&](Result<wire::ModelInfoT> r) { info.emplace(std::move(r)); });
    if (!turn_until([&] { return info.has_value(); })) return error(Code::TIMEOUT, "create");
    return *std::move(info);
  }
  std::uint64_t model(TenantId tenant, const std::string& name = "policy",
                      wire::TrainMode mode = wire::TrainMode::Lora) {
    auto info = create(tenant, name, mode);
    EXPECT_TRUE(info) << info.error().to_string();
    return info ? info->model : 0;
  }

  struct Pending {
    std::optional<OpOutcome> outcome;
    int answers = 0;
  };
  std::shared_ptr<Pending> submit(TenantId tenant, std::uint64_t model_id, std::uint64_t seq,
                                  wire::OpArgsUnion args, std::uint64_t request = 0) {
    auto pending = std::make_shared<Pending>();
    SubmitRequest submit;
    submit.tenant = tenant;
    submit.session = session_;
    submit.request_id = request != 0 ? request : ++requests_;
    submit.submit.model = model_id;
    submit.submit.seq = seq;
    submit.submit.args = std::move(args);
    submit.handler = [pending](const OpOutcome& outcome) {
      pending->outcome = outcome;
      ++pending->answers;
    };
    node_->op_service().submit(std::move(submit));
    return pending;
  }
  OpOutcome wait(const std::shared_ptr<Pending>& pending) {
    OpOutcome outcome;
    outcome.status = error(Code::TIMEOUT, "no answer within 10 s");
    if (turn_until([&] { return pending->outcome.has_value(); })) outcome = *pending->outcome;
    return outcome;
  }
  OpOutcome run(TenantId tenant, std::uint64_t model_id, std::uint64_t seq,
                wire::OpArgsUnion args) {
    return wait(submit(tenant, model_id, seq, std::move(args)));
  }

  static wire::OpArgsUnion train(int token, bool forward_only = false) {
    auto datum = std::make_unique<wire::DatumT>();
    datum->tokens = {token, 1, 2};
    datum->target_tokens = {1, 2, 3};
    datum->weights = {1.0F, 1.0F, 1.0F};
    wire::ForwardBackwardArgsT args;
    args.data.push_back(std::move(datum));
    args.forward_only = forward_only;
    return union_of(std::move(args));
  }
  static wire::OpArgsUnion optim(double rate = 0.01) {
    wire::OptimStepArgsT args;
    args.learning_rate = rate;
    return union_of(args);
  }
  static wire::OpArgsUnion publish() {
    wire::SaveArgsT args;
    args.target = wire::SaveTarget::Sampler;
    return union_of(args);
  }
  static wire::OpArgsUnion generate(std::uint64_t version = 0, std::uint64_t seed = 5) {
    auto prompt = std::make_unique<wire::PromptT>();
    prompt->tokens = {1, 2};
    wire::GenerateArgsT args;
    args.version = version;
    args.prompts.push_back(std::move(prompt));
    args.max_new_tokens = 4;
    args.seed = seed;
    return union_of(std::move(args));
  }
  template <class Args>
  static wire::OpArgsUnion union_of(Args args) {
    wire::OpArgsUnion value;
    value.Set(std::move(args));
    return value;
  }
  // Depends on every bit of the weights.
  std::vector<float> weights_of(TenantId tenant, std::uint64_t model_id, std::uint64_t seq) {
    const OpOutcome outcome = run(tenant, model_id, seq, train(9, true));
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
    const auto* value = outcome.reply.value.AsForwardBackwardResult();
    return value == nullptr || value->logprobs.empty() ? std::vector<float>{}
                                                       : value->logprobs.front()->values;
  }

  // Trains `steps` steps of two forward_backwards each; numbers 1 .. 3 * steps.
  void train_steps(TenantId job, std::uint64_t id, std::uint64_t steps) {
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::uint64_t seq = 3 * step;
      ASSERT_TRUE(run(job, id, seq + 1, train(static_cast<int>(step % 8))).status.ok());
      ASSERT_TRUE(run(job, id, seq + 2, train(8)).status.ok());
      const OpOutcome done = run(job, id, seq + 3, optim());
      ASSERT_TRUE(done.status.ok()) << done.status.to_string();
      ASSERT_EQ(done.reply.value.AsOptimStepResult()->step, step + 1);
    }
  }
  // What an undisturbed run of so many steps ends with.
  std::vector<float> undisturbed(std::uint64_t steps) {
    const TenantId job = open_job(900, 2000);
    const std::uint64_t id = model(job, "undisturbed");
    train_steps(job, id, steps);
    return weights_of(job, id, 3 * steps + 1);
  }

  template <class Done>
  bool turn_until(const Done& done) {
    const TimePoint end = system_clock().now() + Duration{10 * kSecond.ns};
    while (!done()) {
      if (system_clock().now() > end) return false;
      EXPECT_TRUE(loop_->run_once(Duration{20 * kMillisecond.ns}));
    }
    return true;
  }
  // Lets everything that is under way come to its end.
  void settle() {
    const TimePoint end = system_clock().now() + Duration{50 * kMillisecond.ns};
    while (system_clock().now() < end) EXPECT_TRUE(loop_->run_once(Duration{5 * kMillisecond.ns}));
  }

  std::unique_ptr<engine::Engine> make_engine(engine::EngineSpec spec,
                                              engine::EngineListener& listener) {
    auto& kept = engines_[spec.id];
    if (!kept) kept = std::make_unique<KeptEngine>(*loop_, std::move(spec), fake_options_);
    return std::make_unique<EngineHandle>(*kept, listener);
  }
  static Result<Pools> make_pools(const state::PoolSizes& sizes) {
    Pools pools;
    pools.sizes = sizes;
    PLEXRL_ASSIGN(pools.device,
                  device::create_cpu_pool("device", sizes.chunk_bytes, sizes.device_chunks));
    PLEXRL_ASSIGN(pools.host,
                  device::create_cpu_pool("host", sizes.chunk_bytes, sizes.host_chunks));
    return pools;
  }
  engine::FakeEngine& fake(std::uint64_t id = 1) { return *engines_.at(EngineId{id})->fake; }

  std::string dir_;
  std::string boot_ = "boot-1";
  config::SiteConfig config_;
  engine::FakeEngineOptions fake_options_;
  std::unique_ptr<loop::EventLoop> loop_ = loop::EventLoop::create().value();
  std::unique_ptr<store::StateStore> store_ = store::make_memory_store();
  std::unique_ptr<store::WriteQueue> writes_;
  bool disk_held_ = false;
  std::shared_ptr<store::MemoryDisk> blob_disk_ = std::make_shared<store::MemoryDisk>();
  loop::Timer timer_;
  std::map<EngineId, std::unique_ptr<KeptEngine>> engines_;
  std::unique_ptr<NodeRuntime> node_;
  SessionId session_{1};
  std::uint64_t requests_ = 0;
  Reaper* reaper_seam_ = nullptr;
  int tokens_ = 0;
};

}  // namespace plexrl::runtime
