// SPDX-License-Identifier: Apache-2.0
// The disk takes its time: what is told is on it, what is not told may be lost with plexrld and is
// then done once all the same. The disk is held and let go by hand.
#include "fakes/faulty_store.h"
#include "node_fixture.h"

namespace plexrl::runtime {
namespace {

class NodeDurable : public NodeFixture {
 protected:
  void begin() {
    start();
    job_ = open_job(1);
    id_ = model(job_);
    train_steps(job_, id_, 2);
    settle();
  }
  bool ops_are_over() {
    return turn_until([&] { return node_->ops().all().empty(); });
  }
  // Training goes on with number 7 as if nothing had happened.
  void goes_on_from_seven() {
    ASSERT_TRUE(run(job_, id_, 7, train(2)).status.ok());
    ASSERT_TRUE(run(job_, id_, 8, train(8)).status.ok());
    ASSERT_TRUE(run(job_, id_, 9, optim()).status.ok());
    EXPECT_EQ(weights_of(job_, id_, 10), undisturbed(3));
    EXPECT_TRUE(node_->ops().all().empty());
  }
  std::uint64_t applied() { return node_->models().find(ModelId{id_})->position.applied_seq; }

  TenantId job_;
  std::uint64_t id_ = 0;
};

TEST_F(NodeDurable, TheNextOpsRunWhileAResultIsOnItsWayToTheDisk) {
  begin();
  hold_disk();
  const auto first = submit(job_, id_, 7, train(2));
  const auto second = submit(job_, id_, 8, train(8));
  const auto step = submit(job_, id_, 9, optim());
  EXPECT_TRUE(run(job_, id_, 0, generate()).status.ok());
  ASSERT_TRUE(ops_are_over());
  const auto again = submit(job_, id_, 7, train(2));
  settle();
  EXPECT_FALSE(first->outcome || second->outcome || step->outcome || again->outcome);
  let_disk_go();
  EXPECT_TRUE(wait(first).status.ok());
  EXPECT_TRUE(wait(again).status.ok());
  EXPECT_TRUE(wait(step).status.ok());
  EXPECT_EQ(first->answers + again->answers, 2);
  EXPECT_EQ(weights_of(job_, id_, 10), undisturbed(3));
}

TEST_F(NodeDurable, AnOpThatRanBeforeTheDiskHadItIsUndoneByAKillAndRunOnce) {
  begin();
  hold_disk();
  const auto lost = submit(job_, id_, 7, train(2));
  ASSERT_TRUE(ops_are_over());
  EXPECT_EQ(applied(), 7U);
  restart();
  EXPECT_FALSE(lost->outcome);
  goes_on_from_seven();
}

TEST_F(NodeDurable, AStepThatRanBeforeTheDiskHadItIsUndoneByAKillAndRunOnce) {
  begin();
  ASSERT_TRUE(run(job_, id_, 7, train(2)).status.ok());
  ASSERT_TRUE(run(job_, id_, 8, train(8)).status.ok());
  hold_disk();
  (void)submit(job_, id_, 9, optim());
  ASSERT_TRUE(ops_are_over());
  settle();  // its commit is copied; the manifest waits for the disk
  restart();
  EXPECT_EQ(node_->accounting().totals(job_).replayed_ops, 0U);
  goes_on_from_seven();
  EXPECT_EQ(node_->accounting().totals(job_).replayed_ops, 2U);
}

TEST_F(NodeDurable, AnOpThatRunsBeforeTheDiskHasItIsDroppedByAKillAndRunOnce) {
  begin();
  hold_disk();
  fake().options().op_time = Duration{40 * kMillisecond.ns};
  const auto started = fake().ops_started();
  (void)submit(job_, id_, 7, train(2));
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() > started; }));
  restart();
  fake().options().op_time = {};
  goes_on_from_seven();
}

// Had its gradients been kept, the op would add to them a second time.
TEST_F(NodeDurable, AnOpThatYieldedBeforeTheDiskHadItIsDroppedByAKillAndRunOnce) {
  begin();
  hold_disk();
  fake().options().op_time = Duration{40 * kMillisecond.ns};
  const auto started = fake().ops_started();
  (void)submit(job_, id_, 7, train(2));
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() > started; }));
  (void)node_->drain();
  ASSERT_TRUE(turn_until([&] { return node_->dispatcher().idle(); }));
  restart();
  fake().options().op_time = {};
  goes_on_from_seven();
}

TEST_F(NodeDurable, AnOpWhoseResultTheDiskDidNotGetIsUndoneByAKillAndRunOnce) {
  begin();
  fake().options().op_time = Duration{20 * kMillisecond.ns};
  const auto started = fake().ops_started();
  const auto lost = submit(job_, id_, 7, train(2));
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() > started && writes_->idle(); }));
  hold_disk();
  ASSERT_TRUE(ops_are_over());
  fake().options().op_time = {};
  restart();
  EXPECT_FALSE(lost->outcome);
  goes_on_from_seven();
}

TEST_F(NodeDurable, AResultThatIsOnDiskAndWasNotToldIsToldAfterAKill) {
  begin();
  hold_disk();
  const auto lost = submit(job_, id_, 7, train(2));
  ASSERT_TRUE(ops_are_over());
  ASSERT_TRUE(writes_->write_group());
  const auto runs = fake().ops_started();
  restart();
  EXPECT_FALSE(lost->outcome);
  ASSERT_TRUE(run(job_, id_, 7, train(2)).status.ok());
  EXPECT_EQ(fake().ops_started(), runs) << "the state is there, the result too";
  goes_on_from_seven();
}

TEST_F(NodeDurable, AnEngineThatDiesWhileItsManifestIsOnItsWayFallsBackToTheNewOne) {
  begin();
  ASSERT_TRUE(run(job_, id_, 7, train(2)).status.ok());
  ASSERT_TRUE(run(job_, id_, 8, train(8)).status.ok());
  hold_disk();
  const auto step = submit(job_, id_, 9, optim());
  ASSERT_TRUE(ops_are_over());
  ASSERT_TRUE(turn_until([&] { return !writes_->idle(); }));
  settle();
  fake().kill();
  EXPECT_TRUE(wait(step).status.ok()) << "the store is settled before the recovery";
  let_disk_go();
  EXPECT_EQ(weights_of(job_, id_, 10), undisturbed(3));
  EXPECT_EQ(node_->accounting().totals(job_).replayed_ops, 0U);
}

TEST_F(NodeDurable, AParkedModelWaitsForItsManifestWhileOthersRun) {
  start_with_room_for_one();
  const TenantId a = open_job(1, 1000, "full", 4);
  const TenantId b = open_job(2, 1001, "full", 4);
  const std::uint64_t ma = model(a, "p", wire::TrainMode::Full);
  const std::uint64_t mb = model(b, "p", wire::TrainMode::Full);
  train_steps(a, ma, 1);
  ASSERT_TRUE(run(a, ma, 4, publish()).status.ok());
  settle();
  ASSERT_TRUE(run(a, ma, 5, train(1)).status.ok());
  ASSERT_TRUE(run(a, ma, 6, optim()).status.ok());
  hold_disk();
  EXPECT_TRUE(run(b, mb, 0, generate()).status.ok());
  EXPECT_FALSE(node_->models().find(ModelId{ma})->resident);
  const auto back = submit(a, ma, 0, generate(4));
  settle();
  let_disk_go();
  EXPECT_TRUE(wait(back).status.ok());
}

class NodeSlowFullDisk : public NodeDurable {
 protected:
  NodeSlowFullDisk() {
    auto faulty = std::make_unique<store::FaultyStore>(*below_);
    disk_ = faulty.get();
    store_ = std::move(faulty);
  }
  ~NodeSlowFullDisk() override {
    node_.reset();
    writes_.reset();
  }
  std::unique_ptr<store::StateStore> below_ = store::make_memory_store();
  store::FaultyStore* disk_ = nullptr;
};

TEST_F(NodeSlowFullDisk, AnOpThatRanAndThatTheDiskRefusedIsRunOnceAfterAKill) {
  begin();
  disk_->fault = [] { return store::FaultyStore::Fault::kBefore; };
  const auto lost = submit(job_, id_, 7, train(2));
  ASSERT_TRUE(ops_are_over());
  settle();
  EXPECT_FALSE(node_->store_trouble().empty());
  EXPECT_EQ(run(job_, id_, 8, train(8)).status.code(), Code::BUSY);
  EXPECT_TRUE(run(job_, id_, 0, generate()).status.ok());
  disk_->fault = [] { return store::FaultyStore::Fault::kNone; };
  restart();
  EXPECT_FALSE(lost->outcome);
  goes_on_from_seven();
}

// The store refused the rows of the ops and is there again for the commit that holds them.
TEST_F(NodeSlowFullDisk, ACancelledOpBeforeACommitIsNotTakenForOneThatRan) {
  begin();
  fake().options().op_time = Duration{40 * kMillisecond.ns};
  const auto started = fake().ops_started();
  const auto first = submit(job_, id_, 7, train(2));
  const auto dropped = submit(job_, id_, 8, train(8), 77);
  const auto last = submit(job_, id_, 9, optim());
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() > started && writes_->idle(); }));
  disk_->fault = [] { return store::FaultyStore::Fault::kBefore; };
  node_->op_service().cancel(session_, 77);
  ASSERT_TRUE(turn_until([&] { return fake().ops_started() > started + 1; }));
  disk_->fault = [] { return store::FaultyStore::Fault::kNone; };
  const auto* const manifest = node_->state().manifest(ModelId{id_});
  ASSERT_TRUE(turn_until([&] { return manifest->position.applied_seq == 9; }));
  restart();
  EXPECT_EQ(run(job_, id_, 8, train(8)).status.code(), Code::CANCELLED);
  EXPECT_TRUE(run(job_, id_, 7, train(2)).status.ok());
  EXPECT_TRUE(run(job_, id_, 9, optim()).status.ok());
}

TEST_F(NodeSlowFullDisk, AVersionThatWasToldIsKnownAfterARestart) {
  begin();
  disk_->fault = [] { return store::FaultyStore::Fault::kBefore; };
  const auto told = submit(job_, id_, 7, publish());
  ASSERT_TRUE(ops_are_over());
  settle();
  disk_->fault = [] { return store::FaultyStore::Fault::kNone; };
  ASSERT_TRUE(wait(told).status.ok());
  EXPECT_TRUE(run(job_, id_, 0, generate(7)).status.ok());
  settle();
  restart();
  const OpOutcome sampled = run(job_, id_, 0, generate(7));
  EXPECT_TRUE(sampled.status.ok()) << sampled.status.to_string();
}

// The row of a model whose job is gone must not keep plexrld from starting.
TEST_F(NodeSlowFullDisk, AJobThatIsDroppedOnAFullDiskLeavesNothing) {
  begin();
  ASSERT_TRUE(node_->tenant_service().close(1).ok());
  settle();
  disk_->fault = [] { return store::FaultyStore::Fault::kBefore; };
  ASSERT_TRUE(node_->tenant_service().evict(1).ok());
  ASSERT_TRUE(turn_until([&] { return node_->models().all().empty() && writes_->idle(); }));
  disk_->fault = [] { return store::FaultyStore::Fault::kNone; };
  ASSERT_TRUE(turn_until([&] { return !node_->tenants().in_doubt(); }));
  restart();
  ASSERT_TRUE(turn_until([&] { return writes_->idle(); }));
  for (const char* table : {"tenants", "models", "manifests", "ops", "results"}) {
    int rows = 0;
    ASSERT_TRUE(below_->scan(table, [&](auto, auto, auto) { ++rows; }).ok());
    EXPECT_EQ(rows, 0) << table;
  }
}

// The store took the rows and could not say so: the job and the model are made again.
TEST_F(NodeSlowFullDisk, ARowThatIsThereThoughItsWriteFailedIsNotTakenForAnother) {
  start();
  const auto failing = [this](const auto& call) {
    disk_->fault = [] { return store::FaultyStore::Fault::kAfter; };
    const Status status = call();
    disk_->fault = [] { return store::FaultyStore::Fault::kBefore; };
    settle();
    disk_->fault = [] { return store::FaultyStore::Fault::kNone; };
    return status;
  };
  wire::OpenJobT open;
  open.job_id = 1;
  open.uid = 1000;
  open.grant = grant_text("lora", 3);  // of 4 MiB that there are
  Status opened;
  EXPECT_EQ(failing([&] {
              node_->tenant_service().open(open, [&](const Status& status) { opened = status; });
              return opened;
            }).code(),
            Code::IO);
  const TenantId job = open_job(1, 1000, "lora", 3);
  ASSERT_TRUE(create(job, "other"));
  EXPECT_EQ(failing([&] { return create(job).status(); }).code(), Code::IO);
  const std::uint64_t id = model(job);
  ASSERT_TRUE(run(job, id, 1, train(1)).status.ok());
  settle();
  restart();
  EXPECT_EQ(node_->tenants().all().size(), 1U);
  EXPECT_EQ(node_->models().of_tenant(job).size(), 2U);
  EXPECT_EQ(model(job), id);
  EXPECT_TRUE(run(job, id, 2, optim()).status.ok());
}

// The park's manifest fails: the model goes back and its ops are run again.
TEST_F(NodeSlowFullDisk, AParkThatTheDiskRefusesIsMadeGood) {
  start_with_room_for_one();
  const TenantId a = open_job(1, 1000, "full", 4);
  const TenantId b = open_job(2, 1001, "full", 4);
  const std::uint64_t ma = model(a, "p", wire::TrainMode::Full);
  const std::uint64_t mb = model(b, "p", wire::TrainMode::Full);
  train_steps(a, ma, 2);
  settle();
  ASSERT_TRUE(run(a, ma, 7, train(2)).status.ok());
  ASSERT_TRUE(run(a, ma, 8, train(8)).status.ok());
  bool optim_ran = false;
  disk_->fault = [&] {
    return optim_ran ? store::FaultyStore::Fault::kBefore : store::FaultyStore::Fault::kNone;
  };
  const auto step = submit(a, ma, 9, optim());
  ASSERT_TRUE(turn_until([&] { return node_->ops().of_model(ModelId{ma}).empty(); }));
  optim_ran = true;
  EXPECT_TRUE(run(b, mb, 0, generate()).status.ok());
  settle();
  optim_ran = false;
  EXPECT_TRUE(wait(step).status.ok());
  const auto weights = weights_of(a, ma, 10);
  EXPECT_FALSE(weights.empty());
  EXPECT_EQ(weights_of(a, ma, 11), weights);
}

// A disk that fails between two erasures, or takes a row and does not say so.
TEST_F(NodeDurable, AModelWithoutAnEngineIsRemovedAtTheStart) {
  start();
  const TenantId job = open_job(1, 1000, "full");
  const std::uint64_t id = model(job, "policy", wire::TrainMode::Full);
  const std::uint64_t engine = node_->models().find(ModelId{id})->engine.value;
  lose_engines();
  ASSERT_TRUE(store_->erase("engines", engine, 0).ok());
  start();
  EXPECT_TRUE(node_->models().all().empty());
  EXPECT_NE(model(job, "policy", wire::TrainMode::Full), id);
}

}  // namespace
}  // namespace plexrl::runtime
