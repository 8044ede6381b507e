// SPDX-License-Identifier: Apache-2.0
#include "cli/node_check_command.h"

#include <gtest/gtest.h>

namespace plexrl::cli {
namespace {

std::string node(const std::string& state, const std::string& reason = "") {
  return "NodeName=n1 Arch=x86_64 State=" + state + " ThreadsPerCore=1" +
         (reason.empty() ? "" : " Reason=" + reason + " [root@2026-01-01T00:00:00]") + "\n";
}

TEST(NodeCheck, DrainsAHealthySlurmNodeWhoseServiceIsDown) {
  EXPECT_EQ(decide(false, node("IDLE")), NodeAction::kDrain);
  EXPECT_EQ(decide(false, node("MIXED")), NodeAction::kDrain);
}

TEST(NodeCheck, DrainsOnlyOnce) {
  EXPECT_EQ(decide(false, node("IDLE+DRAIN", "plexrl-node-check: down")), NodeAction::kNone);
  EXPECT_EQ(decide(false, node("MIXED+DRAIN", "disk broken")), NodeAction::kNone);
}

TEST(NodeCheck, ResumesOnlyWhatItDrained) {
  EXPECT_EQ(decide(true, node("IDLE+DRAIN", "plexrl-node-check: down")), NodeAction::kResume);
  EXPECT_EQ(decide(true, node("IDLE+DRAIN", "disk broken")), NodeAction::kNone);
  EXPECT_EQ(decide(true, node("IDLE+DRAIN", "see plexrl-node-check: docs")), NodeAction::kNone);
  EXPECT_EQ(decide(true, node("IDLE")), NodeAction::kNone);
}

// The reason stays on a node after it was resumed by hand.
TEST(NodeCheck, AnOldReasonWithoutADrainIsNothing) {
  EXPECT_EQ(decide(true, node("IDLE", "plexrl-node-check: down")), NodeAction::kNone);
}

TEST(NodeCheck, AFieldIsNotFoundInsideAnotherOne) {
  EXPECT_EQ(decide(true, "NodeName=n1 NextState=DRAIN State=IDLE OldReason=plexrl-node-check: x\n"),
            NodeAction::kNone);
}

}  // namespace
}  // namespace plexrl::cli
