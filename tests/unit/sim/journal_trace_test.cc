// SPDX-License-Identifier: Apache-2.0
#include "sim/journal_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace plexrl::sim {
namespace {

using namespace core;

// A scheduler with a journal, as plexrld keeps it.
class Journal {
 public:
  Journal() {
    config_.device_capacity_bytes = 100;
    config_.policy = "fifo";
    scheduler_ = Scheduler::create(config_).value();
    bytes_ = encode_header({7, config_, ""});
  }
  void at(std::int64_t ms, const Event& event) {
    const TimePoint when{ms * kMillisecond.ns};
    bytes_ += encode_record(event, when, scheduler_->step(event, when));
  }
  std::string bytes_;

 private:
  SchedulerConfig config_;
  std::unique_ptr<Scheduler> scheduler_;
};

OpArrived arrived(std::uint64_t op, std::uint64_t model, OpKind kind) {
  OpArrived event;
  event.op = {op};
  event.model = {model};
  event.kind = kind;
  return event;
}

// Two models of 60 bytes on a device of 100.
Journal two_jobs() {
  Journal journal;
  for (const std::uint64_t model : {1U, 2U}) {
    ModelAdded added;
    added.model = {model};
    added.tenant = {model};
    added.engine = {model};
    added.device_bytes = 60;
    journal.at(0, added);
    journal.at(0, EngineUp{{model}});
  }
  journal.at(10, arrived(1, 1, OpKind::kGenerate));
  journal.at(20, ModelResumed{{1}});
  journal.at(30, arrived(2, 2, OpKind::kForwardBackward));
  journal.at(120, OpFinished{{1}});
  journal.at(130, ModelParked{{1}});
  journal.at(140, ModelResumed{{2}});
  journal.at(170, OpFinished{{2}});
  journal.at(200, arrived(3, 2, OpKind::kOptimStep));
  journal.at(210, OpFinished{{3}});
  return journal;
}

TEST(JournalTrace, IsDecidedAgain) {
  const auto summary = replay_journal(two_jobs().bytes_);
  ASSERT_TRUE(summary) << summary.error().to_string();
  EXPECT_EQ(summary->records, 13U);
  EXPECT_EQ(summary->policy, "fifo");
  EXPECT_EQ(summary->device_bytes, 100U);
  EXPECT_EQ(summary->span.ns, 210 * kMillisecond.ns);
  EXPECT_EQ(summary->actions, 6U);  // three starts, two resumes, one park
}

TEST(JournalTrace, OtherActionsAreNamed) {
  Journal journal = two_jobs();
  // A record whose actions are not what the scheduler decides.
  journal.bytes_ += encode_record(arrived(4, 2, OpKind::kSave), {220 * kMillisecond.ns}, Actions{});
  const auto summary = replay_journal(journal.bytes_);
  ASSERT_FALSE(summary);
  EXPECT_NE(summary.error().text().find("record 14"), std::string::npos) << summary.error().text();
}

TEST(JournalTrace, DamageIsAnError) {
  std::string bytes = two_jobs().bytes_;
  EXPECT_EQ(replay_journal(bytes.substr(0, 5)).error().code(), Code::CORRUPT);
  EXPECT_EQ(replay_journal(bytes.substr(0, bytes.size() - 3))->torn_bytes > 0, true);
  bytes[20] = static_cast<char>(bytes[20] ^ 1);
  EXPECT_EQ(replay_journal(bytes).error().code(), Code::CORRUPT);
}

TEST(JournalTrace, BecomesATrace) {
  const auto jobs = journal_jobs(two_jobs().bytes_, "recorded");
  ASSERT_TRUE(jobs) << jobs.error().to_string();
  ASSERT_EQ(jobs->size(), 2U);
  EXPECT_EQ((*jobs)[0].ops.size(), 1U);
  EXPECT_EQ((*jobs)[0].ops[0].time.ns, 100 * kMillisecond.ns);  // started at 20
  EXPECT_NEAR((*jobs)[1].arrival_s, 0.02, 1e-9);
  EXPECT_EQ((*jobs)[1].model_bytes, 60U);
  ASSERT_EQ((*jobs)[1].ops.size(), 2U);
  EXPECT_EQ((*jobs)[1].ops[0].time.ns, 30 * kMillisecond.ns);
  EXPECT_EQ((*jobs)[1].ops[1].after, 1U);
  EXPECT_EQ((*jobs)[1].ops[1].think.ns, 30 * kMillisecond.ns);
}

// ---- journals of plexrld: `make demo` leaves them in build/demo/record ----

constexpr const char* kJournals = PLEXRL_SOURCE_DIR "/tests/sim/journals";

std::map<std::string, std::string> recorded() {
  std::map<std::string, std::string> journals;
  for (const auto& entry : std::filesystem::directory_iterator(kJournals)) {
    if (entry.path().extension() != ".journal") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    journals[entry.path().filename()] = bytes.str();
  }
  return journals;
}

TEST(RecordedJournals, GiveTheSameActionsAgain) {
  const auto journals = recorded();
  ASSERT_GE(journals.size(), 2U) << kJournals;
  for (const auto& [name, bytes] : journals) {
    const auto summary = replay_journal(bytes);
    ASSERT_TRUE(summary) << name << ": " << summary.error().to_string();
    EXPECT_GT(summary->records, 500U) << name;
    EXPECT_GT(summary->actions, 200U) << name;
    EXPECT_EQ(summary->torn_bytes, 0U) << name;
    EXPECT_LT(bytes.size(), 100'000U) << name << ": keep checked-in journals small";
  }
}

TEST(RecordedJournals, ADamagedByteIsFound) {
  for (const auto& [name, bytes] : recorded())
    for (std::size_t at = 8; at < bytes.size(); at += bytes.size() / 50) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 4);
      const auto summary = replay_journal(damaged);
      EXPECT_TRUE(!summary || summary->torn_bytes > 0) << name << " byte " << at;
    }
}

// The same events, as if another policy had decided: the first record that differs is named.
TEST(RecordedJournals, AnotherPolicyIsFound) {
  for (const auto& [name, bytes] : recorded()) {
    JournalSegment segment = decode_segment(bytes).value();
    segment.header.config.policy = "fifo";
    segment.header.snapshot.clear();
    const auto actions = replay(segment);
    ASSERT_FALSE(actions) << name;
    EXPECT_NE(actions.error().text().find("gave other actions"), std::string::npos)
        << actions.error().text();
  }
}

}  // namespace
}  // namespace plexrl::sim
