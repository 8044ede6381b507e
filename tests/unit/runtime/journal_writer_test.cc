// SPDX-License-Identifier: Apache-2.0
#include "runtime/journal_writer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace plexrl::runtime {
namespace {

class JournalWriterTest : public ::testing::Test {
 protected:
  ~JournalWriterTest() override { std::filesystem::remove_all(dir_); }
  static std::string make_dir() {
    char path[] = "/tmp/plexrl-journal-XXXXXX";
    return ::mkdtemp(path);
  }
  std::unique_ptr<core::Scheduler> scheduler() const {
    return core::Scheduler::create(config_).value();
  }
  core::JournalHeader header() const {
    core::JournalHeader header;
    header.config = config_;
    return header;
  }
  std::size_t segments() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }
  const std::string dir_ = make_dir();
  core::SchedulerConfig config_{1 << 20, "fifo", Duration{kMillisecond.ns}};
};

TEST_F(JournalWriterTest, WhatWasWrittenReplaysToTheSameDecisions) {
  {
    JournalWriter writer(dir_);
    const auto live = scheduler();
    ASSERT_TRUE(writer.begin(header(), *live).ok());
    const std::vector<core::Event> events{
        core::EngineUp{EngineId{1}},
        core::ModelAdded{ModelId{1}, TenantId{1}, EngineId{1}, {}, 4096},
        core::OpArrived{OpId{1}, ModelId{1}, core::OpKind::kOptimStep}};
    std::int64_t at = 1;
    for (const auto& event : events) {
      const TimePoint now{++at};
      writer.record(event, now, live->step(event, now));
    }
  }
  ASSERT_EQ(segments(), 1U);
  std::ifstream in(std::filesystem::directory_iterator(dir_)->path(), std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  const std::string text = bytes.str();
  const auto segment = core::decode_segment(text);
  ASSERT_TRUE(segment) << segment.error().to_string();
  EXPECT_EQ(segment->records.size(), 3U);
  const auto actions = core::replay(*segment);
  ASSERT_TRUE(actions) << actions.error().to_string();
  EXPECT_FALSE(actions->back().list.empty());
}

TEST_F(JournalWriterTest, KeepsTheNewestSegmentsOnly) {
  JournalWriter writer(dir_);
  const auto live = scheduler();
  for (std::size_t i = 0; i < JournalWriter::kKeptSegments + 3; ++i)
    ASSERT_TRUE(writer.begin(header(), *live).ok());
  EXPECT_EQ(segments(), JournalWriter::kKeptSegments);
}

TEST_F(JournalWriterTest, AFolderThatCannotBeMadeIsAnErrorAndRecordsAreDropped) {
  std::ofstream(dir_ + "/file") << "x";
  JournalWriter writer(dir_ + "/file/journal");
  const auto live = scheduler();
  EXPECT_EQ(writer.begin(header(), *live).code(), Code::IO);
  writer.record(core::EngineUp{EngineId{1}}, TimePoint{1}, {});
  writer.flush();
}

}  // namespace
}  // namespace plexrl::runtime
