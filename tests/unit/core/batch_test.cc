// SPDX-License-Identifier: Apache-2.0
// Generate ops of one base that run as a batch: who starts beside whom, who makes way, who pays.
#include <gtest/gtest.h>

#include <algorithm>

#include "unit/core/simulated_device.h"

namespace plexrl::core {
namespace {

constexpr std::int64_t kMs = kMillisecond.ns;
constexpr ModelId kBase{100};
constexpr EngineId kLora{1};

SchedulerConfig config(std::string_view policy, std::uint64_t capacity) {
  SchedulerConfig config;
  config.device_capacity_bytes = capacity;
  config.policy = policy;
  config.quantum = Duration{20 * kMs};
  return config;
}

// Adapters 1 to `count` of tenants 1 to `count` on one base, 1 byte each; resident.
class Adapters : public SimulatedDevice {
 public:
  explicit Adapters(std::uint64_t count, std::string_view policy = "round-robin",
                    std::uint64_t capacity = 1000)
      : SimulatedDevice(config(policy, capacity), 1) {
    move_ms = 1;
    add_engine(kLora);
    add_model({kBase, {}, kLora, {}, 10, 100});
    for (std::uint64_t n = 1; n <= count; ++n) {
      add_model({{n}, {n}, kLora, kBase, 1, 100});
      add_op({n}, OpKind::kSave, 0, 0);
    }
    EXPECT_TRUE(drain());
  }
  void add_full_model(std::uint64_t n, std::uint64_t bytes) {
    add_engine({n});
    add_model({{n}, {n}, {n}, {}, bytes, 100});
  }
  // Until ops run, or nothing is to come.
  void run_until(std::size_t running) {
    while (batch().size() != running && advance()) {
    }
  }
  [[nodiscard]] std::size_t yields(OpId op) const {
    const std::string name = "yield " + std::to_string(op.value) + ";";
    std::size_t count = 0;
    for (std::size_t at = 0; (at = actions().find(name, at)) != std::string::npos; ++at) ++count;
    return count;
  }
};

TEST(SchedulerBatch, WhatFitsJoinsWhatRuns) {
  for (const char* policy : {"fifo", "round-robin", "hrrs", "least-slowdown"}) {
    Adapters device(4, policy);
    const OpId first = device.add_generate({1}, 10, 50, 8);
    const OpId second = device.add_generate({2}, 10, 50, 8);
    const OpId third = device.add_generate({3}, 10, 50, 8);
    EXPECT_EQ(device.batch(), (std::set<OpId>{first, second, third})) << policy;
    ASSERT_TRUE(device.drain());
    EXPECT_LT(device.now().ns, 80 * kMs) << policy << ": as long as one of them";
  }
}

TEST(SchedulerBatch, ThoseThatWaitStartTogether) {
  Adapters device(4);
  const OpId training = device.add_op({1}, OpKind::kForwardBackward, 0, 30);
  const OpId first = device.add_generate({2}, 10, 50, 8);
  const OpId second = device.add_generate({3}, 10, 50, 8);
  const OpId other = device.add_op({4}, OpKind::kForwardBackward, 0, 30);
  EXPECT_EQ(device.batch(), (std::set<OpId>{training}));
  device.run_until(2);
  EXPECT_EQ(device.batch(), (std::set<OpId>{first, second}));
  ASSERT_TRUE(device.drain());
  (void)other;
}

// They are asked when the turn is over, all of them, and nobody joins meanwhile or instead.
TEST(SchedulerBatch, TheWholeBatchMakesWayForWhatDoesNotFit) {
  Adapters device(4);
  const OpId first = device.add_generate({1}, 10, 500, 8);
  const OpId second = device.add_generate({2}, 10, 500, 8);
  const OpId training = device.add_op({3}, OpKind::kForwardBackward, 0, 5);
  const OpId late = device.add_generate({4}, 10, 500, 8);
  EXPECT_EQ(device.batch(), (std::set<OpId>{first, second}));
  while (!device.batch().contains(training)) ASSERT_TRUE(device.advance());
  EXPECT_EQ(device.batch(), (std::set<OpId>{training}));
  EXPECT_EQ(device.yields(first), 1U);
  EXPECT_EQ(device.yields(second), 1U);
  EXPECT_LT(device.now().ns, (20 + 10) * kMs) << "a turn, and the way to a yield point";
  device.run_until(3);
  EXPECT_EQ(device.batch(), (std::set<OpId>{first, second, late}));
  ASSERT_TRUE(device.drain());
}

TEST(SchedulerBatch, UnderFifoNobodyIsAskedAndTheBatchEnds) {
  Adapters device(4, "fifo");
  const OpId first = device.add_generate({1}, 10, 100, 8);
  const OpId training = device.add_op({2}, OpKind::kForwardBackward, 0, 5);
  const OpId late = device.add_generate({3}, 10, 100, 8);
  EXPECT_EQ(device.batch(), (std::set<OpId>{first}));
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(device.yields(first), 0U);
  const auto& order = device.started();
  EXPECT_LT(std::find(order.begin(), order.end(), training),
            std::find(order.begin(), order.end(), late));
}

TEST(SchedulerBatch, OtherBasesAndWholeModelsRunByThemselves) {
  Adapters device(2);
  device.add_engine({50});
  device.add_model({{200}, {}, {50}, {}, 10, 100});
  device.add_model({{51}, {51}, {50}, {200}, 1, 100});
  device.add_full_model(60, 20);
  device.add_generate({51}, 1, 5, 1);
  device.add_generate({60}, 1, 5, 1);
  ASSERT_TRUE(device.drain());  // all are on the device
  const OpId first = device.add_generate({1}, 10, 15, 8);
  device.add_generate({51}, 10, 15, 8);
  device.add_generate({60}, 10, 15, 8);
  const OpId second = device.add_generate({2}, 10, 15, 8);
  EXPECT_EQ(device.batch(), (std::set<OpId>{first, second}));
  ASSERT_TRUE(device.drain());
}

// Nobody is parked for a companion; for the target's KV somebody may be.
TEST(SchedulerBatch, CompanionsTakeOnlyWhatIsFree) {
  Adapters device(3, "round-robin", 100);
  device.add_full_model(60, 30);
  device.add_op({60}, OpKind::kSave, 0, 1);
  ASSERT_TRUE(device.drain());
  ASSERT_TRUE(device.resident({60}));  // 10 + 3 + 30 of 100
  const OpId training = device.add_op({60}, OpKind::kForwardBackward, 0, 10);
  const OpId first = device.add_generate({1}, 30, 50, 8);
  const OpId second = device.add_generate({2}, 40, 50, 8);
  const OpId third = device.add_generate({3}, 20, 50, 8);
  EXPECT_EQ(device.batch(), (std::set<OpId>{training}));
  while (device.batch().contains(training)) ASSERT_TRUE(device.advance());
  EXPECT_EQ(device.batch(), (std::set<OpId>{first, third}));
  while (!device.batch().contains(second)) ASSERT_TRUE(device.advance());
  ASSERT_TRUE(device.drain());
}

TEST(SchedulerBatch, AnOpThatIsAloneRunsAlone) {
  Adapters device(3);
  const OpId alone = device.add_generate({1}, 10, 15, 8, true);
  const OpId second = device.add_generate({2}, 10, 15, 8);
  const OpId third = device.add_generate({3}, 10, 15, 8);
  EXPECT_EQ(device.batch(), (std::set<OpId>{alone}));
  device.run_until(2);
  EXPECT_EQ(device.batch(), (std::set<OpId>{second, third}));
  const OpId again = device.add_generate({1}, 10, 15, 8, true);
  EXPECT_FALSE(device.batch().contains(again));
  ASSERT_TRUE(device.drain());
}

TEST(SchedulerBatch, ABatchHasABound) {
  Adapters device(40);
  for (std::uint64_t n = 1; n <= 40; ++n) device.add_generate({n}, 1, 50, 1);
  EXPECT_EQ(device.batch().size(), Scheduler::kMaxBatch);
  ASSERT_TRUE(device.drain());
}

// The second op of a job whose first one runs is nobody that the batch has to make way for.
TEST(SchedulerBatch, AJobThatWaitsForItselfKeepsNobodyOut) {
  Adapters device(3);
  const OpId first = device.add_generate({1}, 10, 300, 8);
  const OpId own = device.add_generate({1}, 10, 300, 8);
  const OpId other = device.add_generate({2}, 10, 300, 8);
  EXPECT_EQ(device.batch(), (std::set<OpId>{first, other}));
  EXPECT_EQ(device.scheduler().why(own).kind, WaitReason::Kind::kOwnOps);
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(device.yields(first), 0U);
}

TEST(SchedulerBatch, ACancelledMemberLeavesAlone) {
  Adapters device(3);
  const OpId first = device.add_generate({1}, 10, 100, 8);
  const OpId second = device.add_generate({2}, 10, 100, 8);
  device.cancel(first);
  EXPECT_EQ(device.yields(first), 1U);
  EXPECT_EQ(device.yields(second), 0U);
  const OpId third = device.add_generate({3}, 10, 100, 8);
  EXPECT_FALSE(device.batch().contains(third)) << "not while one makes way";
  while (device.batch().contains(first)) ASSERT_TRUE(device.advance());
  EXPECT_EQ(device.batch(), (std::set<OpId>{second, third}));
  ASSERT_TRUE(device.drain());
}

TEST(SchedulerBatch, AModelThatGoesTakesItsOpOnly) {
  Adapters device(2);
  const OpId first = device.add_generate({1}, 10, 30, 8);
  const OpId second = device.add_generate({2}, 10, 50, 8);
  device.send(ModelRemoved{{1}});
  EXPECT_EQ(device.batch(), (std::set<OpId>{first, second}));
  ASSERT_TRUE(device.drain());
}

TEST(SchedulerBatch, ADeadEnginesOpsAllRunAgain) {
  Adapters device(3);
  const OpId first = device.add_generate({1}, 10, 50, 8);
  const OpId second = device.add_generate({2}, 10, 50, 8);
  device.kill_engine(kLora);
  EXPECT_TRUE(device.batch().empty());
  device.add_engine(kLora);
  device.run_until(2);
  EXPECT_EQ(device.batch(), (std::set<OpId>{first, second}));
  ASSERT_TRUE(device.drain());
}

// Rows 30 and 10 for the same time: the second has used less, and goes first afterwards.
TEST(SchedulerBatch, ATenantPaysByItsRows) {
  for (const bool first_has_more : {true, false}) {
    Adapters device(3);
    device.add_generate({1}, 10, 100, first_has_more ? 30 : 10);
    device.add_generate({2}, 10, 100, first_has_more ? 10 : 30);
    ASSERT_TRUE(device.drain());
    const OpId blocker = device.add_op({3}, OpKind::kForwardBackward, 0, 30);
    const OpId one = device.add_op({1}, OpKind::kForwardBackward, 0, 30);
    const OpId other = device.add_op({2}, OpKind::kForwardBackward, 0, 30);
    ASSERT_TRUE(device.drain());
    const auto& order = device.started();
    EXPECT_EQ(
        std::find(order.begin(), order.end(), one) < std::find(order.begin(), order.end(), other),
        !first_has_more);
    (void)blocker;
  }
}

TEST(SchedulerBatch, ASnapshotInTheMiddleGoesOnAlike) {
  Adapters straight(4);
  Adapters restored(4);
  for (Adapters* const device : {&straight, &restored}) {
    device->add_generate({1}, 10, 100, 8);
    device->add_generate({2}, 10, 100, 8);
    device->add_op({3}, OpKind::kForwardBackward, 0, 5);
    device->advance();
  }
  SchedulerConfig same = config("round-robin", 1000);
  auto again = Scheduler::restore(same, restored.scheduler().snapshot());
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  restored.swap_scheduler(std::move(again).value());
  ASSERT_TRUE(straight.drain());
  ASSERT_TRUE(restored.drain());
  EXPECT_EQ(straight.actions(), restored.actions());
}

}  // namespace
}  // namespace plexrl::core
