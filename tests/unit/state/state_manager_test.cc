// SPDX-License-Identifier: Apache-2.0
#include "state/state_manager.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fakes/faulty_store.h"
#include "fakes/queued_store.h"
#include "state/manifest_codec.h"

namespace plexrl::state {
namespace {

constexpr std::uint64_t kChunk = 100;
constexpr TenantId kTenant{1};
constexpr ModelId kModel{10};
constexpr ModelId kBase{11};

const std::vector<SegmentSpec> kSegments = {{SegmentKind::kWeights, 250, true},
                                            {SegmentKind::kAdamM, 200, true},
                                            {SegmentKind::kAdamV, 200, true},
                                            {SegmentKind::kSamplerWeights, 250, true},
                                            {SegmentKind::kGradients, 250, false}};
// Committed 3 + 2 + 2 + 3 = 10 chunks, gradients 3.
constexpr std::uint64_t kAdmitted = 23 * kChunk;
constexpr std::uint64_t kDevice = 13 * kChunk;

class StateManagerTest : public testing::Test {
 protected:
  void SetUp() override { open(false); }

  void open(bool host_pool_is_new) {
    queued_.run();
    manager_.reset();
    auto opened = open_state_manager({kChunk, 20, 60}, queued_.queue, host_pool_is_new);
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    manager_ = std::move(opened).value();
  }
  void add(std::uint64_t reserved = kAdmitted, bool park_commits = false) {
    ASSERT_TRUE(manager_->open_tenant(kTenant, reserved).ok());
    const Status status = manager_->add_model(kModel, kTenant, kSegments, park_commits);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void resume() {
    const auto plan = manager_->plan_resume(kModel);
    ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
    manager_->resume_done(kModel);
  }
  void step(std::uint64_t step, std::uint64_t seq) {
    manager_->mark_dirty(kModel, {.step = step, .version = 1, .applied_seq = seq});
  }
  Status commit(std::uint64_t step, std::uint64_t seq) {
    auto plan = manager_->plan_commit(kModel);
    if (!plan) return plan.error();
    return commit_done(plan->epoch, {.step = step, .version = 1, .applied_seq = seq});
  }
  // Until the disk has answered.
  Status commit_done(std::uint64_t epoch, const Position& position) {
    Status answer = error(Code::TIMEOUT, "no answer");
    manager_->commit_done(kModel, epoch, position, [&](const Status& status) { answer = status; });
    queued_.run();
    return answer;
  }
  Status suspend_done(const Position& position, ModelId model = kModel) {
    Status answer = error(Code::TIMEOUT, "no answer");
    manager_->suspend_done(model, position, [&](const Status& status) { answer = status; });
    queued_.run();
    return answer;
  }
  static std::vector<SegmentKind> copied(const MovePlan& plan) {
    std::vector<SegmentKind> kinds;
    for (const auto& move : plan.segments)
      if (!move.host.empty()) kinds.push_back(move.kind);
    return kinds;
  }
  std::uint64_t free_chunks(const char* pool) {
    return nlohmann::json::parse(manager_->table_json())[pool]["free_chunks"];
  }

  std::unique_ptr<store::StateStore> memory_ = store::make_memory_store();
  store::FaultyStore store_{*memory_};
  store::QueuedStore queued_{store_};
  std::unique_ptr<StateManager> manager_;
};

using Kinds = std::vector<SegmentKind>;
const Kinds kTrained = {SegmentKind::kWeights, SegmentKind::kAdamM, SegmentKind::kAdamV};
const Kinds kAll = {SegmentKind::kWeights, SegmentKind::kAdamM, SegmentKind::kAdamV,
                    SegmentKind::kSamplerWeights};

TEST_F(StateManagerTest, MemoryOutsideThePoolCountsAgainstTheReservation) {
  ASSERT_TRUE(manager_->open_tenant(kTenant, kAdmitted + 2 * kChunk).ok());
  EXPECT_EQ(manager_->charge(TenantId{9}, 1).code(), Code::NOT_FOUND);
  ASSERT_TRUE(manager_->charge(kTenant, 3 * kChunk).ok());
  EXPECT_EQ(manager_->add_model(kModel, kTenant, kSegments, false).code(), Code::NO_CAPACITY);
  manager_->refund(kTenant, 3 * kChunk);
  EXPECT_TRUE(manager_->add_model(kModel, kTenant, kSegments, false).ok());
  EXPECT_EQ(manager_->charge(kTenant, 2 * kChunk + 1).code(), Code::NO_CAPACITY);
  EXPECT_TRUE(manager_->charge(kTenant, 2 * kChunk).ok());
  manager_->close_tenant(kTenant);
  manager_->refund(kTenant, 2 * kChunk);
}

TEST_F(StateManagerTest, ReservationsAreWholeChunksAndNeverMoreThanThePool) {
  EXPECT_TRUE(manager_->open_tenant({1}, 30 * kChunk + 99).ok());
  EXPECT_TRUE(manager_->open_tenant({2}, 30 * kChunk).ok());
  const Status full = manager_->open_tenant({3}, kChunk);
  EXPECT_EQ(full.code(), Code::NO_CAPACITY);
  EXPECT_NE(full.text().find("wants 100 bytes"), std::string::npos) << full.text();
  EXPECT_EQ(manager_->open_tenant({1}, 0).code(), Code::EXISTS);
  manager_->close_tenant({1});
  EXPECT_TRUE(manager_->open_tenant({3}, 30 * kChunk).ok());
}

TEST_F(StateManagerTest, AModelIsAdmittedWithItsShadowOrNotAtAll) {
  ASSERT_TRUE(manager_->open_tenant(kTenant, kAdmitted - kChunk).ok());
  const Status refused = manager_->add_model(kModel, kTenant, kSegments);
  EXPECT_EQ(refused.code(), Code::NO_CAPACITY);
  EXPECT_NE(refused.text().find("needs 2300 bytes"), std::string::npos) << refused.text();
  EXPECT_NE(refused.text().find("has 2200 left"), std::string::npos) << refused.text();
  EXPECT_TRUE(manager_->add_model(kModel, kTenant, kSegments, true).ok()) << "without a shadow";
  EXPECT_EQ(manager_->device_bytes(kModel), kDevice);
}

TEST_F(StateManagerTest, ARemovedModelGivesItsReservationBack) {
  add();
  EXPECT_EQ(manager_->add_model({12}, kTenant, kSegments).code(), Code::NO_CAPACITY);
  manager_->remove_model(kModel);
  EXPECT_TRUE(manager_->add_model({12}, kTenant, kSegments).ok());
  manager_->remove_model(kModel);
}

TEST_F(StateManagerTest, BadSegmentsAreRefused) {
  ASSERT_TRUE(manager_->open_tenant(kTenant, kAdmitted).ok());
  const auto code = [&](std::vector<SegmentSpec> segments) {
    return manager_->add_model(kModel, kTenant, std::move(segments)).code();
  };
  EXPECT_EQ(code({{SegmentKind::kWeights, 0, true}}), Code::INVALID_ARGUMENT);
  EXPECT_EQ(code({{SegmentKind::kKv, 10, true}}), Code::INVALID_ARGUMENT);
  EXPECT_EQ(code({{SegmentKind::kWeights, 10, true}, {SegmentKind::kWeights, 10, true}}),
            Code::INVALID_ARGUMENT);
  EXPECT_EQ(code({{SegmentKind::kWeights, ~std::uint64_t{0}, true}}), Code::NO_CAPACITY);
  EXPECT_EQ(code(std::vector<SegmentSpec>(9, {SegmentKind::kWeights, 10, true})),
            Code::INVALID_ARGUMENT);
}

TEST_F(StateManagerTest, AFreshModelIsMappedAndNothingIsCopied) {
  add();
  const auto plan = manager_->plan_resume(kModel);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->segments.size(), kSegments.size());
  EXPECT_EQ(plan->segments[0].device.size(), 3u);
  EXPECT_TRUE(copied(*plan).empty());
  EXPECT_EQ(free_chunks("device"), 7u);
}

TEST_F(StateManagerTest, AResumeThatDoesNotFitTakesNothing) {
  add();
  ASSERT_TRUE(manager_->add_model(kBase, {}, {{SegmentKind::kBase, 8 * kChunk, false}}).ok());
  ASSERT_TRUE(manager_->plan_resume(kBase).has_value());
  manager_->resume_done(kBase);
  EXPECT_EQ(manager_->plan_resume(kModel).error().code(), Code::NO_CAPACITY);
  EXPECT_EQ(free_chunks("device"), 12u);
}

TEST_F(StateManagerTest, AFailedResumeGivesAllBack) {
  add();
  ASSERT_TRUE(manager_->plan_resume(kModel).has_value());
  manager_->resume_failed(kModel);
  EXPECT_EQ(free_chunks("device"), 20u);
  resume();
}

TEST_F(StateManagerTest, AStepIsCommittedOnceAndTheNextResumeCopiesIt) {
  add();
  resume();
  EXPECT_EQ(manager_->plan_commit(kModel).error().code(), Code::NOT_FOUND) << "clean";
  step(1, 2);
  ASSERT_TRUE(commit(1, 2).ok());
  EXPECT_EQ(manager_->plan_commit(kModel).error().code(), Code::NOT_FOUND);
  EXPECT_EQ(manager_->manifest(kModel)->position.applied_seq, 2u);
  EXPECT_EQ(manager_->engine_lost(kModel).step, 1u);
  const auto plan = manager_->plan_resume(kModel);
  EXPECT_EQ(copied(*plan), kAll);
  EXPECT_EQ(plan->position, (Position{1, 1, 2, false}));
}

TEST_F(StateManagerTest, CleanSegmentsAreNotCopiedAgain) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  step(2, 2);
  const auto trained = manager_->plan_commit(kModel);
  EXPECT_EQ(copied(*trained), kTrained);
  ASSERT_TRUE(commit_done(trained->epoch, {2, 1, 2, false}).ok());
  manager_->mark_dirty(kModel, {.step = 2, .version = 3, .applied_seq = 3});
  EXPECT_EQ(copied(*manager_->plan_commit(kModel)), (Kinds{SegmentKind::kSamplerWeights}));
}

TEST_F(StateManagerTest, SamplerWeightsAreCopiedOnceAVersionIsPublished) {
  add();
  resume();
  manager_->mark_dirty(kModel, {.step = 1, .version = 0, .applied_seq = 1});
  const auto trained = manager_->plan_commit(kModel);
  EXPECT_EQ(copied(*trained), kTrained);
  ASSERT_TRUE(commit_done(trained->epoch, {1, 0, 1, false}).ok());
  open(false);
  add();
  const auto back = manager_->plan_resume(kModel);
  EXPECT_EQ(copied(*back), kTrained);
  manager_->resume_done(kModel);
  manager_->mark_dirty(kModel, {.step = 1, .version = 2, .applied_seq = 2});
  const auto published = manager_->plan_commit(kModel);
  EXPECT_EQ(copied(*published), Kinds{SegmentKind::kSamplerWeights});
  ASSERT_TRUE(commit_done(published->epoch, {1, 2, 2, false}).ok());
  EXPECT_EQ(manager_->manifest(kModel)->entries.size(), 4u);
}

TEST_F(StateManagerTest, ALoadAtTheSameStepMakesAllDirty) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  step(1, 2);
  EXPECT_EQ(copied(*manager_->plan_commit(kModel)), kAll);
}

TEST_F(StateManagerTest, WhatChangesDuringACommitIsDirtyAfterIt) {
  add();
  resume();
  step(1, 1);
  const auto plan = manager_->plan_commit(kModel);
  EXPECT_EQ(manager_->plan_commit(kModel).error().code(), Code::BUSY);
  EXPECT_EQ(manager_->plan_suspend(kModel).error().code(), Code::BUSY);
  step(2, 2);
  ASSERT_TRUE(commit_done(plan->epoch, {1, 1, 1, false}).ok());
  EXPECT_EQ(manager_->manifest(kModel)->position.step, 1u);
  EXPECT_TRUE(commit(2, 2).ok());
}

TEST_F(StateManagerTest, AFailedCommitLeavesTheOldStateAndIsTriedAgain) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  step(2, 2);
  const auto first = manager_->plan_commit(kModel);
  manager_->commit_failed(kModel);
  EXPECT_EQ(manager_->manifest(kModel)->position.step, 1u);
  const auto second = manager_->plan_commit(kModel);
  EXPECT_GT(second->epoch, first->epoch);
  EXPECT_EQ(commit_done(first->epoch, {2, 1, 2, false}).code(), Code::PROTOCOL);
  EXPECT_TRUE(commit(2, 2).ok());
}

TEST_F(StateManagerTest, ParkingADirtyModelCommitsIt) {
  add();
  resume();
  step(1, 1);
  const auto plan = manager_->plan_suspend(kModel);
  EXPECT_EQ(copied(*plan), kAll);
  ASSERT_TRUE(suspend_done({1, 1, 1, false}).ok());
  EXPECT_EQ(manager_->manifest(kModel)->epoch, plan->epoch);
  EXPECT_EQ(free_chunks("device"), 20u);
  EXPECT_EQ(free_chunks("host"), 50u);
}

TEST_F(StateManagerTest, ParkingACleanModelCopiesAndWritesNothing) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  const int writes = store_.writes;
  EXPECT_TRUE(copied(*manager_->plan_suspend(kModel)).empty());
  ASSERT_TRUE(suspend_done({1, 1, 1, false}).ok());
  EXPECT_EQ(store_.writes, writes);
}

TEST_F(StateManagerTest, PendingGradientsAreParkedAndNeverCommitted) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  manager_->mark_dirty(kModel,
                       {.step = 1, .version = 1, .applied_seq = 2, .gradients_pending = true});
  EXPECT_EQ(manager_->plan_commit(kModel).error().code(), Code::NOT_FOUND);
  EXPECT_EQ(copied(*manager_->plan_suspend(kModel)), (Kinds{SegmentKind::kGradients}));
  ASSERT_TRUE(suspend_done({1, 1, 1, true}).ok());
  EXPECT_EQ(manager_->manifest(kModel)->position, (Position{1, 1, 1, false}));
  const auto plan = manager_->plan_resume(kModel);
  EXPECT_TRUE(plan->position.gradients_pending);
  EXPECT_EQ(copied(*plan).size(), kAll.size() + 1);
  manager_->resume_done(kModel);
  EXPECT_EQ(free_chunks("host"), 50u) << "the parked gradients are free again";
}

TEST_F(StateManagerTest, AfterALossTheParkedGradientsAreGone) {
  add();
  resume();
  manager_->mark_dirty(kModel,
                       {.step = 0, .version = 0, .applied_seq = 1, .gradients_pending = true});
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  ASSERT_TRUE(suspend_done({0, 0, 0, true}).ok());
  EXPECT_EQ(manager_->engine_lost(kModel), Position{});
  EXPECT_FALSE(manager_->plan_resume(kModel)->position.gradients_pending);
  EXPECT_EQ(free_chunks("host"), 60u);
}

TEST_F(StateManagerTest, KvIsParkedInWhatTheReservationHasLeft) {
  add(kAdmitted + 4 * kChunk);
  resume();
  ASSERT_TRUE(manager_->allocate_kv(kModel, 350).has_value());
  EXPECT_EQ(manager_->allocate_kv(kModel, 1).error().code(), Code::EXISTS);
  const auto out = manager_->plan_suspend(kModel);
  EXPECT_EQ(copied(*out), (Kinds{SegmentKind::kKv}));
  ASSERT_TRUE(suspend_done({}).ok());
  // Who is admitted now has been promised that too: there is nothing for more KV, not no limit.
  ASSERT_TRUE(manager_->add_model(kBase, kTenant, {{SegmentKind::kWeights, 200, true}}).ok());
  ASSERT_TRUE(manager_->plan_resume(kBase).has_value());
  manager_->resume_done(kBase);
  ASSERT_TRUE(manager_->allocate_kv(kBase, 100).has_value());
  EXPECT_EQ(manager_->plan_suspend(kBase).error().code(), Code::NO_CAPACITY);
  manager_->remove_model(kBase);
  const auto in = manager_->plan_resume(kModel);
  EXPECT_EQ(in->segments.back().host, out->segments.back().host);
  EXPECT_EQ(in->segments.back().device.size(), 4u);
  manager_->resume_done(kModel);
  EXPECT_EQ(free_chunks("host"), 60u);
  manager_->free_kv(kModel);
  EXPECT_EQ(free_chunks("device"), 7u);
}

TEST_F(StateManagerTest, KvWithoutRoomOnTheHostKeepsTheModelResident) {
  add(kAdmitted + 3 * kChunk);
  resume();
  step(1, 1);
  ASSERT_TRUE(manager_->allocate_kv(kModel, 350).has_value());
  const auto refused = manager_->plan_suspend(kModel);
  EXPECT_EQ(refused.error().code(), Code::NO_CAPACITY);
  EXPECT_NE(refused.error().text().find("KV needs 400 bytes"), std::string::npos);
  EXPECT_EQ(free_chunks("host"), 60u);
  manager_->free_kv(kModel);
  EXPECT_EQ(copied(*manager_->plan_suspend(kModel)), kAll) << "still dirty";
}

TEST_F(StateManagerTest, KvThatAnEngineIsAskedToDropStaysTakenUntilItHas) {
  add(kAdmitted + 4 * kChunk);
  resume();
  const auto old = manager_->allocate_kv(kModel, 350);
  const std::uint64_t number = manager_->retire_kv(kModel);
  EXPECT_EQ(manager_->retire_kv(kModel), 0u);
  EXPECT_TRUE(manager_->kv_retiring());
  EXPECT_EQ(free_chunks("device"), 3u);
  ASSERT_TRUE(manager_->allocate_kv(kModel, 250).has_value()) << "the next op has its own";
  EXPECT_EQ(free_chunks("device"), 0u);
  manager_->kv_dropped(kModel, number + 1);
  EXPECT_EQ(free_chunks("device"), 0u);
  manager_->kv_dropped(kModel, number);
  EXPECT_EQ(free_chunks("device"), 4u);
  EXPECT_FALSE(manager_->kv_retiring());
  ASSERT_NE(manager_->retire_kv(kModel), 0u);
  EXPECT_EQ(free_chunks("device"), 4u);
  (void)manager_->engine_lost(kModel);
  EXPECT_FALSE(manager_->kv_retiring());
}

TEST_F(StateManagerTest, KvThatIsDroppedDuringAMoveIsTheEnginesUntilItHasAnswered) {
  add(kAdmitted + 4 * kChunk);
  resume();
  ASSERT_TRUE(manager_->allocate_kv(kModel, 350).has_value());
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  ASSERT_TRUE(suspend_done({}).ok());
  ASSERT_TRUE(manager_->plan_resume(kModel).has_value());
  const std::uint64_t number = manager_->retire_kv(kModel);
  manager_->resume_done(kModel);
  EXPECT_EQ(free_chunks("host"), 60u);
  EXPECT_EQ(free_chunks("device"), 3u);
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  manager_->kv_dropped(kModel, number);
  ASSERT_TRUE(suspend_done({}).ok());
  EXPECT_FALSE(manager_->kv_retiring());
}

TEST_F(StateManagerTest, KvThatIsFreedDuringAMoveGoesWhenTheMoveEnds) {
  add(kAdmitted + 4 * kChunk);
  resume();
  ASSERT_TRUE(manager_->allocate_kv(kModel, 350).has_value());
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  manager_->free_kv(kModel);
  EXPECT_EQ(free_chunks("host"), 56u) << "the copy may still be running";
  ASSERT_TRUE(suspend_done({}).ok());
  EXPECT_EQ(free_chunks("host"), 60u);
  EXPECT_EQ(manager_->plan_resume(kModel)->segments.size(), kSegments.size());
}

TEST_F(StateManagerTest, AFailedSuspendLeavesItResidentAndDirty) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  manager_->suspend_failed(kModel);
  EXPECT_EQ(free_chunks("host"), 60u);
  EXPECT_TRUE(commit(1, 1).ok());
}

TEST_F(StateManagerTest, AStoreThatFailsKeepsTheOldStateAndTheNewChunksAside) {
  using Fault = store::FaultyStore::Fault;
  for (const Fault fault : {Fault::kBefore, Fault::kAfter}) {
    open(false);
    manager_->remove_model(kModel);
    add();
    resume();
    step(1, 1);
    ASSERT_TRUE(commit(1, 1).ok());
    step(2, 2);
    store_.fault = [&] { return fault; };
    EXPECT_EQ(commit(2, 2).code(), Code::IO);
    EXPECT_EQ(manager_->manifest(kModel)->position.step, 1u);
    EXPECT_EQ(free_chunks("host"), 43u) << "7 chunks may be what the store names";
    EXPECT_EQ(commit(2, 2).code(), Code::IO) << "the doubt cannot be settled yet";
    store_.fault = [] { return Fault::kNone; };
    EXPECT_TRUE(commit(2, 2).ok());
    EXPECT_EQ(free_chunks("host"), 50u);
  }
}

// The store took the manifest and could not say so; then somebody is told that the state is gone.
TEST_F(StateManagerTest, AManifestInDoubtIsSettledBeforeALossIsTold) {
  using Fault = store::FaultyStore::Fault;
  add();
  for (const bool mute : {false, true}) {
    resume();
    step(1, 1);
    store_.fault = [] { return Fault::kAfter; };
    EXPECT_EQ(commit(1, 1).code(), Code::IO);
    ASSERT_TRUE(memory_->get(kManifestTable, kModel.value, kManifestSubkey).has_value());
    store_.fault = [&] { return mute ? Fault::kBefore : Fault::kNone; };
    store::Batch later;
    manager_->settle_manifest(kModel, later);
    EXPECT_EQ(later.changes().size(), mute ? 1u : 0u) << "erased with what is written next";
    EXPECT_EQ(memory_->get(kManifestTable, kModel.value, kManifestSubkey).has_value(), mute);
    store_.fault = [] { return Fault::kNone; };
    (void)manager_->engine_lost(kModel);
  }
}

// What the tests below share: step 1 is committed, step 2 copied and on its way to the disk.
class StateManagerFlipTest : public StateManagerTest {
 protected:
  void SetUp() override {
    StateManagerTest::SetUp();
    add();
    resume();
    step(1, 1);
    ASSERT_TRUE(commit(1, 1).ok());
    step(2, 2);
  }
  void begin_commit() {
    const auto plan = manager_->plan_commit(kModel);
    ASSERT_TRUE(plan.has_value());
    manager_->commit_done(kModel, plan->epoch, {2, 1, 2, false}, told());
  }
  void begin_park() {
    ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
    manager_->suspend_done(kModel, {2, 1, 2, false}, told());
  }
  StateManager::Flipped told() {
    return [this](const Status& status) { answers_.push_back(status.code()); };
  }
  std::uint64_t stored_step() {
    queued_.queue.drop();
    manager_.reset();
    queued_.queue.abandon();
    manager_ = open_state_manager({kChunk, 20, 60}, queued_.queue, false).value();
    add();
    return manager_->manifest(kModel)->position.step;
  }
  std::vector<Code> answers_;
};

TEST_F(StateManagerFlipTest, TheOldManifestIsTrueAndItsChunksAreTakenUntilTheNewOneIsOnDisk) {
  begin_commit();
  EXPECT_EQ(manager_->manifest(kModel)->position.step, 1u);
  EXPECT_EQ(free_chunks("host"), 43u);
  EXPECT_EQ(manager_->plan_commit(kModel).error().code(), Code::BUSY);
  step(3, 3);
  EXPECT_EQ(manager_->plan_suspend(kModel).error().code(), Code::BUSY) << "changed since the copy";
  EXPECT_TRUE(queued_.queue.write_group());
  EXPECT_EQ(free_chunks("host"), 43u) << "on disk, and not told yet";
  queued_.tell();
  EXPECT_EQ(answers_, (std::vector<Code>{Code::OK}));
  EXPECT_EQ(manager_->manifest(kModel)->position.step, 2u);
  EXPECT_EQ(free_chunks("host"), 50u);
  EXPECT_TRUE(commit(3, 3).ok()) << "what changed meanwhile is dirty";
}

TEST_F(StateManagerFlipTest, ACrashBeforeTheDiskFindsTheOldManifestAndOneAfterTheNewOne) {
  begin_commit();
  EXPECT_EQ(stored_step(), 1u);
  EXPECT_EQ(free_chunks("host"), 50u);
  resume();
  step(2, 2);
  begin_commit();
  EXPECT_TRUE(queued_.queue.write_group());
  EXPECT_EQ(stored_step(), 2u);
  EXPECT_EQ(free_chunks("host"), 50u);
}

TEST_F(StateManagerFlipTest, AParkFreesTheDeviceAtOnceAndTheOldChunksLater) {
  begin_park();
  EXPECT_EQ(free_chunks("device"), 20u);
  EXPECT_EQ(free_chunks("host"), 43u);
  EXPECT_TRUE(answers_.empty());
  queued_.run();
  EXPECT_EQ(answers_, (std::vector<Code>{Code::OK}));
  EXPECT_EQ(manager_->plan_resume(kModel)->position.step, 2u);
  EXPECT_EQ(free_chunks("host"), 50u);
}

TEST_F(StateManagerFlipTest, AParkBehindACopiedCommitCopiesNothingAndWaitsForNoDisk) {
  begin_commit();
  const auto plan = manager_->plan_suspend(kModel);
  ASSERT_TRUE(plan.has_value()) << plan.error().to_string();
  EXPECT_EQ(copied(*plan), Kinds{});
  manager_->suspend_done(kModel, {2, 1, 2, false}, told());
  EXPECT_EQ(free_chunks("device"), 20u);
  EXPECT_TRUE(answers_.empty());
  queued_.run();
  EXPECT_EQ(answers_, (std::vector<Code>{Code::OK, Code::OK}));
  EXPECT_EQ(free_chunks("host"), 50u);
  EXPECT_EQ(manager_->plan_resume(kModel)->position.step, 2u);
}

TEST_F(StateManagerFlipTest, AParkBehindACommitFallsWithItsManifest) {
  for (const bool told_before : {false, true}) {
    answers_.clear();
    begin_commit();
    ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
    store_.fault = [] { return store::FaultyStore::Fault::kBefore; };
    if (told_before) queued_.run();
    manager_->suspend_done(kModel, {2, 1, 2, false}, told());
    queued_.run();
    EXPECT_EQ(answers_, (std::vector<Code>{Code::IO, Code::IO}));
    store_.fault = [] { return store::FaultyStore::Fault::kNone; };
    EXPECT_EQ(manager_->manifest(kModel)->position.step, 1u);
    resume();
    step(2, 2);
  }
}

TEST_F(StateManagerFlipTest, AParkThatFailsBehindACommitLeavesTheCommit) {
  begin_commit();
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  manager_->suspend_failed(kModel);
  queued_.run();
  EXPECT_EQ(answers_, (std::vector<Code>{Code::OK}));
  EXPECT_EQ(manager_->plan_commit(kModel).error().code(), Code::NOT_FOUND) << "clean";
}

TEST_F(StateManagerFlipTest, AParkBehindACommitStoresAPositionThatWentOn) {
  begin_commit();
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  manager_->suspend_done(kModel, {2, 1, 3, false}, told());
  queued_.queue.settle();
  EXPECT_EQ(answers_, (std::vector<Code>{Code::OK, Code::OK}));
  EXPECT_EQ(manager_->engine_lost(kModel).applied_seq, 3u);
}

TEST_F(StateManagerFlipTest, AModelRemovedWhileItsParkWaitsForACommitTellsBoth) {
  begin_commit();
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  manager_->suspend_done(kModel, {2, 1, 2, false}, told());
  manager_->remove_model(kModel);
  queued_.run();
  EXPECT_EQ(answers_, (std::vector<Code>{Code::CANCELLED, Code::CANCELLED}));
  EXPECT_EQ(free_chunks("host"), 60u);
}

TEST_F(StateManagerFlipTest, AParkWhoseManifestTheDiskRefusesDropsItsGradients) {
  manager_->mark_dirty(kModel,
                       {.step = 2, .version = 1, .applied_seq = 3, .gradients_pending = true});
  begin_park();
  store_.fault = [] { return store::FaultyStore::Fault::kBefore; };
  queued_.run();
  EXPECT_EQ(answers_, (std::vector<Code>{Code::IO}));
  const auto plan = manager_->plan_resume(kModel);
  EXPECT_EQ(plan->position, (Position{1, 1, 1, false}));
}

TEST_F(StateManagerFlipTest, AModelRemovedOnTheWayGivesEverythingBackOnceItsRowIsGone) {
  begin_park();
  manager_->remove_model(kModel);
  EXPECT_EQ(free_chunks("host"), 43u);
  queued_.run();
  EXPECT_EQ(answers_, (std::vector<Code>{Code::CANCELLED}));
  EXPECT_EQ(free_chunks("host"), 60u);
  EXPECT_EQ(memory_->get("manifests", kModel.value, 0).error().code(), Code::NOT_FOUND);
}

TEST_F(StateManagerFlipTest, AnEngineLostBehindASettledStoreIsAtTheNewManifest) {
  begin_commit();
  queued_.queue.settle();
  EXPECT_EQ(manager_->engine_lost(kModel).step, 2u);
  EXPECT_DEATH(
      {
        resume();
        step(3, 3);
        begin_commit();
        (void)manager_->engine_lost(kModel);
      },
      "settle the store first");
}

TEST_F(StateManagerTest, AParkThatCannotBeStoredFallsBackToTheOldState) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  step(2, 2);
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  store_.fault = [] { return store::FaultyStore::Fault::kBefore; };
  EXPECT_EQ(suspend_done({2, 1, 2, false}).code(), Code::IO);
  EXPECT_EQ(manager_->plan_resume(kModel)->position.step, 1u);
}

TEST_F(StateManagerTest, WithoutAShadowAParkWritesOverTheOnlyCopyAndSaysSo) {
  add(13 * kChunk, true);
  resume();
  step(1, 1);
  EXPECT_EQ(manager_->plan_commit(kModel).error().code(), Code::NO_CAPACITY);
  ASSERT_TRUE(manager_->plan_suspend(kModel).has_value());
  ASSERT_TRUE(suspend_done({1, 1, 1, false}).ok());
  resume();
  step(2, 2);
  const auto plan = manager_->plan_suspend(kModel);
  EXPECT_EQ(copied(*plan), kAll);
  EXPECT_EQ(free_chunks("host"), 50u);
  EXPECT_EQ(memory_->get("manifests", kModel.value, 0).error().code(), Code::NOT_FOUND);
  ASSERT_TRUE(suspend_done({2, 1, 2, false}).ok());
  EXPECT_EQ(manager_->plan_resume(kModel)->position.step, 2u);
}

TEST_F(StateManagerTest, ARestartContinuesWithTheManifestAndItsChunksAreTaken) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  const Chunks weights = manager_->manifest(kModel)->entries[0].host;
  open(false);
  EXPECT_EQ(free_chunks("host"), 50u) << "taken before the model is added";
  add();
  EXPECT_EQ(manager_->manifest(kModel)->entries[0].host, weights);
  EXPECT_EQ(manager_->plan_resume(kModel)->position.step, 1u);
}

TEST_F(StateManagerTest, ANewHostPoolHasNoManifests) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  open(true);
  add();
  EXPECT_EQ(manager_->manifest(kModel)->epoch, 0u);
  EXPECT_EQ(free_chunks("host"), 60u);
}

TEST_F(StateManagerTest, AStoredModelThatIsNotWantedAnyMoreIsRemoved) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  open(false);
  manager_->remove_model(kModel);
  EXPECT_EQ(free_chunks("host"), 50u) << "not before the row is gone from the disk";
  queued_.run();
  EXPECT_EQ(free_chunks("host"), 60u);
  EXPECT_EQ(memory_->get("manifests", kModel.value, 0).error().code(), Code::NOT_FOUND);
}

TEST_F(StateManagerTest, ARowThatCannotBeErasedKeepsItsChunksUntilItCan) {
  add();
  for (int turn = 0; turn < 3; ++turn) {  // the same number again
    resume();
    step(1, 1);
    ASSERT_TRUE(commit(1, 1).ok());
    EXPECT_EQ(free_chunks("host"), 50u) << "and none of the one before";
    store_.fault = [] { return store::FaultyStore::Fault::kBefore; };
    manager_->remove_model(kModel);
    queued_.run();
    EXPECT_EQ(free_chunks("host"), 50u);
    store_.fault = [] { return store::FaultyStore::Fault::kNone; };
    ASSERT_TRUE(manager_->add_model(kModel, kTenant, kSegments, false).ok());
  }
  manager_->remove_model(kModel);  // nothing of it is stored, but the row is there
  ASSERT_TRUE(
      manager_->add_model(kBase, kTenant, {{SegmentKind::kWeights, 100, true}}, false).ok());
  ASSERT_TRUE(manager_->plan_resume(kBase).has_value());
  manager_->resume_done(kBase);
  manager_->mark_dirty(kBase, {.step = 1, .version = 1, .applied_seq = 1});
  ASSERT_TRUE(manager_->plan_suspend(kBase).has_value());
  EXPECT_TRUE(suspend_done({.step = 1, .version = 1, .applied_seq = 1}, kBase).ok());
  EXPECT_EQ(free_chunks("host"), 59u);
  EXPECT_FALSE(memory_->get(kManifestTable, kModel.value, kManifestSubkey).has_value());
}

TEST_F(StateManagerTest, ADamagedManifestCostsOneModelAndNotTheDaemon) {
  ASSERT_TRUE(memory_->put("manifests", kModel.value, 0, "rubbish").ok());
  open(false);
  ASSERT_TRUE(manager_->open_tenant(kTenant, kAdmitted).ok());
  const Status damaged = manager_->add_model(kModel, kTenant, kSegments);
  EXPECT_EQ(damaged.code(), Code::CORRUPT);
  EXPECT_TRUE(manager_->add_model(kModel, kTenant, kSegments).ok()) << "begins anew";
}

TEST_F(StateManagerTest, AManifestOfOtherSizesIsNotUsed) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  open(false);
  ASSERT_TRUE(manager_->open_tenant(kTenant, kAdmitted).ok());
  auto segments = kSegments;
  segments[0].bytes = 251;
  const Status other = manager_->add_model(kModel, kTenant, segments);
  EXPECT_EQ(other.code(), Code::CORRUPT);
  EXPECT_NE(other.text().find("weights"), std::string::npos) << other.text();
  queued_.run();
  EXPECT_EQ(free_chunks("host"), 60u);
}

TEST_F(StateManagerTest, AnAdoptedModelKeepsItsChunks) {
  add();
  const auto plan = manager_->plan_resume(kModel);
  manager_->resume_done(kModel);
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  open(false);
  add();
  ASSERT_TRUE(manager_->adopt(kModel, plan->segments, {1, 1, 1, false}).ok());
  EXPECT_EQ(manager_->plan_commit(kModel).error().code(), Code::NOT_FOUND);
  EXPECT_EQ(free_chunks("device"), 7u);
}

TEST_F(StateManagerTest, AnAdoptedModelThatWentOnIsDirty) {
  add();
  const auto plan = manager_->plan_resume(kModel);
  manager_->resume_failed(kModel);
  ASSERT_TRUE(manager_->adopt(kModel, plan->segments, {3, 1, 5, false}).ok());
  EXPECT_EQ(copied(*manager_->plan_commit(kModel)), kAll);
}

TEST_F(StateManagerTest, AnEngineThatClaimsWrongChunksIsRefused) {
  add();
  auto held = manager_->plan_resume(kModel)->segments;
  manager_->resume_failed(kModel);
  auto twice = held;
  twice[1].device = {twice[0].device[0], twice[0].device[1]};
  auto few = held;
  few[0].device.pop_back();
  auto outside = held;
  outside[0].device[0] = 20;
  auto missing = held;
  missing.pop_back();
  for (const auto& bad : {twice, few, outside, missing}) {
    EXPECT_EQ(manager_->adopt(kModel, bad, {}).code(), Code::PROTOCOL);
    EXPECT_EQ(free_chunks("device"), 20u);
  }
}

TEST_F(StateManagerTest, ABaseAndAModelWithoutSegmentsMoveToo) {
  add();
  ASSERT_TRUE(manager_->add_model(kBase, {}, {{SegmentKind::kBase, 500, false}}).ok());
  ASSERT_TRUE(manager_->add_model({12}, kTenant, {}).ok());
  for (const ModelId model : {kBase, ModelId{12}}) {
    ASSERT_TRUE(manager_->plan_resume(model).has_value());
    manager_->resume_done(model);
    EXPECT_TRUE(copied(*manager_->plan_suspend(model)).empty());
    EXPECT_TRUE(suspend_done({}, model).ok());
  }
  EXPECT_EQ(manager_->manifest(kBase)->epoch, 0u);
  EXPECT_EQ(manager_->manifest({99}), nullptr);
}

TEST_F(StateManagerTest, ClosingATenantFreesEverything) {
  add();
  resume();
  step(1, 1);
  ASSERT_TRUE(commit(1, 1).ok());
  manager_->close_tenant(kTenant);
  queued_.run();
  EXPECT_EQ(free_chunks("host"), 60u);
  EXPECT_EQ(free_chunks("device"), 20u);
  open(false);
  EXPECT_EQ(free_chunks("host"), 60u) << "and its manifests are gone from the store";
}

}  // namespace
}  // namespace plexrl::state
