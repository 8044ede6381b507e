// SPDX-License-Identifier: Apache-2.0
// Deaths of engines and of plexrld: nothing acknowledged is lost, nothing is applied twice.
#include "fakes/faulty_store.h"
#include "node_fixture.h"

namespace plexrl::runtime {
namespace {

class NodeFaults : public NodeFixture {};

TEST_F(NodeFaults, AnEngineThatDiesInAnyOpIsReplayedBitForBit) {
  for (std::uint64_t op = 1; op <= 9; ++op) {
    SCOPED_TRACE(op);
    fake_options_ = {};
    store_ = store::make_memory_store();
    start();
    const TenantId job = open_job(1);
    const std::uint64_t id = model(job);
    fake().options().die_at_op = op;
    train_steps(job, id, 3);
    EXPECT_EQ(fake().pid() != 0, true);
    const auto replayed = weights_of(job, id, 10);
    EXPECT_EQ(replayed, undisturbed(3));
    EXPECT_EQ(node_->ops().all().size(), 0U);
    lose_engines();
  }
}

class NodeFullDisk : public NodeFaults {
 protected:
  NodeFullDisk() {
    auto faulty = std::make_unique<store::FaultyStore>(*below_);
    disk_ = faulty.get();
    store_ = std::move(faulty);
  }
  ~NodeFullDisk() override { node_.reset(); }
  void fill_disk() {
    disk_->fault = [] { return store::FaultyStore::Fault::kBefore; };
  }
  void empty_disk() {
    disk_->fault = [] { return store::FaultyStore::Fault::kNone; };
  }

  static bool holds(const store::Batch& batch, std::string_view table, std::uint64_t key) {
    return std::any_of(batch.changes().begin(), batch.changes().end(), [&](const auto& change) {
      return change.table == table && change.key == key;
    });
  }

  std::unique_ptr<store::StateStore> below_ = store::make_memory_store();
  store::FaultyStore* disk_ = nullptr;
};

TEST_F(NodeFullDisk, TrainingWaitsInOrderAndSamplingGoesOn) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 1);
  fill_disk();
  const auto first = submit(job, id, 4, train(1));
  const auto second = submit(job, id, 5, train(8));
  const auto last = submit(job, id, 6, optim());
  EXPECT_TRUE(run(job, id, 0, generate()).status.ok());
  settle();
  EXPECT_FALSE(first->outcome.has_value());
  EXPECT_FALSE(last->outcome.has_value());
  empty_disk();
  EXPECT_TRUE(wait(first).status.ok());
  EXPECT_TRUE(wait(second).status.ok());
  EXPECT_TRUE(wait(last).status.ok());
  EXPECT_EQ(last->answers, 1);
  EXPECT_EQ(weights_of(job, id, 7), undisturbed(2));
}

TEST_F(NodeFullDisk, AWaitingOpCanBeCancelledAndTheNextOneRuns) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  fill_disk();
  const auto dropped = submit(job, id, 1, train(1), 41);
  const auto kept = submit(job, id, 2, train(1), 42);
  node_->op_service().cancel(session_, 41);
  empty_disk();
  EXPECT_EQ(wait(dropped).status.code(), Code::CANCELLED);
  EXPECT_TRUE(wait(kept).status.ok());
}

TEST_F(NodeFullDisk, AResultIsToldOnlyOnceItIsStoredAndIsReplayedBefore) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 1);
  fake_options_.op_time = Duration{30 * kMillisecond.ns};
  fake().options().op_time = Duration{30 * kMillisecond.ns};
  const auto first = submit(job, id, 4, train(1));
  ASSERT_TRUE(turn_until([&] { return node_->ops().running(job) == 1; }));
  fill_disk();
  ASSERT_TRUE(turn_until([&] { return node_->ops().all().empty(); }));
  const auto again = submit(job, id, 4, train(1));
  settle();
  EXPECT_FALSE(first->outcome.has_value());
  EXPECT_FALSE(again->outcome.has_value());
  fake().kill();
  empty_disk();
  EXPECT_TRUE(wait(first).status.ok());
  EXPECT_TRUE(wait(again).status.ok());
  ASSERT_TRUE(run(job, id, 5, train(8)).status.ok());
  ASSERT_TRUE(run(job, id, 6, optim()).status.ok());
  EXPECT_EQ(weights_of(job, id, 7), undisturbed(2));
}

TEST_F(NodeFullDisk, AnOpWhoseResultIsLostIsUndoneAndRunOnce) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 1);
  fake().options().op_time = Duration{30 * kMillisecond.ns};
  const auto first = submit(job, id, 4, train(1));
  const auto second = submit(job, id, 5, train(8));
  ASSERT_TRUE(turn_until([&] { return node_->ops().running(job) == 1; }));
  fill_disk();
  ASSERT_TRUE(turn_until([&] { return node_->ops().all().empty(); }));
  EXPECT_FALSE(second->outcome.has_value());
  empty_disk();
  restart();
  // The engine has delivered both results, and the store has neither.
  ASSERT_TRUE(run(job, id, 4, train(1)).status.ok());
  ASSERT_TRUE(run(job, id, 5, train(8)).status.ok());
  ASSERT_TRUE(run(job, id, 6, optim()).status.ok());
  EXPECT_EQ(weights_of(job, id, 7), undisturbed(2));
}

TEST_F(NodeFullDisk, ARowThatTheDiskRefusesKeepsNoOtherModelWaiting) {
  start();
  const TenantId a = open_job(1);
  const TenantId b = open_job(2, 1001);
  const std::uint64_t ma = model(a);
  const std::uint64_t mb = model(b);
  disk_->of_batch = [ma](const store::Batch& batch) {
    return holds(batch, "results", ma) ? store::FaultyStore::Fault::kBefore
                                       : store::FaultyStore::Fault::kNone;
  };
  const auto refused = submit(a, ma, 1, train(1));
  for (std::uint64_t seq = 1; seq <= 3; ++seq)
    EXPECT_TRUE(run(b, mb, seq, train(1)).status.ok()) << seq;
  EXPECT_EQ(run(a, ma, 2, train(1)).status.code(), Code::BUSY);
  EXPECT_FALSE(refused->outcome.has_value());
  disk_->of_batch = [](const store::Batch&) { return store::FaultyStore::Fault::kNone; };
  EXPECT_TRUE(wait(refused).status.ok());
}

// The store takes the manifest of step 2 and says that it did not; then it takes no manifest, so
// that the one of step 1 cannot be put back.
TEST_F(NodeFullDisk, ALossIsToldOnlyOnceNoRestartCanFindTheState) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 1);
  settle();
  using Fault = store::FaultyStore::Fault;
  Fault manifests = Fault::kAfter;
  disk_->of_batch = [&](const store::Batch& batch) {
    return holds(batch, "manifests", id) ? manifests : Fault::kNone;
  };
  ASSERT_TRUE(run(job, id, 4, train(1)).status.ok());
  ASSERT_TRUE(run(job, id, 5, train(8)).status.ok());
  ASSERT_TRUE(run(job, id, 6, optim()).status.ok());
  settle();
  manifests = Fault::kBefore;
  // What is to be replayed is gone, and with it the state.
  ASSERT_TRUE(below_->erase("ops", id, 5).ok());
  fake().kill();
  ASSERT_TRUE(turn_until([&] { return node_->models().find(ModelId{id})->lost; }));
  const auto gone = submit(job, id, 0, generate());
  settle();
  EXPECT_FALSE(gone->outcome.has_value());
  node_->op_service().session_closed(session_);
  manifests = Fault::kNone;
  ASSERT_TRUE(turn_until([&] { return node_->store_trouble().empty(); }));
  EXPECT_EQ(run(job, id, 0, generate()).status.code(), Code::LOST) << "nobody was told yet";
  EXPECT_TRUE(run(job, id, 7, train(3)).status.ok());
  restart();
  fake().kill();
  ASSERT_TRUE(run(job, id, 8, train(8)).status.ok());
  const OpOutcome step = run(job, id, 9, optim());
  ASSERT_TRUE(step.status.ok()) << step.status.to_string();
  EXPECT_EQ(step.reply.value.AsOptimStepResult()->step, 2U) << "the client was told of step 1";
}

TEST_F(NodeFaults, AnEngineThatDiesBetweenOpsLosesNothing) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 2);
  ASSERT_TRUE(run(job, id, 7, train(2)).status.ok());
  fake().kill();
  ASSERT_TRUE(run(job, id, 8, train(8)).status.ok());
  ASSERT_TRUE(run(job, id, 9, optim()).status.ok());
  EXPECT_EQ(weights_of(job, id, 10), undisturbed(3));
  EXPECT_GE(node_->accounting().totals(job).replayed_ops, 1U);
}

TEST_F(NodeFaults, SamplingIsRunAgainWithTheSameBits) {
  fake_options_.op_time = Duration{10 * kMillisecond.ns};
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const OpOutcome whole = run(job, id, 0, generate());
  fake().options().die_in_op = fake().ops_started() + 1;
  const OpOutcome again = run(job, id, 0, generate());
  ASSERT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_EQ(again.reply.value.AsGenerateResult()->sequences[0]->tokens,
            whole.reply.value.AsGenerateResult()->sequences[0]->tokens);
}

TEST_F(NodeFaults, AVersionIsThereAgainAfterADeath) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 1);
  const OpOutcome saved = run(job, id, 4, publish());
  ASSERT_TRUE(saved.status.ok());
  const std::uint64_t version = saved.reply.value.AsSaveResult()->version;
  const OpOutcome before = run(job, id, 0, generate(version));
  fake().kill();
  const OpOutcome after = run(job, id, 0, generate(version));
  ASSERT_TRUE(after.status.ok()) << after.status.to_string();
  EXPECT_EQ(after.reply.value.AsGenerateResult()->sequences[0]->tokens,
            before.reply.value.AsGenerateResult()->sequences[0]->tokens);
}

TEST_F(NodeFaults, AnOpThatKillsItsEngineEveryTimeIsGivenUp) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const auto poison = submit(job, id, 1, train(3));
  for (unsigned death = 1; death <= Recovery::kMaxDeaths; ++death) {
    fake().options().die_at_op = fake().ops_started() + 1;
    const auto started = fake().ops_started();
    ASSERT_TRUE(turn_until([&] { return fake().ops_started() > started; }));
  }
  fake().options().die_at_op = 0;
  const OpOutcome outcome = wait(poison);
  EXPECT_EQ(outcome.status.code(), Code::INTERNAL) << outcome.status.to_string();
  EXPECT_TRUE(run(job, id, 2, train(3)).status.ok());
}

TEST_F(NodeFaults, AnOpThatDoesNotYieldHasItsEngineEndedAndOthersGoOn) {
  config_.daemon.yield_timeout_ms = 30;
  fake_options_.op_time = Duration{2 * kSecond.ns};
  fake_options_.never_yield = true;
  start_with_room_for_one();
  const TenantId a = open_job(1, 1000, "full", 4);
  const TenantId b = open_job(2, 1001, "full", 4);
  const std::uint64_t ma = model(a, "p", wire::TrainMode::Full);
  const std::uint64_t mb = model(b, "p", wire::TrainMode::Full);
  const auto stuck = submit(a, ma, 0, generate());
  ASSERT_TRUE(turn_until([&] { return fake(1).ops_started() == 1; }));
  fake(2).options().op_time = {};
  EXPECT_TRUE(run(b, mb, 1, train(3)).status.ok());
  fake(1).options().op_time = {};
  EXPECT_TRUE(wait(stuck).status.ok());
  EXPECT_EQ(node_->engines().view(EngineId{1}).restarts, 1U);
}

TEST_F(NodeFaults, ARestartOfPlexrldKeepsModelsResultsAndTokens) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 2);
  ASSERT_TRUE(run(job, id, 7, train(2)).status.ok());
  restart();
  EXPECT_TRUE(node_->tenants().authenticate("token1", 1000));
  EXPECT_EQ(model(job), id);
  EXPECT_EQ(create(job)->next_seq, 8U);
  EXPECT_EQ(run(job, id, 6, optim()).reply.value.AsOptimStepResult()->step, 2U);
  ASSERT_TRUE(run(job, id, 8, train(8)).status.ok());
  ASSERT_TRUE(run(job, id, 9, optim()).status.ok());
  EXPECT_EQ(weights_of(job, id, 10), undisturbed(3));
}

TEST_F(NodeFaults, WhenTheHostTierIsGoneEachModelSaysSoOnceAndGoesOnFromItsBase) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 2);
  settle();
  lose_engines();
  start();
  const auto info = create(job);
  ASSERT_TRUE(info) << info.error().to_string();
  EXPECT_EQ(info->model, id);
  ASSERT_TRUE(turn_until([&] { return node_->models().find(ModelId{id})->lost; }));
  const OpOutcome lost = run(job, id, 7, train(3));
  EXPECT_EQ(lost.status.code(), Code::LOST) << lost.status.to_string();
  ASSERT_TRUE(run(job, id, 8, train(3)).status.ok());
  const OpOutcome step = run(job, id, 9, optim());
  ASSERT_TRUE(step.status.ok()) << step.status.to_string();
  EXPECT_EQ(step.reply.value.AsOptimStepResult()->step, 1U);
}

TEST_F(NodeFaults, ALossIsToldOnceAndWhatCameAfterItIsReplayed) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 2);
  settle();
  lose_engines();
  start();
  ASSERT_TRUE(turn_until([&] { return node_->models().find(ModelId{id})->lost; }));
  EXPECT_EQ(run(job, id, 7, train(3)).status.code(), Code::LOST);
  ASSERT_TRUE(run(job, id, 8, train(0)).status.ok());
  fake().kill();
  const OpOutcome second = run(job, id, 9, train(8));
  ASSERT_TRUE(second.status.ok()) << second.status.to_string();
  settle();
  restart();
  fake().kill();
  const OpOutcome step = run(job, id, 10, optim());
  ASSERT_TRUE(step.status.ok()) << step.status.to_string();
  EXPECT_EQ(weights_of(job, id, 11), undisturbed(1));
}

TEST_F(NodeFaults, ARequeueInTheMiddleOfAReplayKeepsTheState) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  ASSERT_TRUE(run(job, id, 1, train(0)).status.ok());
  ASSERT_TRUE(run(job, id, 2, train(8)).status.ok());
  settle();
  fake().options().op_time = Duration{20 * kMillisecond.ns};
  fake().kill();
  ASSERT_TRUE(turn_until([&] { return node_->ops().running(job) == 1; }));
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  fake().options().op_time = {};
  ASSERT_EQ(open_job(1), job);
  ASSERT_TRUE(run(job, id, 3, optim()).status.ok());
  EXPECT_EQ(weights_of(job, id, 4), undisturbed(1));
}

TEST_F(NodeFaults, ALossIsNotTakenByAnOpThatDoesNotTellIt) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 2);
  settle();
  lose_engines();
  start();
  ASSERT_TRUE(create(job));
  ASSERT_TRUE(turn_until([&] { return node_->models().find(ModelId{id})->lost; }));
  EXPECT_TRUE(run(job, id, 6, optim()).status.ok()) << "an old number has its old result";
  (void)submit(job, id, 8, train(3));  // comes before its turn
  EXPECT_EQ(run(job, id, 7, train(3)).status.code(), Code::LOST);
  EXPECT_TRUE(run(job, id, 9, optim()).status.ok());
}

TEST_F(NodeFaults, ALossIsToldWhenRefusedOpsAreAllThatIsRemembered) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 1);
  settle();
  std::uint64_t seq = 3;
  while (seq < 3 * OpLog::kKeptResults)
    ASSERT_EQ(run(job, id, ++seq, optim(-1)).status.code(), Code::INVALID_ARGUMENT);
  settle();
  lose_engines();
  start();
  ASSERT_TRUE(create(job));
  settle();
  EXPECT_EQ(run(job, id, ++seq, train(3)).status.code(), Code::LOST);
}

// A first failure to connect stands for an answer after the pools were settled.
TEST_F(NodeFaults, AnEngineThatComesBackWithOldPoolsIsEndedAndItsModelIsLost) {
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  train_steps(job, id, 2);
  settle();
  fake().options().fail_starts = 1;
  restart();
  const OpOutcome lost = run(job, id, 7, train(3));
  EXPECT_EQ(lost.status.code(), Code::LOST) << lost.status.to_string();
  ASSERT_TRUE(run(job, id, 8, train(3)).status.ok());
  const OpOutcome step = run(job, id, 9, optim());
  ASSERT_TRUE(step.status.ok()) << step.status.to_string();
  EXPECT_EQ(step.reply.value.AsOptimStepResult()->step, 1U);
  settle();
  const auto before = weights_of(job, id, 10);
  fake().kill();
  EXPECT_EQ(weights_of(job, id, 11), before);
}

TEST_F(NodeFaults, PoolsOfAnEarlierTimeAreNotTakenForThoseOfTheManifests) {
  start();
  const TenantId a = open_job(1, 1000, "full");
  const TenantId b = open_job(2, 1001, "full");
  const std::uint64_t ma = model(a, "p", wire::TrainMode::Full);
  const std::uint64_t mb = model(b, "p", wire::TrainMode::Full);
  train_steps(a, ma, 2);
  settle();
  fake(1).options().fail_starts = 100;  // it is not heard of while the next plexrld lives
  fake(2).options().fail_starts = 1;
  restart();
  ASSERT_TRUE(run(b, mb, 1, train(3)).status.ok());
  ASSERT_TRUE(run(b, mb, 2, optim()).status.ok());
  const auto before = weights_of(b, mb, 3);
  settle();
  fake(1).options().fail_starts = 0;
  restart();
  EXPECT_EQ(weights_of(b, mb, 4), before);
  fake(2).kill();
  EXPECT_EQ(weights_of(b, mb, 5), before);
  EXPECT_EQ(run(a, ma, 7, train(3)).status.code(), Code::LOST);
}

TEST_F(NodeFaults, AnEngineThatDoesNotStartFailsTheCreateWithItsReason) {
  fake_options_.fail_starts = 3;
  start();
  const TenantId job = open_job(1);
  const auto info = create(job);
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code(), Code::ENGINE_DOWN);
  EXPECT_TRUE(turn_until([&] { return node_->engines().ready(EngineId{1}); }));
  EXPECT_TRUE(create(job));
}

TEST_F(NodeFaults, ResumesThatFailAFewTimesAreTriedAgain) {
  fake_options_.fail_resumes = 2;
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  EXPECT_TRUE(run(job, id, 0, generate()).status.ok());
}

TEST_F(NodeFaults, ACancelledOpThatRunsWhenItsEngineDiesEndsAsCancelled) {
  fake_options_.op_time = Duration{kSecond.ns};
  fake_options_.never_yield = true;
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const auto pending = submit(job, id, 0, generate(), 77);
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() == 1; }));
  node_->op_service().cancel(session_, 77);
  fake().kill();
  EXPECT_EQ(wait(pending).status.code(), Code::CANCELLED);
  fake().options() = {};
  EXPECT_TRUE(run(job, id, 0, generate()).status.ok());
  EXPECT_EQ(node_->ops().all().size(), 0U);
}

TEST_F(NodeFaults, ATrainingOpOfARemovedModelEndsWithItsEngine) {
  fake_options_.op_time = Duration{kSecond.ns};
  start();
  const TenantId job = open_job(1);
  const std::uint64_t id = model(job);
  const auto pending = submit(job, id, 1, train(3));
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() == 1; }));
  ASSERT_TRUE(node_->model_service().remove(job, ModelId{id}).ok());
  fake().kill();
  EXPECT_EQ(wait(pending).status.code(), Code::CANCELLED);
  EXPECT_EQ(node_->models().find(ModelId{id}), nullptr);
  EXPECT_EQ(node_->ops().all().size(), 0U);
  fake().options() = {};
  EXPECT_TRUE(run(job, model(job, "next"), 1, train(3)).status.ok());
}

TEST_F(NodeFaults, AModelRemovedWhileItIsParkedGoes) {
  start_with_room_for_one();
  const TenantId a = open_job(1, 1000, "full", 4);
  const TenantId b = open_job(2, 1001, "full", 4);
  const std::uint64_t ma = model(a, "p", wire::TrainMode::Full);
  const std::uint64_t mb = model(b, "p", wire::TrainMode::Full);
  ASSERT_TRUE(run(a, ma, 1, train(3)).status.ok());
  const auto next = submit(b, mb, 1, train(3));  // the other one has to make way
  ASSERT_TRUE(node_->dispatcher().mover().moving(ModelId{ma}));
  ASSERT_TRUE(node_->model_service().remove(a, ModelId{ma}).ok());
  EXPECT_TRUE(wait(next).status.ok());
  EXPECT_TRUE(turn_until([&] { return node_->models().find(ModelId{ma}) == nullptr; }));
}

TEST_F(NodeFaults, AnEngineThatDiesWhileItsRemovedModelComesInIsStopped) {
  start();
  const TenantId job = open_job(1, 1000, "full");
  const std::uint64_t id = model(job, "p", wire::TrainMode::Full);
  const auto pending = submit(job, id, 0, generate());
  ASSERT_TRUE(node_->dispatcher().mover().moving(ModelId{id}));
  ASSERT_TRUE(node_->model_service().remove(job, ModelId{id}).ok());
  fake().kill();
  EXPECT_EQ(wait(pending).status.code(), Code::CANCELLED);
  EXPECT_TRUE(turn_until([&] { return node_->models().engines().empty(); }));
}

}  // namespace
}  // namespace plexrl::runtime
