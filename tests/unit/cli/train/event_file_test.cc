// SPDX-License-Identifier: Apache-2.0
// Event files, read back by a reader of the test's own.
#include "cli/train/event_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/crc32c.h"
#include "cli/train/train_log.h"

namespace plexrl::cli {
namespace {

class EventFiles : public testing::Test {
 protected:
  EventFiles() {
    char name[] = "/tmp/plexrl-events-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~EventFiles() override { std::filesystem::remove_all(directory_); }

  // The events of the one file there is; each checked against its checksums.
  std::vector<std::string> events() {
    std::vector<std::string> found;
    std::ostringstream bytes;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      EXPECT_EQ(entry.path().filename().string().rfind("events.out.tfevents.", 0), 0U);
      bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    }
    const std::string all = bytes.str();
    for (std::size_t at = 0; at < all.size();) {
      std::uint64_t length = 0;
      std::memcpy(&length, all.data() + at, sizeof length);
      EXPECT_EQ(stored(all, at + 8), masked(all.substr(at, 8)));
      found.push_back(all.substr(at + 12, length));
      EXPECT_EQ(stored(all, at + 12 + length), masked(found.back()));
      at += 16 + length;
    }
    return found;
  }
  static std::uint32_t stored(const std::string& all, std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, all.data() + at, sizeof value);
    return value;
  }
  static std::uint32_t masked(const std::string& bytes) {
    const std::uint32_t crc =
        crc32c_table(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
  }

  std::string directory_;
};

TEST_F(EventFiles, ScalarsAreWrittenByteForByte) {
  auto file = EventFile::create(directory_, false);
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_TRUE(file->write(300, 2.0, {{"a/b", 1.5}, {"c", -2}}).ok());
  const auto found = events();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_NE(found[0].find("brain.Event:2"), std::string::npos);
  const std::string want(
      "\x09\0\0\0\0\0\0\0\x40"  // wall_time 2.0
      "\x10\xAC\x02"            // step 300
      "\x2A\x16"                // summary of 22 bytes
      "\x0A\x0A\x0A\x03"
      "a/b"
      "\x15\0\0\xC0\x3F"
      "\x0A\x08\x0A\x01"
      "c"
      "\x15\0\0\0\xC0",
      36);
  EXPECT_EQ(found[1], want);
}

TEST_F(EventFiles, AResumedRunStartsASession) {
  auto file = EventFile::create(directory_, true);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write(7, 2.0, {{"c", 1}}).ok());
  ASSERT_TRUE(file->write(8, 2.0, {{"c", 1}}).ok());
  const auto found = events();
  ASSERT_EQ(found.size(), 4U) << "version, session, two steps";
  EXPECT_EQ(found[1].substr(9), std::string("\x10\x07\x3A\x02\x08\x01", 6));
}

TEST_F(EventFiles, EveryNumberOfALineGoesThere) {
  auto log = TrainLog::open("", false);
  auto file = EventFile::create(directory_ + "/new/folder", false);
  ASSERT_TRUE(log && file);
  log->also_to(std::move(*file));
  ASSERT_TRUE(log->write({{"phase", "sft"}, {"step", 3}, {"loss", 0.5}, {"note", "x"}}).ok());
  std::filesystem::rename(directory_ + "/new/folder", directory_ + ".moved");
  std::filesystem::remove_all(directory_);
  std::filesystem::rename(directory_ + ".moved", directory_);
  const auto found = events();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_NE(found[1].find("sft/loss"), std::string::npos);
  EXPECT_EQ(found[1].find("step"), std::string::npos);
  EXPECT_EQ(found[1].find("note"), std::string::npos);
}

TEST_F(EventFiles, AFolderThatCannotBeMadeIsNamed) {
  const std::string file = directory_ + "/file";
  std::ofstream(file) << "x";
  const auto result = EventFile::create(file + "/folder", false);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().text().find(file), std::string::npos);
}

}  // namespace
}  // namespace plexrl::cli
