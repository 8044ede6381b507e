// SPDX-License-Identifier: Apache-2.0
#include "core/tenant_ledger.h"

#include <gtest/gtest.h>

namespace plexrl::core {
namespace {

constexpr TenantId kJob{1};
constexpr OpKind kTrain = OpKind::kForwardBackward;

TimePoint at(std::int64_t seconds) { return TimePoint{seconds * kSecond.ns}; }
Duration seconds(std::int64_t n) { return Duration{n * kSecond.ns}; }

// One op: arrives, waits, runs, leaves.
void run(TenantLedger& ledger, OpKind kind, std::int64_t arrives, std::int64_t starts,
         std::int64_t ends) {
  ledger.op_arrived(kJob, kind, at(arrives));
  ledger.set_waiting(kJob, true, at(arrives));
  ledger.started(kJob, at(starts));
  ledger.set_waiting(kJob, false, at(starts));
  ledger.stopped(kJob, kind, seconds(ends - starts), at(ends));
  ledger.op_left(kJob, kind, at(ends));
}

TEST(TenantLedger, AJobThatNeverWaitsIsNotSlowedDown) {
  TenantLedger ledger;
  ledger.add(kJob);
  EXPECT_EQ(ledger.view(kJob, at(1))->slowdown_permille, 1000u);
  run(ledger, kTrain, 0, 0, 10);
  run(ledger, kTrain, 40, 40, 50);
  const TenantView view = ledger.view(kJob, at(80)).value();
  EXPECT_EQ(view.slowdown_permille, 1000u);
  EXPECT_EQ(view.busy_permille, 250u) << "20 of 80 s";
  EXPECT_EQ(ledger.view({2}, at(1)), std::nullopt);
}

TEST(TenantLedger, WaitingIsSlowdownAndNotBusyTime) {
  TenantLedger ledger;
  run(ledger, kTrain, 0, 20, 30);
  const TenantView view = ledger.view(kJob, at(60)).value();
  EXPECT_EQ(view.slowdown_permille, 1500u) << "60 s instead of 40";
  EXPECT_EQ(view.busy_permille, 250u) << "10 of 40 s";
}

TEST(TenantLedger, AnOpThatWaitsWhileAnotherOfTheJobRunsIsNoWaiting) {
  TenantLedger ledger;
  ledger.op_arrived(kJob, kTrain, at(0));
  ledger.set_waiting(kJob, true, at(0));
  ledger.started(kJob, at(0));
  ledger.op_arrived(kJob, kTrain, at(1));
  EXPECT_EQ(ledger.view(kJob, at(10))->slowdown_permille, 1000u);
  ledger.stopped(kJob, kTrain, seconds(10), at(10));
  EXPECT_EQ(ledger.view(kJob, at(20))->slowdown_permille, 2000u) << "still counts while it lasts";
}

TEST(TenantLedger, ABoundIsBrokenAtTheTimeForetoldAndCountedOnce) {
  TenantLedger ledger;
  ledger.set_bound(kJob, 1500);
  run(ledger, kTrain, 0, 0, 10);
  EXPECT_EQ(ledger.late_at(kJob), TenantLedger::kNever) << "nothing waits";
  ledger.op_arrived(kJob, kTrain, at(40));
  ledger.set_waiting(kJob, true, at(40));
  EXPECT_EQ(ledger.late_at(kJob), at(60)) << "60 s instead of 40";
  EXPECT_EQ(ledger.view(kJob, at(70))->violations, 0u);
  ledger.started(kJob, at(70));
  EXPECT_EQ(ledger.view(kJob, at(70))->violations, 1u);
  ledger.stopped(kJob, kTrain, seconds(5), at(75));
  EXPECT_EQ(ledger.view(kJob, at(75))->violations, 1u);
}

TEST(TenantLedger, TheNextUseFollowsFromTheKindOfTheLastOp) {
  TenantLedger ledger;
  std::int64_t now = 0;
  for (int step = 0; step < 4; ++step) {
    run(ledger, OpKind::kForwardBackward, now, now, now + 5);
    run(ledger, OpKind::kOptimStep, now + 6, now + 6, now + 7);
    now += 107;
  }
  const std::int64_t end = now - 100;
  EXPECT_EQ(ledger.rest(kJob)->since, at(end));
  EXPECT_EQ(ledger.rest(kJob)->pause, seconds(100)) << "after an optim_step";
  run(ledger, OpKind::kForwardBackward, now, now, now + 5);
  EXPECT_EQ(ledger.rest(kJob)->pause, seconds(1)) << "after a forward_backward";
  ledger.op_arrived(kJob, OpKind::kForwardBackward, at(now + 6));
  EXPECT_FALSE(ledger.rest(kJob).has_value()) << "it has one";
}

// Phases of four ops of 10 s with 1 s between them, every 100 s.
TEST(TenantLedger, APhaseIsWhatComesWithShortPauses) {
  TenantLedger ledger;
  for (int phase = 0; phase < 4; ++phase)
    for (int op = 0; op < 4; ++op)
      run(ledger, kTrain, 100 * phase + 11 * op, 100 * phase + 11 * op, 100 * phase + 11 * op + 10);
  EXPECT_EQ(ledger.period(kJob, OpClass::kTrain), seconds(100));
  run(ledger, kTrain, 400, 400, 410);
  EXPECT_EQ(ledger.phase_left(kJob, OpClass::kTrain, seconds(10), {}), seconds(30));
  EXPECT_EQ(ledger.phase_left(kJob, OpClass::kTrain, seconds(2), seconds(4)), seconds(26));
  EXPECT_EQ(ledger.phase_left(kJob, OpClass::kTrain, seconds(35), {}), seconds(35)) << "at least";
  EXPECT_EQ(ledger.phase_left(kJob, OpClass::kRollout, seconds(7), {}), seconds(7)) << "not seen";
}

TEST(TenantLedger, WaitingForOthersDoesNotEndAPhase) {
  TenantLedger ledger;
  run(ledger, kTrain, 0, 0, 10);
  run(ledger, kTrain, 11, 80, 90);
  run(ledger, kTrain, 91, 91, 101);
  EXPECT_EQ(ledger.period(kJob, OpClass::kTrain), std::nullopt) << "still the first phase";
  run(ledger, kTrain, 200, 200, 210);
  EXPECT_EQ(ledger.period(kJob, OpClass::kTrain), seconds(200 - 69)) << "alone";
}

TEST(TenantLedger, ContinuesFromASnapshotAlike) {
  TenantLedger ledger;
  ledger.set_bound(kJob, 1200);
  for (int n = 0; n < 7; ++n)
    run(ledger, static_cast<OpKind>(1 + n % 4), 30 * n, 30 * n + 5, 30 * n + 11);
  ledger.op_arrived(kJob, kTrain, at(300));
  ledger.set_waiting(kJob, true, at(300));
  ByteWriter out;
  ledger.encode(out);
  TenantLedger again;
  ByteReader in(out.bytes());
  again.decode(in);
  ASSERT_TRUE(in.at_end());
  for (TenantLedger* each : {&ledger, &again}) each->started(kJob, at(333));
  ByteWriter first, second;
  ledger.encode(first);
  again.encode(second);
  EXPECT_EQ(first.bytes(), second.bytes());
}

}  // namespace
}  // namespace plexrl::core
