// SPDX-License-Identifier: Apache-2.0
#include "runtime/accounting.h"

#include <gtest/gtest.h>

#include "core/byte_codec.h"
#include "fakes/faulty_store.h"
#include "fakes/queued_store.h"

namespace plexrl::runtime {
namespace {

TEST(Accounting, EverySpanGoesToOneAccount) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  Accounting books(store.queue);
  const TenantId a{1};
  const TenantId b{2};
  books.advance(TimePoint{100});
  books.op_arrived(a);
  books.op_arrived(b);
  const ModelId model{7};
  books.move_started(model, b);
  books.advance(TimePoint{110});  // 10: both wait for a switch
  books.move_ended(model);
  books.started(a);
  books.advance(TimePoint{140});  // 30: a computes, b waits for it
  books.stopped(a);
  books.op_left(a);
  books.advance(TimePoint{145});  // 5: nothing happens
  books.started(b);
  books.advance(TimePoint{165});  // 20: b computes, a has no op
  EXPECT_EQ(books.totals(a).device_ns, 30);
  EXPECT_EQ(books.totals(a).switch_ns, 10);
  EXPECT_EQ(books.totals(a).wait_others_ns, 0);
  EXPECT_EQ(books.totals(b).device_ns, 20);
  EXPECT_EQ(books.totals(b).wait_others_ns, 30);
  EXPECT_EQ(books.totals(b).wall_ns, 65);
}

TEST(Accounting, TimeIsCountedWhileOpsAreOutstandingOnly) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  Accounting books(store.queue);
  const TenantId a{1};
  const TenantId b{2};
  books.advance(TimePoint{1000});
  books.started(b);
  books.advance(TimePoint{1010});  // 10: a is not there yet
  books.op_arrived(a);
  books.advance(TimePoint{1030});  // 20: a waits for b
  books.op_left(a);
  books.advance(TimePoint{1070});  // 40: a has nothing to do
  books.op_arrived(a);
  books.advance(TimePoint{1075});  // 5: a waits for b
  EXPECT_EQ(books.find(a)->wait_others_ns, 25);
  books.stopped(b);
  books.started(a);
  books.advance(TimePoint{1078});  // 3: a computes
  EXPECT_EQ(books.find(a)->wait_others_ns, 25);
  EXPECT_EQ(books.find(a)->device_ns, 3);
  EXPECT_EQ(books.find(a)->switch_ns, 0);
  EXPECT_EQ(books.find(a)->wall_ns, 68);
  books.forget(a);
  EXPECT_EQ(books.find(a), nullptr);
}

// Rows 3 and 1 for 40 ns: 30 and 10; what the division leaves goes to the first.
TEST(Accounting, ABatchIsSharedOutByRows) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  Accounting books(store.queue);
  const TenantId a{1};
  const TenantId b{2};
  const TenantId c{3};
  books.advance(TimePoint{100});
  for (const TenantId tenant : {a, b, c}) books.op_arrived(tenant);
  books.started(a, 3);
  books.started(b, 1);
  books.advance(TimePoint{140});
  EXPECT_TRUE(books.computes(a) && books.computes(b));
  EXPECT_EQ(books.find(a)->device_ns, 30);
  EXPECT_EQ(books.find(b)->device_ns, 10);
  EXPECT_EQ(books.find(a)->wait_others_ns, 0) << "an op of it ran all the time";
  EXPECT_EQ(books.find(b)->wait_others_ns, 0);
  EXPECT_EQ(books.find(c)->wait_others_ns, 40);
  EXPECT_EQ(books.device().busy_ns, 40);
  books.started(a, 4);  // of another model
  books.stopped(a, 3);
  books.advance(TimePoint{151});  // 11: 4 to 1
  EXPECT_EQ(books.find(a)->device_ns, 30 + 9);
  EXPECT_EQ(books.find(b)->device_ns, 10 + 2);
  books.stopped(a, 4);
  EXPECT_FALSE(books.computes(a));
  books.advance(TimePoint{161});
  EXPECT_EQ(books.find(b)->device_ns, 12 + 10);
  EXPECT_EQ(books.find(a)->wait_others_ns, 10);
  EXPECT_EQ(books.device().busy_ns, 61);
}

TEST(Accounting, WallTimeStandsStillWhenTheJobHasEnded) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  Accounting books(store.queue);
  const TenantId a{1};
  books.advance(TimePoint{1000});
  books.op_arrived(a);
  books.advance(TimePoint{1020});
  books.op_left(a);
  books.ended(a);
  books.advance(TimePoint{9000});
  EXPECT_EQ(books.find(a)->wall_ns, 20);
  books.op_arrived(a);  // it was requeued
  books.advance(TimePoint{9005});
  EXPECT_EQ(books.find(a)->wall_ns, 25);
}

TEST(Accounting, ManyReadersSeeTheSameTimes) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  Accounting often(store.queue);
  Accounting once(store.queue);
  const TenantId a{1};
  for (Accounting* books : {&often, &once}) {
    books->advance(TimePoint{1});
    books->op_arrived(a);
  }
  const TenantId b{2};
  for (std::int64_t t = 1; t <= 60; ++t) {
    for (Accounting* books : {&often, &once}) {
      if (books->computes(a)) books->stopped(a);
      if (books->computes(b)) books->stopped(b);
      if (t % 3 != 2) books->started(t % 3 == 0 ? a : b);
      if (t % 4 == 0) books->move_started(ModelId{1}, a);
      if (t % 4 == 2) books->move_ended(ModelId{1});
      books->advance(TimePoint{1 + t * t});
    }
    (void)often.find(a);
  }
  EXPECT_EQ(often.find(a)->device_ns, once.find(a)->device_ns);
  EXPECT_EQ(often.find(a)->wait_others_ns, once.find(a)->wait_others_ns);
  EXPECT_EQ(often.find(a)->switch_ns, once.find(a)->switch_ns);
  EXPECT_EQ(once.find(a)->wall_ns, 3600);
}

TEST(Accounting, AMoveIsExposedOrHidden) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  Accounting books(store.queue);
  const TenantId a{1};
  const TenantId b{2};
  books.advance(TimePoint{100});
  books.move_started(ModelId{1}, a);
  books.advance(TimePoint{104});  // 4: nobody waits for the move
  books.op_arrived(a);
  books.advance(TimePoint{114});  // 10: a waits for it
  books.move_ended(ModelId{1});
  books.started(a);
  books.advance(TimePoint{144});  // 30: a computes
  books.op_arrived(b);
  books.move_started(ModelId{2}, b);
  books.move_started(ModelId{3}, b);
  books.move_started(ModelId{4}, TenantId{});  // a base
  books.advance(TimePoint{164});               // 20: hidden behind a's op, once for b
  books.move_ended(ModelId{2});
  books.move_ended(ModelId{2});  // told twice
  books.move_ended(ModelId{3});
  books.stopped(a);
  books.op_left(a);
  books.advance(TimePoint{165});  // 1: b waits for the base
  books.forget(b);                // with an op
  books.advance(TimePoint{195});  // 30: nobody waits
  EXPECT_EQ(books.find(a)->switch_ns, 10);
  EXPECT_EQ(books.find(a)->switch_hidden_ns, 0);
  EXPECT_EQ(books.device().busy_ns, 50);
  EXPECT_EQ(books.device().switch_exposed_ns, 11);
  EXPECT_EQ(books.device().switch_hidden_ns, 20);
}

TEST(Accounting, AnOpThatStoodForItsMoveWaitedForASwitch) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  Accounting books(store.queue);
  const TenantId a{1};
  const TenantId b{2};
  books.advance(TimePoint{100});
  books.op_arrived(a);
  books.op_arrived(b);
  books.move_started(ModelId{1}, a);
  books.advance(TimePoint{110});  // 10: exposed
  books.started(a);
  books.advance(TimePoint{140});  // 30: the op runs, and the rest of its model comes
  books.move_ended(ModelId{1});
  books.advance(TimePoint{145});
  books.stopped(a);
  books.op_ran(a, ModelId{1}, {true, 35, 2, 20});
  EXPECT_EQ(books.find(a)->switch_ns, 30);
  EXPECT_EQ(books.find(a)->switch_hidden_ns, 10);
  EXPECT_EQ(books.find(a)->device_ns, 15);
  EXPECT_EQ(books.find(a)->wait_others_ns, 0);
  EXPECT_EQ(books.find(b)->wait_others_ns, 35);
  EXPECT_EQ(books.device().busy_ns, 15);
  EXPECT_EQ(books.device().switch_exposed_ns, 30);
  EXPECT_EQ(books.device().switch_hidden_ns, 10);
  EXPECT_EQ(books.find(a)->commit_stall_ns, 2);
  const ModelTotals own = books.model(ModelId{1});
  EXPECT_EQ(own.switch_exposed_ns, 30);
  EXPECT_EQ(own.switch_hidden_ns, 10);
  EXPECT_EQ(own.commit_stall_ns, 2);
  EXPECT_EQ(own.training_ns, 35);
  EXPECT_NEAR(own.commit_stall_share(), 2.0 / 35, 1e-9);
  books.op_ran(a, ModelId{1}, {false, 9, 0, 1'000});  // never more than was counted
  EXPECT_EQ(books.find(a)->switch_hidden_ns, 0);
  EXPECT_EQ(books.model(ModelId{1}).training_ns, 35) << "sampling";
  books.forget_model(ModelId{1});
  EXPECT_EQ(books.model(ModelId{1}).training_ns, 0);
}

TEST(Accounting, TheTenantOfAHiddenMoveIsTold) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  {
    Accounting books(store.queue);
    books.advance(TimePoint{100});
    books.op_arrived(TenantId{2});
    books.started(TenantId{1});
    books.move_started(ModelId{2}, TenantId{2});
    books.advance(TimePoint{120});
    EXPECT_EQ(books.find(TenantId{2})->switch_hidden_ns, 20);
    books.save();
    store.run();
  }
  Accounting later(store.queue);
  ASSERT_TRUE(later.load().ok());
  EXPECT_EQ(later.find(TenantId{2})->switch_hidden_ns, 20);
}

TEST(Accounting, TotalsOfAnEarlierFormatAreRead) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  core::ByteWriter row;
  row.varint(1);
  for (std::uint64_t value = 10; value < 15; ++value) row.varint(value);
  for (std::uint64_t value = 0; value < 2 + 7 * 5; ++value) row.varint(value);
  ASSERT_TRUE(memory->put("usage", 3, 0, row.take()).ok());
  Accounting books(store.queue);
  ASSERT_TRUE(books.load().ok());
  EXPECT_EQ(books.find(TenantId{3})->device_ns, 10);
  EXPECT_EQ(books.find(TenantId{3})->commit_stall_ns, 14);
  EXPECT_EQ(books.find(TenantId{3})->switch_hidden_ns, 0);
  EXPECT_EQ(books.find(TenantId{3})->commits, 1U);
}

TEST(Accounting, SavedTotalsAreThereAgain) {
  const auto memory = store::make_memory_store();
  store::FaultyStore counted(*memory);
  store::QueuedStore store(counted);
  const TenantId a{1};
  {
    Accounting books(store.queue);
    books.advance(TimePoint{100});
    books.op_arrived(a);
    books.started(a);
    books.advance(TimePoint{140});
    books.totals(a).kinds[1].tokens = 1ULL << 50;
    books.totals(a).commits = 3;
    books.save();
    store.run();
    books.save();
    store.run();
    EXPECT_EQ(counted.writes, 1);  // nothing had changed
  }
  Accounting later(store.queue);
  ASSERT_TRUE(later.load().ok());
  EXPECT_EQ(later.totals(a).device_ns, 40);
  EXPECT_EQ(later.totals(a).wall_ns, 40);
  EXPECT_EQ(later.totals(a).kinds[1].tokens, 1ULL << 50);
  EXPECT_EQ(later.totals(a).commits, 3U);
  later.advance(TimePoint{1000});
  later.advance(TimePoint{1005});
  EXPECT_EQ(later.totals(a).wall_ns, 45);  // the time without a plexrld is nobody's
  later.forget(a);
  Accounting last(store.queue);
  ASSERT_TRUE(last.load().ok());
  EXPECT_EQ(last.find(a), nullptr);
}

TEST(Accounting, WhatTheDiskDidNotTakeIsSavedNextTime) {
  const auto memory = store::make_memory_store();
  store::FaultyStore disk(*memory);
  store::QueuedStore store(disk);
  const TenantId a{1};
  Accounting books(store.queue);
  books.totals(a).commits = 3;
  disk.fault = [] { return store::FaultyStore::Fault::kBefore; };
  books.save();
  store.run();
  disk.fault = [] { return store::FaultyStore::Fault::kNone; };
  books.save();
  store.run();
  Accounting later(store.queue);
  ASSERT_TRUE(later.load().ok());
  EXPECT_EQ(later.totals(a).commits, 3U);
}

TEST(Accounting, ADamagedRowIsNamed) {
  const auto memory = store::make_memory_store();
  store::QueuedStore store(*memory);
  ASSERT_TRUE(memory->put("usage", 7, 0, "?").ok());
  Accounting books(store.queue);
  const Status status = books.load();
  EXPECT_EQ(status.code(), Code::CORRUPT);
  EXPECT_NE(status.text().find('7'), std::string::npos);
}

TEST(Accounting, SlowdownLeavesOutTheWaitForOthers) {
  TenantTotals totals;
  EXPECT_EQ(totals.slowdown(), 1.0);
  totals.wall_ns = 100;
  totals.wait_others_ns = 30;
  totals.switch_ns = 20;
  EXPECT_DOUBLE_EQ(totals.slowdown(), 2.0);
}

}  // namespace
}  // namespace plexrl::runtime
