// SPDX-License-Identifier: Apache-2.0
// What the scheduler tells of what it has learnt.
#include <gtest/gtest.h>

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
void add(SimulatedDevice& device, std::uint64_t n, std::uint64_t bytes) {
  device.add_engine({n});
  device.add_model({{n}, {n}, {n}, {}, bytes, 100});
}

double ms(std::int64_t ns) { return static_cast<double>(ns) * 1e-6; }

TEST(SchedulerViews, AReasonSaysWhatIsWaitedForAndHowLong) {
  SimulatedDevice device(config("fifo"), 1);
  add(device, 1, 60);
  add(device, 2, 60);
  device.add_op({1}, OpKind::kForwardBackward, 0, 200);
  while (!device.running()) ASSERT_TRUE(device.advance());
  const OpId blind = device.add_op({2}, OpKind::kGenerate, 0, 5);
  WaitReason reason = device.scheduler().why(blind);
  EXPECT_EQ(reason.doing, OpKind::kForwardBackward);
  EXPECT_EQ(reason.until.ns, 0) << "nothing is known of forward_backward yet";
  ASSERT_TRUE(device.drain());
  device.add_op({1}, OpKind::kForwardBackward, 0, 200);
  while (!device.running()) ASSERT_TRUE(device.advance());
  const TimePoint since = device.now();
  reason = device.scheduler().why(device.add_op({2}, OpKind::kGenerate, 0, 5));
  EXPECT_EQ(reason.kind, Kind::kOtherTenant);
  EXPECT_EQ(reason.holder, TenantId{1});
  EXPECT_NEAR(ms((reason.until - since).ns), 200, 1);
  reason = device.scheduler().why(device.add_op({1}, OpKind::kOptimStep, 0, 5));
  EXPECT_EQ(reason.kind, Kind::kOwnOps);
  EXPECT_EQ(reason.doing, OpKind::kForwardBackward);
}

TEST(SchedulerViews, ASwitchIsToldWithItsExpectedEnd) {
  auto scheduler = Scheduler::create(config("fifo", 2 << 20)).value();
  const auto step = [&](const Event& event, std::int64_t at_ms) {
    return SimulatedDevice::describe(scheduler->step(event, TimePoint{at_ms * kMs}));
  };
  step(EngineUp{{1}}, 1);
  step(ModelAdded{{1}, {1}, {1}, {}, 2 << 20, 100}, 1);
  step(ModelAdded{{2}, {2}, {1}, {}, 2 << 20, 100}, 1);
  step(OpArrived{{1}, {1}, OpKind::kOptimStep, 0, 1}, 1);
  EXPECT_EQ(scheduler->why({1}).until.ns, 0);
  step(ModelResumed{{1}}, 101);
  step(OpFinished{{1}}, 110);
  EXPECT_EQ(step(OpArrived{{2}, {2}, OpKind::kOptimStep, 0, 1}, 200), "park 1;@0\n");
  EXPECT_EQ(step(ModelParked{{1}}, 250), "resume 2;@0\n");
  const WaitReason reason = scheduler->why({2});
  EXPECT_EQ(reason.kind, Kind::kSwitch);
  EXPECT_NEAR(ms(reason.until.ns), 350, 1) << "100 ms, as the first took";
}

TEST(SchedulerViews, ATenantsBusyTimeSlowdownAndBoundAreTold) {
  SimulatedDevice device(config("fifo"), 1);
  EXPECT_EQ(device.scheduler().tenant({1}, device.now()), std::nullopt);
  device.send(TenantBound{{2}, 1350});
  add(device, 1, 40);
  add(device, 2, 40);
  device.add_op({1}, OpKind::kOptimStep, 0, 5000);
  while (!device.running()) ASSERT_TRUE(device.advance());
  device.add_op({2}, OpKind::kOptimStep, 0, 5000);
  ASSERT_TRUE(device.drain());
  const TenantView first = device.scheduler().tenant({1}, device.now()).value();
  EXPECT_LT(first.slowdown_permille, 1010u) << "it only waited for its model";
  EXPECT_NEAR(first.busy_permille, 500, 10) << "5 of 10 s";
  const TenantView second = device.scheduler().tenant({2}, device.now()).value();
  EXPECT_NEAR(second.slowdown_permille, 2000, 10);
  EXPECT_EQ(second.bound_permille, 1350u);
  EXPECT_EQ(second.violations, 1u);
}

}  // namespace
}  // namespace plexrl::core
