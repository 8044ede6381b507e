// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <gtest/gtest.h>

namespace plexrl::cli {
namespace {

TEST(Table, AlignsTextLeftAndNumbersRight) {
  Table table({"JOB", "USER", "OPS"});
  table.add({"7", "alice", "12"});
  table.add({"1200", "bo", "5"});
  EXPECT_EQ(table.to_text(), " JOB  USER   OPS\n   7  alice   12\n1200  bo       5\n");
}

TEST(Table, NegativeNumbersAreNumbers) {
  Table table({"SAVED"});
  table.add({"32.9 %"});
  table.add({"-6.0 %"});
  table.add({"4.0 %"});
  EXPECT_EQ(table.to_text(), " SAVED\n32.9 %\n-6.0 %\n 4.0 %\n");
}

TEST(Table, EmptyCellsAreADash) {
  Table table({"A", "B"});
  table.add({"x", ""});
  EXPECT_EQ(table.to_text(), "A  B\nx  -\n");
}

TEST(Table, ControlCharactersDoNotReachTheTerminal) {
  Table table({"NAME"});
  table.add({"evil\x1b[2J\n"});
  EXPECT_EQ(table.to_text(), "NAME\nevil?[2J?\n");
}

TEST(Table, WithoutRowsPrintsTheHeader) { EXPECT_EQ(Table({"A", "B"}).to_text(), "A  B\n"); }

TEST(Format, BytesAndSeconds) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(format_seconds(1.25), "1.25 s");
  EXPECT_EQ(format_seconds(200), "3 min 20 s");
  EXPECT_EQ(format_seconds(7260), "2 h 1 min");
}

}  // namespace
}  // namespace plexrl::cli
