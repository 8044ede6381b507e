// SPDX-License-Identifier: Apache-2.0
// One suite for every BlobStore: files by io_uring, small reads by the caller's thread too (loop)
// or not, files by threads, memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <latch>
#include <thread>

#include "store/blob_format.h"
#include "store/memory_blob_store.h"
#include "unit/store/blob_fixture.h"

namespace plexrl::store {
namespace {

constexpr std::uint64_t kMib = kBlobChunkBytes;

class BlobConformance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = make_test_folder();
    open();
    if (uring() && store_ != nullptr && store_->method().find("io_uring") == std::string::npos)
      GTEST_SKIP() << "io_uring is not permitted here";
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  bool memory() const { return std::string(GetParam()) == "memory"; }
  bool loop() const { return std::string(GetParam()) == "loop"; }
  bool uring() const { return loop() || std::string(GetParam()) == "uring"; }

  void open() {
    store_.reset();
    if (memory()) {
      store_ = make_memory_blob_store(disk_, posts_.post());
      return;
    }
    auto opened = open_file_blob_store(
        {folder_ + "/tier", uring(), loop() ? posts_.watch() : nullptr}, posts_.post());
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    store_ = std::move(opened).value();
  }

  static BlobRequest request(std::uint64_t blob, std::uint64_t bytes,
                             std::shared_ptr<BlobMemory> memory) {
    return {BlobId{blob}, bytes, "model 7: segment weights", std::move(memory)};
  }
  Status write(std::uint64_t blob, std::uint64_t bytes, std::shared_ptr<BlobMemory> memory) {
    return posts_.wait([&](BlobStore::Done done) {
      store_->write(request(blob, bytes, std::move(memory)), std::move(done));
    });
  }
  Status read(std::uint64_t blob, std::uint64_t bytes, std::shared_ptr<BlobMemory> memory) {
    return posts_.wait([&](BlobStore::Done done) {
      store_->read(request(blob, bytes, std::move(memory)), std::move(done));
    });
  }
  Status remove(std::uint64_t blob) {
    return posts_.wait(
        [&](BlobStore::Done done) { store_->remove(BlobId{blob}, std::move(done)); });
  }
  void flip_byte(std::uint64_t blob, std::uint64_t offset) {
    if (memory()) {
      disk_->blobs.at(BlobId{blob}).bytes.at(offset) ^= std::byte{1};
      return;
    }
    const std::string path = folder_ + "/tier/" + blob_file_name(BlobId{blob});
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    char byte = 0;
    ASSERT_EQ(::pread(fd, &byte, 1, static_cast<off_t>(offset)), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(::pwrite(fd, &byte, 1, static_cast<off_t>(offset)), 1);
    ASSERT_EQ(::fsync(fd), 0);
    ::close(fd);
  }

  Posts posts_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::string folder_;
  std::unique_ptr<BlobStore> store_;
};

TEST_P(BlobConformance, EverySizeComesBackAsItWas) {
  std::uint64_t blob = 0;
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4096}, std::uint64_t{5000},
                                    kMib - 1, kMib, kMib + 1, 3 * kMib + 4097, 40 * kMib + 12}) {
    SCOPED_TRACE(bytes);
    ++blob;
    const auto out = std::make_shared<TestMemory>(bytes, static_cast<unsigned>(blob));
    const auto in = std::make_shared<TestMemory>(bytes, 99);
    Status status = write(blob, bytes, out);
    ASSERT_TRUE(status.ok()) << status.to_string();
    status = read(blob, bytes, in);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(in->equals(*out));
    EXPECT_EQ(out->mapped + in->mapped, 0u);
    EXPECT_LE(out->most_mapped, kBlobQueueDepth * kMib) << "memory under way is bounded";
    EXPECT_LE(in->most_mapped, kBlobQueueDepth * kMib);
  }
}

TEST_P(BlobConformance, BlobsAreFoundAgainAndRemovedOnesAreNot) {
  for (const std::uint64_t blob : {9, 3, 5})
    ASSERT_TRUE(write(blob, 5000, std::make_shared<TestMemory>(5000)).ok());
  EXPECT_TRUE(store_->blobs().empty()) << "those that it had when it was opened";
  ASSERT_TRUE(remove(5).ok());
  ASSERT_TRUE(remove(5).ok()) << "a missing one is fine";
  open();
  EXPECT_EQ(store_->blobs(), (std::vector<BlobId>{{3}, {9}}));
  const auto in = std::make_shared<TestMemory>(5000, 99);
  ASSERT_TRUE(read(9, 5000, in).ok());
  EXPECT_TRUE(in->equals(TestMemory(5000)));
}

TEST_P(BlobConformance, AMissingBlobIsNotFoundAndNamed) {
  const Status status = read(4, 5000, std::make_shared<TestMemory>(5000));
  EXPECT_EQ(status.code(), Code::NOT_FOUND);
  EXPECT_NE(status.text().find("model 7: segment weights: blob 4"), std::string::npos)
      << status.text();
}

TEST_P(BlobConformance, ABlobIsNeverReplaced) {
  ASSERT_TRUE(write(1, 5000, std::make_shared<TestMemory>(5000, 1)).ok());
  EXPECT_EQ(write(1, 5000, std::make_shared<TestMemory>(5000, 2)).code(), Code::EXISTS);
  const auto in = std::make_shared<TestMemory>(5000, 99);
  ASSERT_TRUE(read(1, 5000, in).ok());
  EXPECT_TRUE(in->equals(TestMemory(5000, 1)));
}

TEST_P(BlobConformance, ADamagedChunkIsNamedAndOthersAreRead) {
  constexpr std::uint64_t kBytes = 6 * kMib + 100;
  for (const std::uint64_t blob : {1, 2})
    ASSERT_TRUE(write(blob, kBytes, std::make_shared<TestMemory>(kBytes)).ok());
  flip_byte(1, 4 * kMib + 77);
  const Status status = read(1, kBytes, std::make_shared<TestMemory>(kBytes));
  EXPECT_EQ(status.code(), Code::CORRUPT);
  EXPECT_NE(status.text().find("model 7: segment weights: blob 1: chunk 4: checksum"),
            std::string::npos)
      << status.text();
  EXPECT_TRUE(read(2, kBytes, std::make_shared<TestMemory>(kBytes)).ok());
}

TEST_P(BlobConformance, AReadOfAnotherSizeIsCorrupt) {
  ASSERT_TRUE(write(1, 5000, std::make_shared<TestMemory>(5000)).ok());
  const Status status = read(1, 3 * kMib, std::make_shared<TestMemory>(3 * kMib));
  EXPECT_EQ(status.code(), Code::CORRUPT) << status.to_string();
}

TEST_P(BlobConformance, MemoryThatCannotBeMappedIsAnErrorThatLeavesNothing) {
  const auto memory = std::make_shared<TestMemory>(20 * kMib);
  memory->fail_at = 18 * kMib;
  const Status status = write(1, 20 * kMib, memory);
  EXPECT_EQ(status.code(), Code::NO_CAPACITY);
  EXPECT_EQ(memory->mapped, 0u);
  EXPECT_EQ(read(1, 20 * kMib, std::make_shared<TestMemory>(20 * kMib)).code(), Code::NOT_FOUND);
}

TEST_P(BlobConformance, ACancelledTransferSaysSoAndLeavesNothing) {
  std::optional<Status> first;
  std::optional<Status> second;
  const auto memory = std::make_shared<TestMemory>(64 * kMib);
  store_->write(request(1, 64 * kMib, memory), [&](const Status& status) { first = status; });
  const TransferId id =
      store_->write(request(2, 64 * kMib, memory), [&](const Status& status) { second = status; });
  store_->cancel(id);
  store_->cancel(TransferId{999});
  while (!first || !second) ASSERT_TRUE(posts_.turn());
  EXPECT_TRUE(first->ok()) << first->to_string();
  EXPECT_EQ(second->code(), Code::CANCELLED);
  store_->cancel(id);
  EXPECT_EQ(store_->progress(id), 0u);
  open();
  EXPECT_EQ(store_->blobs(), (std::vector<BlobId>{{1}}));
}

TEST_P(BlobConformance, WritesAndReadsEndInTheirOrder) {
  std::vector<int> order;
  const auto note = [&](int n) {
    return [&order, n](const Status& status) {
      EXPECT_TRUE(status.ok()) << status.to_string();
      order.push_back(n);
    };
  };
  const auto memory = std::make_shared<TestMemory>(2 * kMib);
  store_->write(request(1, 2 * kMib, memory), note(1));
  store_->write(request(2, 5000, memory), note(2));
  store_->remove(BlobId{1}, note(3));
  store_->write(request(3, 2 * kMib, memory), note(4));
  while (order.size() < 4) ASSERT_TRUE(posts_.turn());
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(read(1, 2 * kMib, memory).code(), Code::NOT_FOUND);
  EXPECT_TRUE(read(3, 2 * kMib, memory).ok());
}

TEST_P(BlobConformance, ReadsOfAllSizesEndInTheirOrder) {
  const std::vector<std::uint64_t> sizes = {5000, kMib, 3 * kMib, 1, 2 * kMib, 4096};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    ASSERT_TRUE(write(i + 1, sizes[i], std::make_shared<TestMemory>(sizes[i])).ok());
  std::vector<std::size_t> order;
  std::vector<std::shared_ptr<TestMemory>> memories;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    memories.push_back(std::make_shared<TestMemory>(sizes[i], 99));
    store_->read(request(i + 1, sizes[i], memories.back()), [&order, i](const Status& status) {
      EXPECT_TRUE(status.ok()) << status.to_string();
      order.push_back(i);
    });
    EXPECT_TRUE(order.empty()) << "never from inside a call";
  }
  while (order.size() < sizes.size()) ASSERT_TRUE(posts_.turn());
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    EXPECT_TRUE(memories[i]->equals(TestMemory(sizes[i]))) << i;
}

TEST_P(BlobConformance, ACompletionMayReadAgain) {
  ASSERT_TRUE(write(1, 5000, std::make_shared<TestMemory>(5000)).ok());
  int reads = 0;
  std::function<void()> again = [&] {
    store_->read(request(1, 5000, std::make_shared<TestMemory>(5000, 99)),
                 [&](const Status& status) {
                   EXPECT_TRUE(status.ok()) << status.to_string();
                   if (++reads < 5) again();
                 });
  };
  again();
  while (reads < 5) ASSERT_TRUE(posts_.turn());
}

TEST_P(BlobConformance, ACancelledReadSaysSo) {
  ASSERT_TRUE(write(1, 5000, std::make_shared<TestMemory>(5000)).ok());
  std::vector<Code> codes;
  const auto start = [&](const std::shared_ptr<TestMemory>& memory) {
    return store_->read(request(1, 5000, memory),
                        [&](const Status& status) { codes.push_back(status.code()); });
  };
  const auto memory = [] { return std::make_shared<TestMemory>(5000); };
  // A thread of the store's stays in the first until the others are cancelled, however busy this
  // processor is.
  std::latch cancelled(1);
  const auto caller = std::this_thread::get_id();
  const auto first = memory();
  first->before_map = [&] {
    if (std::this_thread::get_id() != caller) cancelled.wait();
  };
  start(first);
  const TransferId second = start(memory());
  const TransferId third = start(memory());
  start(memory());
  for (const TransferId id : {second, third}) store_->cancel(id);
  cancelled.count_down();
  while (codes.size() < 4) ASSERT_TRUE(posts_.turn());
  EXPECT_EQ(codes, (std::vector<Code>{Code::OK, Code::CANCELLED, Code::CANCELLED, Code::OK}));
  EXPECT_EQ(store_->progress(second), 0u);
}

TEST_P(BlobConformance, NothingIsReadIntoMemoryAfterTheStoreIsGone) {
  ASSERT_TRUE(write(1, kMib, std::make_shared<TestMemory>(kMib)).ok());
  bool called = false;
  const auto memory = std::make_shared<TestMemory>(kMib, 99);
  for (int turn = 0; turn < 3; ++turn)
    store_->read(request(1, kMib, memory), [&](const Status&) { called = true; });
  store_.reset();
  if (!this->memory()) {
    EXPECT_EQ(memory.use_count(), 1);
  }
  EXPECT_EQ(memory->mapped, 0u);
  posts_.post()([] {});
  ASSERT_TRUE(posts_.turn());
  EXPECT_FALSE(called);
}

TEST_P(BlobConformance, NoCompletionAfterTheStoreIsGone) {
  bool called = false;
  store_->write(request(1, 5000, std::make_shared<TestMemory>(5000)),
                [&](const Status&) { called = true; });
  store_.reset();
  posts_.post()([] {});
  ASSERT_TRUE(posts_.turn());
  open();
  (void)read(1, 5000, std::make_shared<TestMemory>(5000));
  EXPECT_FALSE(called);
}

INSTANTIATE_TEST_SUITE_P(Stores, BlobConformance,
                         testing::Values("loop", "uring", "threads", "memory"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace plexrl::store
