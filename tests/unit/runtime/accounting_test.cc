// SPDX-License-Identifier: Apache-2.0
#include "runtime/accounting.h"

#include <gtest/gtest.h>

namespace plexrl::runtime {
namespace {

TEST(Accounting, EverySpanGoesToOneAccount) {
  Accounting books;
  const TenantId a{1};
  const TenantId b{2};
  books.advance(TimePoint{100});
  books.op_arrived(a);
  books.op_arrived(b);
  books.move_started();
  books.advance(TimePoint{110});  // 10: both wait for a switch
  books.move_ended();
  books.running(a);
  books.advance(TimePoint{140});  // 30: a computes, b waits for it
  books.running(TenantId{});
  books.op_left(a);
  books.advance(TimePoint{145});  // 5: nothing happens
  books.running(b);
  books.advance(TimePoint{165});  // 20: b computes, a has no op
  EXPECT_EQ(books.totals(a).device_ns, 30);
  EXPECT_EQ(books.totals(a).switch_ns, 10);
  EXPECT_EQ(books.totals(a).wait_others_ns, 0);
  EXPECT_EQ(books.totals(b).device_ns, 20);
  EXPECT_EQ(books.totals(b).wait_others_ns, 30);
  EXPECT_EQ(books.totals(b).wall_ns, 65);
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
