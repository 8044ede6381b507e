// SPDX-License-Identifier: Apache-2.0
#include "store/write_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "fakes/faulty_store.h"
#include "store/writer_thread.h"

namespace plexrl::store {
namespace {

using Fault = FaultyStore::Fault;
using Told = std::vector<std::string>;

BatchPtr row(std::uint64_t key, std::string_view value, std::string_view table = "t") {
  Batch batch;
  batch.put(table, key, 0, value);
  return std::make_shared<const Batch>(std::move(batch));
}

// A loop of its own: what is posted runs when the test says so.
class WriteQueueTest : public testing::Test {
 protected:
  void write(std::uint64_t key, std::string_view value = "x") {
    queue_.write(row(key, value), told(key));
  }
  AsyncStore::Done told(std::uint64_t key) {
    return [this, key](const Status& status) {
      told_.push_back(std::to_string(key) + (status.ok() ? " ok" : " failed"));
    };
  }
  void run_loop() {
    while (!posted_.empty()) {
      auto todo = std::exchange(posted_, {});
      for (auto& callback : todo) callback();
    }
  }
  bool on_disk(std::uint64_t key) { return memory_->get("t", key, 0).has_value(); }

  std::unique_ptr<StateStore> memory_ = make_memory_store();
  FaultyStore disk_{*memory_};
  std::vector<std::function<void()>> posted_;
  WriteQueue queue_{disk_, [this](std::function<void()> callback) { posted_.push_back(callback); }};
  Told told_;
};

TEST_F(WriteQueueTest, WhatWaitsIsOneTransactionAndIsToldInOrderFromTheLoop) {
  for (std::uint64_t key = 1; key <= 3; ++key) write(key);
  EXPECT_FALSE(on_disk(1));
  EXPECT_FALSE(queue_.idle());
  EXPECT_TRUE(queue_.write_group());
  EXPECT_EQ(disk_.writes, 1);
  EXPECT_TRUE(on_disk(3));
  EXPECT_TRUE(told_.empty()) << "never before the loop's turn";
  run_loop();
  EXPECT_EQ(told_, (Told{"1 ok", "2 ok", "3 ok"}));
  EXPECT_TRUE(queue_.idle());
  EXPECT_FALSE(queue_.write_group());
}

TEST_F(WriteQueueTest, ALargeGroupIsSplitSoThatNobodyWaitsForAllOfIt) {
  const std::string large(WriteQueue::kGroupBytes / 2, 'x');
  for (std::uint64_t key = 1; key <= 4; ++key) write(key, large);
  EXPECT_TRUE(queue_.write_group());
  EXPECT_TRUE(on_disk(2));
  EXPECT_FALSE(on_disk(3));
  EXPECT_TRUE(queue_.write_group());
  EXPECT_TRUE(on_disk(4));
}

TEST_F(WriteQueueTest, BehindAFailureWhatSharesAKeyFailsUntilItHasBeenTold) {
  disk_.fault = [] { return Fault::kBefore; };
  write(1, "first");
  EXPECT_TRUE(queue_.write_group());
  disk_.fault = [] { return Fault::kNone; };
  // Its writer cannot know that the first failed: the second without it would be a hole.
  queue_.write(row(1, "second", "u"), told(1));
  EXPECT_FALSE(queue_.write_group());
  write(2);
  EXPECT_TRUE(queue_.write_group());
  run_loop();
  EXPECT_EQ(told_, (Told{"1 failed", "1 failed", "2 ok"}));
  EXPECT_FALSE(memory_->get("u", 1, 0));
  write(1, "first");
  queue_.write(row(1, "second", "u"), told(1));
  EXPECT_TRUE(queue_.write_group());
  run_loop();
  EXPECT_EQ(told_, (Told{"1 failed", "1 failed", "2 ok", "1 ok", "1 ok"}));
}

TEST_F(WriteQueueTest, WhatWaitedBehindAFailedGroupFailsWithItWhereItSharesAKey) {
  const std::string large(WriteQueue::kGroupBytes, 'x');
  disk_.fault = [] { return Fault::kBefore; };
  write(1, large);
  Batch both;  // what comes behind it of key 2 waits for it, too
  both.put("t", 1, 1, "x");
  both.put("t", 2, 1, "x");
  queue_.write(std::make_shared<const Batch>(std::move(both)), told(12));
  write(2);
  write(3);
  EXPECT_TRUE(queue_.write_group());
  disk_.fault = [] { return Fault::kNone; };
  EXPECT_TRUE(queue_.write_group());
  run_loop();
  EXPECT_EQ(told_, (Told{"1 failed", "12 failed", "2 failed", "3 ok"}));
  EXPECT_EQ(disk_.writes, 2);
  EXPECT_TRUE(queue_.idle());
}

TEST_F(WriteQueueTest, AWriteFromInsideAReportOfFailureFailsWithTheRest) {
  disk_.fault = [] { return Fault::kBefore; };
  queue_.write(row(1, "x"), [this](const Status&) { write(1); });
  write(2);
  EXPECT_TRUE(queue_.write_group());
  disk_.fault = [] { return Fault::kNone; };
  run_loop();
  EXPECT_EQ(told_, (Told{"2 failed", "1 failed"}));
  EXPECT_FALSE(on_disk(1));
  write(1);
  EXPECT_TRUE(queue_.write_group()) << "all were told: it goes on";
}

TEST_F(WriteQueueTest, ABadRowFailsItsOwnBatchAndWhatComesBehindItOfItsKey) {
  Batch bad;
  bad.put("", 9, 1, "x");
  write(1);
  queue_.write(std::make_shared<const Batch>(std::move(bad)), told(9));
  write(2);
  write(9);
  EXPECT_TRUE(queue_.write_group());
  run_loop();
  EXPECT_EQ(told_, (Told{"1 ok", "9 failed", "2 ok", "9 failed"}));
  EXPECT_TRUE(on_disk(2));
  EXPECT_FALSE(on_disk(9));
}

// As a row that is larger than what is left of the disk.
TEST_F(WriteQueueTest, ABatchThatTheDiskRefusesFailsNoOthersOfItsGroup) {
  disk_.of_batch = [](const Batch& batch) {
    return batch.bytes() > 5000 ? Fault::kBefore : Fault::kNone;
  };
  for (int round = 0; round < 2; ++round) {
    write(1);
    write(2, std::string(5000, 'x'));
    write(3);
    EXPECT_TRUE(queue_.write_group());
    run_loop();
    EXPECT_EQ(std::exchange(told_, {}), (Told{"1 ok", "2 failed", "3 ok"}));
  }
  EXPECT_TRUE(on_disk(1));
  EXPECT_FALSE(on_disk(2));
  EXPECT_TRUE(on_disk(3));
}

TEST_F(WriteQueueTest, AGroupThatWasTakenWithoutAWordIsTakenOnceMore) {
  disk_.fault = [this] { return disk_.writes == 1 ? Fault::kAfter : Fault::kNone; };
  write(1, "a");
  write(1, "b");
  write(2);
  EXPECT_TRUE(queue_.write_group());
  run_loop();
  EXPECT_EQ(told_, (Told{"1 ok", "1 ok", "2 ok"}));
  EXPECT_EQ(*memory_->get("t", 1, 0), "b");
}

TEST_F(WriteQueueTest, ADiskThatRefusesManyInARowIsLeftAlone) {
  disk_.fault = [] { return Fault::kBefore; };
  const std::size_t batches = 10 * WriteQueue::kMostRefused;
  for (std::uint64_t key = 1; key <= batches; ++key) write(key);
  EXPECT_TRUE(queue_.write_group());
  EXPECT_EQ(disk_.writes, 1 + static_cast<int>(WriteQueue::kMostRefused));
  disk_.fault = [] { return Fault::kNone; };
  write(batches + 1);
  EXPECT_FALSE(queue_.write_group()) << "nobody was told yet";
  run_loop();
  EXPECT_EQ(told_.size(), batches + 1);
  EXPECT_EQ(std::count_if(told_.begin(), told_.end(),
                          [](const auto& text) { return text.find("failed") != text.npos; }),
            static_cast<std::ptrdiff_t>(batches + 1));
  write(1);
  EXPECT_TRUE(queue_.write_group());
}

TEST_F(WriteQueueTest, CallsThatWaitSeeWhatWasWrittenBefore) {
  write(1, "a");
  EXPECT_EQ(*queue_.get("t", 1, 0), "a");
  write(1, "b");
  ASSERT_TRUE(queue_.put("t", 1, 0, "c").ok());
  EXPECT_EQ(*memory_->get("t", 1, 0), "c");
  write(1, "d");
  std::string found;
  ASSERT_TRUE(
      queue_.scan("t", [&](std::uint64_t, std::uint64_t, std::string_view v) { found = v; }).ok());
  EXPECT_EQ(found, "d");
  EXPECT_TRUE(told_.empty());
}

TEST_F(WriteQueueTest, SettleTellsAtOnce) {
  write(1);
  queue_.settle();
  EXPECT_EQ(told_, (Told{"1 ok"}));
  run_loop();
  EXPECT_EQ(told_.size(), 1U);
}

TEST_F(WriteQueueTest, AbandonedChangesAreMadeAndNobodyIsTold) {
  write(1);
  queue_.abandon();
  run_loop();
  EXPECT_TRUE(on_disk(1));
  EXPECT_TRUE(told_.empty());
}

TEST_F(WriteQueueTest, AnAbandonedFailureStopsNobody) {
  disk_.fault = [] { return Fault::kBefore; };
  write(1);
  queue_.abandon();
  disk_.fault = [] { return Fault::kNone; };
  write(2);
  queue_.settle();
  EXPECT_EQ(told_, (Told{"2 ok"}));
}

TEST_F(WriteQueueTest, IsCrowdedByBytesAndByCount) {
  EXPECT_FALSE(queue_.crowded());
  write(1, std::string(WriteQueue::kCrowdedBytes, 'x'));
  EXPECT_TRUE(queue_.crowded());
  EXPECT_TRUE(queue_.write_group());
  EXPECT_FALSE(queue_.crowded());
  for (std::uint64_t key = 0; key < WriteQueue::kCrowdedBatches; ++key) write(key);
  EXPECT_TRUE(queue_.crowded());
}

TEST_F(WriteQueueTest, AReportThatComesAfterTheQueueIsGoneDoesNoHarm) {
  auto other = std::make_unique<WriteQueue>(
      disk_, [this](std::function<void()> callback) { posted_.push_back(callback); });
  other->write(row(1, "x"), told(1));
  EXPECT_TRUE(other->write_group());
  other.reset();
  run_loop();
  EXPECT_TRUE(told_.empty());
}

// The thread, the loop and calls that wait, all at once; for ThreadSanitizer above all.
TEST(WriterThread, WritesInOrderBesideCallsThatWaitAndEndsEmpty) {
  const auto memory = make_memory_store();
  std::mutex mutex;
  std::vector<std::function<void()>> posted;
  const auto run_loop = [&] {
    std::vector<std::function<void()>> todo;
    {
      const std::lock_guard lock(mutex);
      todo.swap(posted);
    }
    for (auto& callback : todo) callback();
  };
  std::uint64_t last = 0;
  constexpr std::uint64_t kWrites = 3000;
  {
    WriteQueue queue(*memory, [&](std::function<void()> callback) {
      const std::lock_guard lock(mutex);
      posted.push_back(std::move(callback));
    });
    auto writer = WriterThread::start(queue);
    ASSERT_TRUE(writer) << writer.error().to_string();
    for (std::uint64_t n = 1; n <= kWrites; ++n) {
      queue.write(row(n, std::to_string(n)), [&last, n](const Status& status) {
        EXPECT_TRUE(status.ok());
        EXPECT_EQ(++last, n);
      });
      if (n % 100 == 0) {
        ASSERT_EQ(*queue.get("t", n, 0), std::to_string(n));
      }
      if (n % 250 == 0) {
        ASSERT_TRUE(queue.put("t", n, 0, "again").ok());
      }
      if (n % 700 == 0) queue.settle();
      if (n % 7 == 0) run_loop();
    }
    queue.settle();
    EXPECT_EQ(last, kWrites);
    for (std::uint64_t n = 1; n <= 50; ++n) queue.write(row(kWrites + n, "x"), {});
  }
  EXPECT_TRUE(memory->get("t", kWrites + 50, 0)) << "what was written is made durable at the end";
}

}  // namespace
}  // namespace plexrl::store
