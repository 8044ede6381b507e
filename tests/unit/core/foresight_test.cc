// SPDX-License-Identifier: Apache-2.0
// What the scheduler does because of what it expects: whom it evicts, what it brings in before it
// is asked, when it lets the device stand still.
#include <gtest/gtest.h>

#include "core/residency.h"
#include "unit/core/simulated_device.h"

namespace plexrl::core {
namespace {

constexpr std::int64_t kMs = kMillisecond.ns;

SchedulerConfig config(std::string_view policy, std::uint64_t capacity) {
  SchedulerConfig config;
  config.device_capacity_bytes = capacity;
  config.policy = policy;
  config.quantum = Duration{20 * kMs};
  return config;
}

// The scheduler alone; the test gives all answers. Model n of tenant n, of 50 bytes.
class Steps {
 public:
  Steps(std::string_view policy, std::uint64_t capacity, std::uint64_t models)
      : scheduler_(Scheduler::create(config(policy, capacity)).value()) {
    (void)step(0, EngineUp{{1}});
    for (std::uint64_t n = 1; n <= models; ++n)
      (void)step(0, ModelAdded{{n}, {n}, {1}, {}, 50, 100});
  }
  std::string step(std::int64_t ms, const Event& event) {
    const std::string text =
        SimulatedDevice::describe(scheduler_->step(event, TimePoint{1 + ms * kMs}));
    return text.substr(0, text.find('@'));
  }
  OpId arrive(std::int64_t ms, std::uint64_t model, OpKind kind = OpKind::kOptimStep) {
    last_ = step(ms, OpArrived{{++op_}, {model}, kind, 0, 1});
    return {op_};
  }
  // An op that runs for 10 ms on a model that is on the device.
  void run(std::int64_t ms, std::uint64_t model) {
    const OpId op = arrive(ms, model);
    ASSERT_EQ(last_, "start " + std::to_string(op.value) + ";");
    last_ = step(ms + 10, OpFinished{op});
  }
  // The same, of one that has to be brought in first.
  void bring_and_run(std::int64_t ms, std::uint64_t model) {
    const OpId op = arrive(ms, model);
    ASSERT_EQ(last_, "resume " + std::to_string(model) + ";");
    ASSERT_EQ(step(ms, ModelResumed{{model}}), "start " + std::to_string(op.value) + ";");
    last_ = step(ms + 10, OpFinished{op});
  }
  [[nodiscard]] const std::string& last() const { return last_; }
  [[nodiscard]] Scheduler& scheduler() { return *scheduler_; }

 private:
  std::unique_ptr<Scheduler> scheduler_;
  std::uint64_t op_ = 0;
  std::string last_;
};

// Tenant 1 comes every second, tenant 2 every ten; tenant 2 was used last.
TEST(Foresight, TheModelThatIsUsedFurthestAheadMakesRoom) {
  Steps steps("least-slowdown", 100, 3);
  steps.bring_and_run(0, 1);
  steps.bring_and_run(20, 2);
  for (std::int64_t ms = 1000; ms < 10000; ms += 1000) steps.run(ms, 1);
  steps.run(10010, 1);
  steps.run(10030, 2);
  steps.arrive(10100, 3);
  EXPECT_EQ(steps.last(), "park 2;") << "the least recently used one is 1";
}

TEST(Foresight, FifoEvictsTheLeastRecentlyUsed) {
  Steps steps("fifo", 100, 3);
  steps.bring_and_run(0, 1);
  steps.bring_and_run(20, 2);
  for (std::int64_t ms = 1000; ms <= 10000; ms += 1000) steps.run(ms, 1);
  steps.run(10030, 2);
  steps.arrive(10100, 3);
  EXPECT_EQ(steps.last(), "park 1;");
}

TEST(Foresight, ATenantThatIsVeryLateMakesRoom) {
  Steps steps("least-slowdown", 100, 3);
  steps.bring_and_run(0, 1);
  steps.bring_and_run(20, 2);
  for (std::int64_t ms = 1000; ms < 10000; ms += 1000) steps.run(ms, 1);
  steps.run(10030, 2);
  steps.arrive(19000, 3);
  EXPECT_EQ(steps.last(), "park 1;") << "it should have come 9 s ago";
}

TEST(Foresight, AModelThatIsNeededMakesRoomOnlyWhenNothingElseDoes) {
  Residency models(100);
  const TimePoint now{100};
  for (std::uint64_t n = 1; n <= 3; ++n) {
    ModelEntry entry;
    entry.tenant = {n};
    entry.device_bytes = 50;
    models.add({n}, entry);
  }
  for (const std::uint64_t n : {1, 2}) models.set_place({n}, Place::kResident, now);
  models.expect({1}, {now, true, false});
  models.expect({2}, {TimePoint{101}, false, true});
  EXPECT_EQ(models.victims(50, {3}, now), std::vector<ModelId>{{2}});
  EXPECT_EQ(models.victims(100, {3}, now), (std::vector<ModelId>{{2}, {1}}));
  EXPECT_EQ(models.victims(101, {3}, now), std::nullopt);
}

TEST(Foresight, ABaseFollowsWhenAllOfItsAdaptersMakeRoom) {
  Residency models(100);
  const TimePoint now{100};
  const auto add = [&](std::uint64_t n, std::uint64_t base, std::uint64_t bytes) {
    ModelEntry entry;
    entry.tenant = {base == 0 ? 0 : n};
    entry.engine = {1};
    entry.base = {base};
    entry.device_bytes = bytes;
    models.add({n}, entry);
  };
  add(9, 0, 60);
  add(1, 9, 20);
  add(2, 9, 20);
  add(3, 0, 50);
  for (const std::uint64_t n : {9, 1, 2}) models.set_place({n}, Place::kResident, now);
  models.expect({1}, {TimePoint{5000}, false, true});
  models.expect({2}, {TimePoint{101}, false, true});
  EXPECT_EQ(models.victims(20, {3}, now), std::vector<ModelId>{{1}});
  EXPECT_EQ(models.victims(50, {3}, now), (std::vector<ModelId>{{1}, {2}})) << "and 9 after them";
  models.set_in_use({2}, true);
  EXPECT_EQ(models.victims(50, {3}, now), std::nullopt);
}

// Two tenants that come every two seconds, in turn, on a device that holds one.
void alternate(Steps& steps) {
  steps.bring_and_run(0, 1);
  for (std::int64_t ms = 1000; ms <= 5000; ms += 1000) {
    const std::uint64_t next = 1 + static_cast<std::uint64_t>(ms / 1000) % 2;
    const std::uint64_t other = 3 - next;
    const OpId op = steps.arrive(ms, next);
    if (steps.last() != "start " + std::to_string(op.value) + ";") {
      ASSERT_EQ(steps.last(), "park " + std::to_string(other) + ";");
      ASSERT_EQ(steps.step(ms, ModelParked{{other}}), "resume " + std::to_string(next) + ";");
      (void)steps.step(ms, ModelResumed{{next}});
    }
    const std::string then = steps.step(ms + 10, OpFinished{op});
    if (then.empty()) continue;
    ASSERT_EQ(then, "park " + std::to_string(next) + ";");
    ASSERT_EQ(steps.step(ms + 11, ModelParked{{next}}), "resume " + std::to_string(other) + ";");
    (void)steps.step(ms + 12, ModelResumed{{other}});
  }
}

TEST(Foresight, TheModelThatIsExpectedNextIsBroughtInBeforeItIsAskedFor) {
  Steps steps("hrrs", 50, 2);
  alternate(steps);
  const OpId op = steps.arrive(6000, 1);
  EXPECT_EQ(steps.last(), "start " + std::to_string(op.value) + ";") << "it is there already";
}

TEST(Foresight, ThereIsNoPrefetchForATenantThatIsExpectedLater) {
  Steps steps("least-slowdown", 50, 2);
  steps.bring_and_run(0, 1);
  const OpId op = steps.arrive(1000, 2);
  (void)steps.step(1000, ModelParked{{1}});
  (void)steps.step(1000, ModelResumed{{2}});
  EXPECT_EQ(steps.step(1010, OpFinished{op}), "") << "when 1 comes back is not known";
  for (std::int64_t ms = 1100; ms < 1500; ms += 100) {
    steps.run(ms, 2);
    EXPECT_EQ(steps.last(), "");
  }
}

TEST(Foresight, TheHostTierIsToldWhoIsExpected) {
  Steps steps("hrrs", 50, 2);
  alternate(steps);
  EXPECT_EQ(steps.scheduler().waiting_models(), std::vector<ModelId>{{2}}) << "1 is resident";
}

// Tenant 1 sends its next op 1 ms after the last; a move takes 200 ms.
void teach_short_pauses(Steps& steps) {
  const OpId first = steps.arrive(0, 1);
  (void)steps.step(200, ModelResumed{{1}});
  (void)steps.step(210, OpFinished{first});
  for (std::int64_t ms = 211; ms < 255; ms += 11) steps.run(ms, 1);
}

TEST(Foresight, TheDeviceIsHeldForATenantThatComesBackSoonerThanASwitchTakes) {
  Steps steps("least-slowdown", 50, 2);
  teach_short_pauses(steps);
  const OpId mine = steps.arrive(255, 1);
  steps.arrive(256, 2);
  EXPECT_EQ(steps.step(265, OpFinished{mine}), "") << "2 waits: 1 is back in 1 ms";
  steps.arrive(266, 1);
  EXPECT_NE(steps.last().find("start"), std::string::npos);
}

TEST(Foresight, TheDeviceIsHeldForTwiceTheUsualPauseAtMost) {
  Steps steps("least-slowdown", 50, 2);
  teach_short_pauses(steps);
  const OpId mine = steps.arrive(255, 1);
  steps.arrive(256, 2);
  EXPECT_EQ(steps.step(265, OpFinished{mine}), "");
  EXPECT_EQ(steps.step(267, Tick{}), "park 1;");
}

// A training phase of tenant 1 from `ms`: an op of `long_ms`, one of 4 ms, and 3 ms later a third
// one.
OpId train_until_the_pause(Steps& steps, std::int64_t ms, std::int64_t long_ms) {
  const OpId gradients = steps.arrive(ms, 1, OpKind::kForwardBackward);
  (void)steps.step(ms + long_ms, OpFinished{gradients});
  return steps.arrive(ms + long_ms, 1);
}

void teach_a_phase(Steps& steps, std::int64_t long_ms) {
  steps.bring_and_run(0, 1);
  steps.bring_and_run(20, 2);
  for (std::int64_t ms = 1000; ms < 6000; ms += 1000) {
    const OpId step = train_until_the_pause(steps, ms, long_ms);
    (void)steps.step(ms + long_ms + 4, OpFinished{step});
    const OpId publish = steps.arrive(ms + long_ms + 7, 1, OpKind::kSave);
    (void)steps.step(ms + long_ms + 8, OpFinished{publish});
  }
}

TEST(Foresight, TheDeviceIsHeldOverAPauseThatIsShortAgainstThePhase) {
  Steps steps("least-slowdown", 100, 2);
  teach_a_phase(steps, 100);
  const OpId mine = train_until_the_pause(steps, 6000, 100);
  steps.arrive(6050, 2);
  EXPECT_EQ(steps.step(6104, OpFinished{mine}), "") << "short against 104 ms, not against 4 ms";
  steps.arrive(6107, 1, OpKind::kSave);
  EXPECT_NE(steps.last().find("start"), std::string::npos);
}

TEST(Foresight, TheDeviceIsNotHeldOverAPauseThatIsLongAgainstThePhase) {
  Steps steps("least-slowdown", 100, 2);
  teach_a_phase(steps, 30);
  const OpId mine = train_until_the_pause(steps, 6000, 30);
  const OpId other = steps.arrive(6010, 2);
  EXPECT_EQ(steps.step(6034, OpFinished{mine}), "start " + std::to_string(other.value) + ";");
}

// Each pause is short against the phase; together they would leave the device idle for a sixth of
// it.
TEST(Foresight, PausesOfAPhaseAreHeldOverUntilTheyAreLongTogether) {
  Steps steps("least-slowdown", 100, 2);
  steps.bring_and_run(0, 1);
  steps.bring_and_run(20, 2);
  const auto run = [&](std::int64_t at, std::uint64_t tenant, std::int64_t ms) {
    const OpId op = steps.arrive(at, tenant, OpKind::kForwardBackward);
    return steps.step(at + ms, OpFinished{op});
  };
  for (std::int64_t ms = 1000; ms < 6000; ms += 1000) {
    (void)run(ms, 1, 64);
    for (std::int64_t op = 0; op < 9; ++op) (void)run(ms + 66 + 12 * op, 1, 10);
    (void)run(ms + 300, 2, 500);
  }
  const OpId mine = steps.arrive(6000, 1, OpKind::kForwardBackward);
  const OpId other = steps.arrive(6001, 2, OpKind::kForwardBackward);
  EXPECT_EQ(steps.step(6064, OpFinished{mine}), "") << "2 ms against 4";
  EXPECT_EQ(run(6066, 1, 10), "") << "2 ms against 4.6 less 2";
  EXPECT_EQ(run(6078, 1, 10), "start " + std::to_string(other.value) + ";") << "2 ms against 1.2";
}

// The pause is short, but the other job's op is shorter and has waited: it would go first anyway.
TEST(Foresight, TheDeviceIsNotHeldForWhoWouldNotGoFirst) {
  Steps steps("least-slowdown", 100, 2);
  teach_a_phase(steps, 100);
  for (std::int64_t ms = 6000; ms < 7000; ms += 200) steps.run(ms, 2);
  const OpId gradients = steps.arrive(7000, 1, OpKind::kForwardBackward);
  const OpId other = steps.arrive(7001, 2);
  EXPECT_EQ(steps.step(7050, OpFinished{gradients}), "start " + std::to_string(other.value) + ";");
}

TEST(Foresight, FifoHoldsTheDeviceForNobody) {
  Steps steps("fifo", 50, 2);
  teach_short_pauses(steps);
  const OpId mine = steps.arrive(255, 1);
  steps.arrive(256, 2);
  EXPECT_EQ(steps.step(265, OpFinished{mine}), "park 1;");
}

}  // namespace
}  // namespace plexrl::core
