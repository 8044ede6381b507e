// SPDX-License-Identifier: Apache-2.0
#include "core/scheduler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "unit/core/simulated_device.h"

namespace plexrl::core {
namespace {

using Kind = WaitReason::Kind;
constexpr std::int64_t kMs = kMillisecond.ns;

SchedulerConfig config(std::string_view policy, std::uint64_t capacity = 100) {
  SchedulerConfig config;
  config.device_capacity_bytes = capacity;
  config.policy = policy;
  config.quantum = Duration{20 * kMs};
  return config;
}

// Model n of tenant n in engine n.
void add(SimulatedDevice& device, std::uint64_t n, std::uint64_t bytes, std::uint32_t share = 100) {
  device.add_engine({n});
  device.add_model({{n}, {n}, {n}, {}, bytes, share});
}

TEST(Scheduler, ConfigurationsThatCannotWorkAreRefused) {
  EXPECT_EQ(Scheduler::create(config("lottery")).error().code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(Scheduler::create(config("fifo", 0)).error().code(), Code::INVALID_ARGUMENT);
  SchedulerConfig no_quantum = config("fifo");
  no_quantum.quantum = {};
  EXPECT_EQ(Scheduler::create(no_quantum).error().code(), Code::INVALID_ARGUMENT);
}

TEST(Scheduler, AModelIsBroughtInWithItsBaseAndThenRuns) {
  SimulatedDevice device(config("fifo"), 1);
  device.add_engine({1});
  device.add_model({{9}, {}, {1}, {}, 50, 100});
  device.add_model({{1}, {1}, {1}, {9}, 10, 100});
  device.add_op({1}, OpKind::kGenerate, 20, 5);
  ASSERT_TRUE(device.drain());
  EXPECT_NE(device.actions().find("resume 9;"), std::string::npos);
  EXPECT_LT(device.actions().find("resume 9;"), device.actions().find("resume 1;"));
  EXPECT_LT(device.actions().find("resume 1;"), device.actions().find("start 1;"));
}

TEST(Scheduler, FifoFollowsArrivalAndPreemptsNothing) {
  SimulatedDevice device(config("fifo"), 1);
  add(device, 1, 40);
  add(device, 2, 40);
  device.add_op({1}, OpKind::kGenerate, 0, 500);
  device.add_op({2}, OpKind::kGenerate, 0, 5);
  device.add_op({1}, OpKind::kOptimStep, 0, 5);
  device.add_op({2}, OpKind::kOptimStep, 0, 5);
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(device.started(), (std::vector<OpId>{{1}, {2}, {3}, {4}}));
}

TEST(Scheduler, TrainingGoesBeforeLogprobsBeforeRollouts) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 40);
  device.add_op({1}, OpKind::kOptimStep, 0, 5);
  device.add_op({1}, OpKind::kGenerate, 0, 5);
  device.add_op({1}, OpKind::kLogprobs, 0, 5);
  device.add_op({1}, OpKind::kForwardBackward, 0, 5);
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(device.started(), (std::vector<OpId>{{1}, {4}, {3}, {2}}));
}

TEST(Scheduler, AStreamOfTrainingDoesNotStarveTheSameJobsRollouts) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 40);
  const OpId rollout = device.add_op({1}, OpKind::kGenerate, 0, 5);
  for (int i = 0; i < 40; ++i) device.add_op({1}, OpKind::kForwardBackward, 0, 5);
  ASSERT_TRUE(device.drain());
  const auto& order = device.started();
  EXPECT_LT(std::find(order.begin(), order.end(), rollout) - order.begin(), 12);
}

TEST(Scheduler, ALongRolloutYieldsToAnotherTenantAfterItsQuantum) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 40);
  add(device, 2, 40);
  device.add_op({1}, OpKind::kGenerate, 10, 200);
  device.add_op({2}, OpKind::kOptimStep, 0, 5);
  while (device.started().size() < 2) ASSERT_TRUE(device.advance());
  EXPECT_EQ(device.started()[1], OpId{2});
  EXPECT_LT(device.now().ns, 40 * kMs);
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(device.started(), (std::vector<OpId>{{1}, {2}, {1}}));
}

TEST(Scheduler, ALongRolloutAloneIsNotDisturbed) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 40);
  device.add_op({1}, OpKind::kGenerate, 10, 200);
  device.add_op({1}, OpKind::kGenerate, 10, 5);
  ASSERT_TRUE(device.drain());
  EXPECT_EQ(device.actions().find("yield"), std::string::npos);
}

TEST(Scheduler, ARolloutRunsOnWhileTheNextModelIsBroughtIn) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 40);
  add(device, 2, 40);
  device.add_op({1}, OpKind::kGenerate, 10, 300);
  device.add_op({2}, OpKind::kGenerate, 10, 300);
  while (!device.running()) ASSERT_TRUE(device.advance());
  while (!device.resident({2})) ASSERT_TRUE(device.advance());
  EXPECT_EQ(device.running(), OpId{1});
  EXPECT_EQ(device.actions().find("yield"), std::string::npos) << "not before it can start";
}

TEST(Scheduler, TheLeastRecentlyUsedIdleModelMakesRoom) {
  SimulatedDevice device(config("fifo"), 1);
  for (std::uint64_t n = 1; n <= 3; ++n) add(device, n, 45);
  for (const std::uint64_t n : {1, 2}) device.add_op({n}, OpKind::kOptimStep, 0, 5);
  ASSERT_TRUE(device.drain());
  device.add_op({1}, OpKind::kOptimStep, 0, 5);
  ASSERT_TRUE(device.drain());
  device.add_op({3}, OpKind::kOptimStep, 0, 5);
  ASSERT_TRUE(device.drain());
  EXPECT_TRUE(device.resident({1}));
  EXPECT_FALSE(device.resident({2}));
}

TEST(Scheduler, DeviceTimeFollowsTheShares) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 40, 100);
  add(device, 2, 40, 25);
  for (int i = 0; i < 400; ++i)
    for (const std::uint64_t n : {1, 2}) device.add_op({n}, OpKind::kGenerate, 0, 15);
  while (device.now().ns < 2000 * kMs) ASSERT_TRUE(device.advance());
  const auto share = 100 * device.device_ns({1}) / (device.device_ns({1}) + device.device_ns({2}));
  EXPECT_NEAR(static_cast<double>(share), 80, 5);
}

TEST(Scheduler, ATenantThatIdledHasSavedUpNothing) {
  SimulatedDevice device(config("round-robin"), 1);
  add(device, 1, 40);
  add(device, 2, 40);
  for (int i = 0; i < 100; ++i) device.add_op({1}, OpKind::kGenerate, 0, 15);
  while (device.now().ns < 700 * kMs) ASSERT_TRUE(device.advance());
  const std::int64_t before = device.device_ns({1});
  for (int i = 0; i < 100; ++i) device.add_op({2}, OpKind::kGenerate, 0, 15);
  while (device.now().ns < 1100 * kMs) ASSERT_TRUE(device.advance());
  EXPECT_GT(device.device_ns({1}) - before, 120 * kMs) << "half of the 400 ms, about";
}

TEST(Scheduler, WhyNamesTheReason) {
  SimulatedDevice device(config("fifo"), 1);
  add(device, 1, 60);
  add(device, 2, 60);
  device.add_model({{3}, {3}, {7}, {}, 10, 100});
  const OpId first = device.add_op({1}, OpKind::kOptimStep, 0, 50);
  EXPECT_EQ(device.scheduler().why(first).kind, Kind::kSwitch);
  while (!device.running()) ASSERT_TRUE(device.advance());
  const OpId own = device.add_op({1}, OpKind::kOptimStep, 0, 5);
  const OpId other = device.add_op({2}, OpKind::kOptimStep, 0, 5);
  const OpId down = device.add_op({3}, OpKind::kOptimStep, 0, 5);
  EXPECT_EQ(device.scheduler().why(first).kind, Kind::kRunning);
  EXPECT_EQ(device.scheduler().why(own).kind, Kind::kOwnOps);
  EXPECT_EQ(device.scheduler().why(other).kind, Kind::kOtherTenant);
  EXPECT_EQ(device.scheduler().why(other).holder, TenantId{1});
  EXPECT_EQ(device.scheduler().why(down).kind, Kind::kEngineDown);
  EXPECT_EQ(device.scheduler().why({99}).kind, Kind::kNone);
}

TEST(Scheduler, WhatIsTooLargeIsToldAndNeverStarted) {
  SimulatedDevice device(config("fifo"), 1);
  add(device, 1, 60);
  EXPECT_TRUE(device.scheduler().admissible(100, {}).ok());
  const Status large = device.scheduler().admissible(101, {});
  EXPECT_EQ(large.code(), Code::NO_CAPACITY);
  EXPECT_NE(large.text().find("needs 101 bytes"), std::string::npos) << large.text();
  const OpId op = device.add_op({1}, OpKind::kGenerate, 41, 5);
  EXPECT_EQ(device.scheduler().why(op).kind, Kind::kMemory);
  device.add_op({1}, OpKind::kGenerate, 40, 5);
  while (device.advance()) continue;
  EXPECT_EQ(device.started().size(), 1u);
  device.cancel(op);
  EXPECT_TRUE(device.idle());
}

TEST(Scheduler, ARemovedModelLeavesTheDeviceAndFreesIt) {
  auto scheduler = Scheduler::create(config("fifo")).value();
  const auto step = [&](const Event& event) {
    return SimulatedDevice::describe(scheduler->step(event, TimePoint{1}));
  };
  step(EngineUp{{1}});
  step(ModelAdded{{1}, {1}, {1}, {}, 60, 100});
  step(OpArrived{{1}, {1}, OpKind::kOptimStep, 0, 0});
  step(OpArrived{{2}, {1}, OpKind::kOptimStep, 0, 0});
  EXPECT_EQ(step(ModelResumed{{1}}), "start 1;@0\n");
  EXPECT_EQ(step(ModelRemoved{{1}}), "@0\n") << "a running op still finishes";
  EXPECT_EQ(step(OpFinished{{1}}), "park 1;@0\n");
  step(ModelAdded{{2}, {2}, {1}, {}, 60, 100});
  EXPECT_EQ(step(OpArrived{{3}, {2}, OpKind::kOptimStep, 0, 0}), "@0\n") << "not before it is out";
  EXPECT_EQ(step(ModelParked{{1}}), "resume 2;@0\n");
}

TEST(Scheduler, AModelThatAReattachedEngineHoldsIsNotMoved) {
  auto scheduler = Scheduler::create(config("fifo")).value();
  const auto step = [&](const Event& event) {
    return SimulatedDevice::describe(scheduler->step(event, TimePoint{1}));
  };
  step(ModelAdded{{1}, {1}, {1}, {}, 60, 100});
  step(OpArrived{{1}, {1}, OpKind::kOptimStep, 0, 0});
  EXPECT_EQ(step(ModelResumed{{1}}), "@0\n");
  EXPECT_EQ(step(EngineUp{{1}}), "start 1;@0\n");
}

TEST(SchedulerDeathTest, ContradictionsOfTheCallerAbort) {
  auto scheduler = Scheduler::create(config("fifo")).value();
  EXPECT_DEATH((void)scheduler->step(OpFinished{{1}}, TimePoint{1}), "does not run");
  EXPECT_DEATH((void)scheduler->step(ModelParked{{1}}, TimePoint{1}), "not asked to");
  EXPECT_DEATH((void)scheduler->step(OpArrived{{1}, {1}, OpKind::kSave, 0, 0}, TimePoint{1}),
               "not there");
}

TEST(Scheduler, ASnapshotOfAnotherPolicyIsRefused) {
  const auto fifo = Scheduler::create(config("fifo")).value();
  EXPECT_EQ(Scheduler::restore(config("round-robin"), fifo->snapshot()).error().code(),
            Code::INVALID_ARGUMENT);
}

// Prints, and asserts nothing about time: machines differ.
TEST(SchedulerBench, StepWithAThousandTenantsAndTenThousandOps) {
  auto scheduler = Scheduler::create(config("round-robin", 1000)).value();
  std::int64_t at = 1;
  const auto step = [&](const Event& event) { return scheduler->step(event, TimePoint{++at}); };
  (void)step(EngineUp{{1}});
  for (std::uint64_t n = 1; n <= 1000; ++n) (void)step(ModelAdded{{n}, {n}, {1}, {}, 1, 100});
  for (std::uint64_t n = 1; n <= 10000; ++n)
    (void)step(OpArrived{{n}, {1 + n % 1000}, OpKind::kGenerate, 0, 1});
  std::uint64_t next = 10000;
  int steps = 0;
  std::vector<Action> todo;
  const auto take = [&](Actions actions) {
    ++steps;
    todo.insert(todo.end(), actions.list.begin(), actions.list.end());
  };
  const auto begin = std::chrono::steady_clock::now();
  take(step(ModelResumed{{2}}));
  while (steps < 20000 && !todo.empty()) {
    const Action action = todo.back();
    todo.pop_back();
    if (const auto* start = std::get_if<StartOp>(&action)) {
      at += kMs;
      take(step(OpFinished{start->op}));
      ++next;
      take(step(OpArrived{{next}, {1 + next % 1000}, OpKind::kGenerate, 0, 1}));
    }
    if (const auto* in = std::get_if<ResumeModel>(&action)) take(step(ModelResumed{in->model}));
    if (const auto* out = std::get_if<ParkModel>(&action)) take(step(ModelParked{out->model}));
  }
  const auto ns = std::chrono::steady_clock::now() - begin;
  const auto each = std::chrono::duration_cast<std::chrono::nanoseconds>(ns).count() / steps;
  std::printf("scheduler step: %lld ns, %d steps\n", static_cast<long long>(each), steps);
  EXPECT_GE(steps, 20000) << "the schedule must not run dry";
}

}  // namespace
}  // namespace plexrl::core
