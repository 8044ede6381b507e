// SPDX-License-Identifier: Apache-2.0
// What only the file store can show: faults of the disk, what a crash leaves, its directory.
#include "store/file_blob_store.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <functional>
#include <thread>

#include "store/blob_bench.h"
#include "unit/store/blob_fixture.h"

namespace plexrl::store {
namespace {

constexpr std::uint64_t kMib = kBlobChunkBytes;

// Between the store and the disk: what the n-th request of a kind gets instead of its result.
struct Faults {
  std::optional<IoRequest::Kind> kind;
  std::uint64_t countdown = 0;
  std::int64_t result = 0;
  bool halve = false;  // every request moves about half of what was asked for
  bool split = false;  // of two buffers the first only
  std::function<void()> before_write =
      nullptr;  // and after the last one: of the thread that writes
};

class FaultyQueue final : public IoQueue {
 public:
  FaultyQueue(std::unique_ptr<IoQueue> below, std::shared_ptr<Faults> faults)
      : below_(std::move(below)), faults_(std::move(faults)) {}
  Status submit(const IoRequest& request) override {
    if (request.kind == IoRequest::Kind::kWrite && faults_->before_write) faults_->before_write();
    const bool hit = faults_->kind == request.kind && faults_->countdown-- == 0;
    if (hit && fd() >= 0) spoilt_ = {request.tag, faults_->result};
    if (hit && fd() < 0) {
      broken_.push_back({request.tag, faults_->result});
      return {};
    }
    IoRequest shorter = request;
    if (faults_->halve || faults_->split) shorter.more_bytes = 0;
    if (faults_->halve && request.bytes > kBlobAlignment)
      shorter.bytes = request.bytes / 2 / kBlobAlignment * kBlobAlignment;
    return below_->submit(shorter);
  }
  IoCompletion wait() override {
    if (broken_.empty()) {
      const IoCompletion done = below_->wait();
      if (faults_->before_write) faults_->before_write();
      return done;
    }
    const IoCompletion done = broken_.front();
    broken_.pop_front();
    return done;
  }
  [[nodiscard]] int fd() const override { return below_->fd(); }
  std::optional<IoCompletion> poll() override {
    auto done = below_->poll();
    if (done && spoilt_ && done->tag == spoilt_->tag) return std::exchange(spoilt_, std::nullopt);
    return done;
  }

 private:
  std::unique_ptr<IoQueue> below_;
  std::optional<IoCompletion> spoilt_;  // comes when the disk has done it
  std::shared_ptr<Faults> faults_;
  std::deque<IoCompletion> broken_;
};

class FileBlobStoreTest : public testing::Test {
 protected:
  ~FileBlobStoreTest() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  Status open(const std::string& directory) {
    return open_with(directory, [] { return make_thread_queue(kBlobQueueDepth); });
  }
  Status open_with(const std::string& directory,
                   const std::function<std::unique_ptr<IoQueue>()>& below) {
    store_.reset();
    auto opened =
        FileBlobStore::open({directory, true, posts_.watch()}, posts_.post(), [this, &below] {
          return Result<std::unique_ptr<IoQueue>>(std::make_unique<FaultyQueue>(below(), faults_));
        });
    if (opened) store_ = std::move(opened).value();
    return opened.status();
  }
  Status write(std::uint64_t blob, std::uint64_t bytes) {
    return posts_.wait([&](BlobStore::Done done) {
      store_->write(
          {BlobId{blob}, bytes, "model 7: segment adam_m", std::make_shared<TestMemory>(bytes)},
          std::move(done));
    });
  }
  Status read(std::uint64_t blob, std::uint64_t bytes) {
    return posts_.wait([&](BlobStore::Done done) {
      store_->read(
          {BlobId{blob}, bytes, "model 7: segment adam_m", std::make_shared<TestMemory>(bytes, 99)},
          std::move(done));
    });
  }
  // Besides the empty ones that wait for the next blobs.
  [[nodiscard]] std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(tier_))
      count +=
          is_spare_file_name(entry.path().filename().string()) && entry.file_size() == 0 ? 0 : 1;
    return count;
  }
  [[nodiscard]] std::size_t spares() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(tier_))
      count += is_spare_file_name(entry.path().filename().string()) ? 1 : 0;
    return count;
  }
  // The blob is whole, or there is none: what a store finds in a directory that a crash left.
  void is_whole_or_absent(const std::string& left, std::uint64_t bytes, bool* found = nullptr) {
    auto opened = open_file_blob_store({left, false}, posts_.post());
    ASSERT_TRUE(opened) << opened.error().to_string();
    const auto memory = std::make_shared<TestMemory>(bytes, 99);
    const Status status = posts_.wait([&](BlobStore::Done done) {
      (*opened)->read({BlobId{1}, bytes, "model 7", memory}, std::move(done));
    });
    const bool listed = (*opened)->blobs() == std::vector<BlobId>{{1}};
    if (found != nullptr) *found = listed;
    if (!listed) {
      EXPECT_TRUE((*opened)->blobs().empty());
      EXPECT_EQ(status.code(), Code::NOT_FOUND) << status.to_string();
      return;
    }
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(memory->equals(TestMemory(bytes)));
  }

  Posts posts_;
  std::string folder_ = make_test_folder();
  std::string tier_ = folder_ + "/tier";
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::unique_ptr<FileBlobStore> store_;
};

TEST_F(FileBlobStoreTest, AWriteThatFailsAnywhereLeavesNothing) {
  ASSERT_TRUE(open(tier_).ok());
  const std::pair<int, Code> cases[] = {
      {EIO, Code::IO}, {ENOSPC, Code::NO_CAPACITY}, {EDQUOT, Code::NO_CAPACITY}};
  for (const auto& [number, code] : cases) {
    for (const std::uint64_t at : {0U, 7U, 15U, 16U, 19U, 20U}) {  // the last one is the footer
      *faults_ = {IoRequest::Kind::kWrite, at, -number, false};
      const Status status = write(1, 20 * kMib);
      ASSERT_EQ(status.code(), code) << at << ": " << status.to_string();
      ASSERT_NE(status.text().find("model 7: segment adam_m: blob 1: "), std::string::npos);
      ASSERT_EQ(files(), 0u);
    }
  }
  *faults_ = {};
  EXPECT_TRUE(write(1, 20 * kMib).ok()) << "the store goes on";
}

TEST_F(FileBlobStoreTest, AReadThatFailsNamesTheChunkAndMaySucceedLater) {
  ASSERT_TRUE(open(tier_).ok());
  ASSERT_TRUE(write(1, 20 * kMib).ok());
  *faults_ = {IoRequest::Kind::kRead, 7, -EIO, false};  // after three and a half chunks
  const Status status = read(1, 20 * kMib);
  EXPECT_EQ(status.code(), Code::IO);
  EXPECT_NE(status.text().find("read chunk 3: Input/output error"), std::string::npos)
      << status.text();
  *faults_ = {IoRequest::Kind::kRead, 40, -EIO, false, true};  // the footer, behind the last half
  const Status footer = read(1, 20 * kMib);
  EXPECT_EQ(footer.code(), Code::IO);
  EXPECT_NE(footer.text().find("footer: Input/output error"), std::string::npos) << footer.text();
  EXPECT_TRUE(read(1, 20 * kMib).ok());
}

TEST_F(FileBlobStoreTest, ShortTransfersAreContinued) {
  ASSERT_TRUE(open(tier_).ok());
  faults_->halve = true;
  ASSERT_TRUE(write(1, 5 * kMib + 100).ok());
  EXPECT_TRUE(read(1, 5 * kMib + 100).ok());
}

// Reads of one chunk, which the caller's thread begins and ends.
class FileBlobStoreHere : public FileBlobStoreTest {
 protected:
  void SetUp() override {
    if (!make_uring_queue(1)) GTEST_SKIP() << "io_uring is not permitted here";
    const Status status =
        open_with(tier_, [] { return make_uring_queue(kBlobQueueDepth).value(); });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  // The thread that touched the memory.
  std::thread::id reader_of(std::uint64_t blob, std::uint64_t bytes) {
    const auto memory = std::make_shared<TestMemory>(bytes, 99);
    const Status status = posts_.wait([&](BlobStore::Done done) {
      store_->read({BlobId{blob}, bytes, "model 7", memory}, std::move(done));
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
    return memory->mapped_by;
  }
};

TEST_F(FileBlobStoreHere, OneChunkIsReadByTheCallersThreadAndMoreIsNot) {
  const std::thread::id here = std::this_thread::get_id();
  for (const std::uint64_t bytes : {std::uint64_t{1}, kMib, kMib + 1})
    ASSERT_TRUE(write(bytes, bytes).ok());
  EXPECT_EQ(reader_of(1, 1), here);
  EXPECT_EQ(reader_of(kMib, kMib), here);
  EXPECT_NE(reader_of(kMib + 1, kMib + 1), here);
  EXPECT_EQ(reader_of(1, 1), here);
}

TEST_F(FileBlobStoreHere, WithoutAWatchTheThreadDoesIt) {
  ASSERT_TRUE(write(1, 5000).ok());
  posts_.refuse_watch = true;
  ASSERT_TRUE(open_with(tier_, [] { return make_uring_queue(kBlobQueueDepth).value(); }).ok());
  EXPECT_NE(reader_of(1, 5000), std::this_thread::get_id());
}

TEST_F(FileBlobStoreHere, ACancelledReadSaysSoWhenTheDiskIsDone) {
  ASSERT_TRUE(write(1, kMib).ok());
  const auto memory = std::make_shared<TestMemory>(kMib, 99);
  std::optional<Code> code;
  const TransferId id = store_->read({BlobId{1}, kMib, "model 7", memory},
                                     [&](const Status& status) { code = status.code(); });
  EXPECT_EQ(memory->mapped, kMib) << "the disk writes to it";
  store_->cancel(id);
  EXPECT_FALSE(code);
  while (!code) ASSERT_TRUE(posts_.turn());
  EXPECT_EQ(code, Code::CANCELLED);
  EXPECT_EQ(memory->mapped, 0U);
}

TEST_F(FileBlobStoreHere, FaultsAreNamedAndItGoesOn) {
  ASSERT_TRUE(write(1, kMib).ok());
  const std::pair<std::uint64_t, const char*> cases[] = {{0, "read chunk 0: Input/output error"},
                                                         {1, "footer: Input/output error"}};
  for (const auto& [at, text] : cases) {
    *faults_ = {IoRequest::Kind::kRead, at, -EIO, false, at == 1};
    const Status status = read(1, kMib);
    EXPECT_EQ(status.code(), Code::IO);
    EXPECT_NE(status.text().find(std::string("model 7: segment adam_m: blob 1: ") + text),
              std::string::npos)
        << status.text();
    *faults_ = {IoRequest::Kind::kRead, at, 0, false, at == 1};
    EXPECT_EQ(read(1, kMib).code(), Code::CORRUPT) << "the file ends in it";
    *faults_ = {};
    EXPECT_TRUE(read(1, kMib).ok());
  }
  faults_->halve = true;
  EXPECT_TRUE(read(1, kMib).ok());
  faults_->halve = false;
  std::fstream file(tier_ + "/" + blob_file_name(BlobId{1}), std::ios::in | std::ios::out);
  file.put('x');
  file.close();
  EXPECT_NE(read(1, kMib).text().find("chunk 0: checksum"), std::string::npos);
  EXPECT_EQ(read(2, kMib).code(), Code::NOT_FOUND);
}

TEST_F(FileBlobStoreTest, ATruncatedFileIsCorrupt) {
  ASSERT_TRUE(open(tier_).ok());
  ASSERT_TRUE(write(1, 3 * kMib).ok());
  const std::string path = tier_ + "/" + blob_file_name(BlobId{1});
  for (const std::uint64_t bytes : {3 * kMib, 2 * kMib, std::uint64_t{1}, std::uint64_t{0}}) {
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(read(1, 3 * kMib).code(), Code::CORRUPT);
  }
}

TEST_F(FileBlobStoreTest, ADamagedFooterIsCorrupt) {
  ASSERT_TRUE(open(tier_).ok());
  ASSERT_TRUE(write(1, 3 * kMib).ok());
  std::fstream file(tier_ + "/" + blob_file_name(BlobId{1}), std::ios::in | std::ios::out);
  file.seekp(3 * kMib + 34);
  file.put('x');
  file.close();
  const Status status = read(1, 3 * kMib);
  EXPECT_EQ(status.code(), Code::CORRUPT);
  EXPECT_NE(status.text().find("footer: checksum"), std::string::npos) << status.text();
}

TEST_F(FileBlobStoreTest, LeftoversOfACrashAreSweptAndForeignFilesStay) {
  ASSERT_EQ(::mkdir(tier_.c_str(), 0700), 0);
  for (const std::string& name :
       {temporary_file_name(BlobId{5}), blob_file_name(BlobId{6}), std::string("notes")})
    std::ofstream(tier_ + "/" + name) << "x";
  ASSERT_TRUE(open(tier_).ok());
  EXPECT_EQ(store_->blobs(), (std::vector<BlobId>{{6}}));
  EXPECT_EQ(files(), 2u);
}

TEST_F(FileBlobStoreTest, KilledBetweenAnyTwoWritesABlobIsWholeOrAbsent) {
  ASSERT_TRUE(open(tier_).ok());
  const std::uint64_t bytes = 3 * kMib + 100;
  std::size_t lefts = 0;
  const auto left = [this](std::size_t number) {
    return folder_ + "/left-" + std::to_string(number);
  };
  faults_->before_write = [&] { std::filesystem::copy(tier_, left(lefts++)); };
  ASSERT_TRUE(write(1, bytes).ok());
  faults_->before_write = nullptr;
  ASSERT_EQ(lefts, 10u) << "before and after each of four chunks and the footer";
  std::size_t whole = 0;
  for (std::size_t number = 0; number < lefts; ++number) {
    bool found = false;
    ASSERT_NO_FATAL_FAILURE(is_whole_or_absent(left(number), bytes, &found));
    whole += found ? 1 : 0;
  }
  EXPECT_GE(whole, 1u) << "after the last one all is there";
}

// A crash of the machine: a part of the writes is on the disk, and the blob's name is not.
TEST_F(FileBlobStoreTest, ABlobWithoutItsNameIsTakenWhenItIsWholeOnly) {
  ASSERT_TRUE(open(tier_).ok());
  const std::uint64_t bytes = 3 * kMib + 100;
  const std::string spare = tier_ + "/" + spare_file_name(77);
  const std::string blob = tier_ + "/" + blob_file_name(BlobId{1});
  const std::vector<char> other(kBlobAlignment, 'x');
  for (std::uint64_t piece = 0; piece <= 5; ++piece) {  // four chunks, the footer, none
    ASSERT_TRUE(write(1, bytes).ok());
    store_.reset();
    std::filesystem::rename(blob, spare);
    if (piece < 5) {
      std::fstream file(spare, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(piece < 4 ? piece * kMib : 3 * kMib + kBlobAlignment));
      file.write(other.data(), static_cast<std::streamsize>(other.size()));
    }
    bool found = true;
    ASSERT_NO_FATAL_FAILURE(is_whole_or_absent(tier_, bytes, &found));
    EXPECT_EQ(found, piece == 5) << piece;
    EXPECT_FALSE(std::filesystem::exists(spare));
    ASSERT_TRUE(open(tier_).ok());
  }
  std::filesystem::copy(blob, spare);
  ASSERT_TRUE(open(tier_).ok());
  EXPECT_EQ(store_->blobs(), (std::vector<BlobId>{{1}})) << "not twice";
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileBlobStoreTest, EverySizeIsFoundWithoutItsName) {
  for (const std::uint64_t bytes :
       {std::uint64_t{1}, kBlobAlignment, kMib - 1, kMib, kMib + 1, 2 * kMib - kBlobAlignment}) {
    ASSERT_TRUE(open(tier_).ok());
    ASSERT_TRUE(write(1, bytes).ok());
    store_.reset();
    std::filesystem::rename(tier_ + "/" + blob_file_name(BlobId{1}),
                            tier_ + "/" + spare_file_name(77));
    bool found = false;
    ASSERT_NO_FATAL_FAILURE(is_whole_or_absent(tier_, bytes, &found));
    EXPECT_TRUE(found) << bytes;
    std::filesystem::remove_all(tier_);
  }
}

TEST_F(FileBlobStoreTest, FilesForTheNextBlobsAreMadeAgainWhenFewAreLeft) {
  ASSERT_TRUE(open(tier_).ok());
  EXPECT_EQ(spares(), SpareFiles::kSpareFiles);
  for (std::uint64_t blob = 1; blob <= 3 * SpareFiles::kSpareFiles; ++blob)
    ASSERT_TRUE(write(blob, 5000).ok());
  EXPECT_EQ(files(), 3 * SpareFiles::kSpareFiles);
  store_.reset();
  EXPECT_LE(spares(), SpareFiles::kSpareFiles);
  ASSERT_TRUE(open(tier_).ok());
  EXPECT_EQ(spares(), SpareFiles::kSpareFiles);
  for (const auto& entry : std::filesystem::directory_iterator(tier_))
    if (is_spare_file_name(entry.path().filename().string())) std::filesystem::remove(entry.path());
  EXPECT_TRUE(write(100, 5000).ok()) << "somebody removed them";
  EXPECT_TRUE(read(100, 5000).ok());
}

TEST_F(FileBlobStoreTest, ARemovedDirectoryIsAnErrorOfEachCall) {
  ASSERT_TRUE(open(tier_).ok());
  ASSERT_TRUE(write(1, 5000).ok());
  std::filesystem::remove_all(tier_);
  const Status status = write(2, 5000);
  EXPECT_EQ(status.code(), Code::IO);
  EXPECT_NE(status.text().find("create: No such file or directory"), std::string::npos)
      << status.text();
  EXPECT_EQ(read(1, 5000).code(), Code::NOT_FOUND);
}

TEST_F(FileBlobStoreTest, OneProcessHasTheDirectoryAndNobodyElseMayWriteToIt) {
  ASSERT_TRUE(open(tier_).ok());
  EXPECT_EQ(open_file_blob_store({tier_, false}, posts_.post()).error().code(), Code::BUSY);
  store_.reset();
  ASSERT_EQ(::chmod(tier_.c_str(), 0770), 0);
  EXPECT_EQ(open(tier_).code(), Code::PERMISSION);
  ASSERT_EQ(::chmod(tier_.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(tier_.c_str(), (folder_ + "/link").c_str()), 0);
  EXPECT_EQ(open(folder_ + "/link").code(), Code::IO);
  EXPECT_EQ(open(folder_ + "/a/b").code(), Code::IO) << "only the last part is made";
  EXPECT_TRUE(open(tier_).ok());
}

TEST_F(FileBlobStoreTest, AFullFileSystemIsNoCapacityAndLeavesNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "mounting a small tmpfs needs root";
  ASSERT_EQ(::mkdir(tier_.c_str(), 0700), 0);
  if (::mount("plexrl-test", tier_.c_str(), "tmpfs", 0, "size=8m,mode=0700") != 0)
    GTEST_SKIP() << "mounting a small tmpfs is not permitted here";
  EXPECT_TRUE(open(tier_).ok());
  EXPECT_TRUE(write(1, 5 * kMib).ok());
  const Status status = write(2, 5 * kMib);
  EXPECT_EQ(status.code(), Code::NO_CAPACITY) << status.to_string();
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(read(1, 5 * kMib).ok());
  store_.reset();
  EXPECT_EQ(::umount(tier_.c_str()), 0);
}

// As a container's profile does it; for the calling thread and those that it starts.
bool forbid_io_uring() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(FileBlobStoreTest, WhereIoUringIsRefusedThreadsDoItAndSaySo) {
  bool forbidden = false;
  Result<std::unique_ptr<BlobStore>> opened(error(Code::INTERNAL, "not opened"));
  testing::internal::CaptureStderr();
  std::thread([&] {
    forbidden = forbid_io_uring();
    opened = open_file_blob_store({tier_, true}, posts_.post());
  }).join();
  const std::string log = testing::internal::GetCapturedStderr();
  if (!forbidden) GTEST_SKIP() << "seccomp is not permitted here";
  ASSERT_TRUE(opened) << opened.error().to_string();
  EXPECT_NE((*opened)->method().find("threads"), std::string::npos);
  EXPECT_NE(log.find("io_uring: Operation not permitted; threads with pread and pwrite are used"),
            std::string::npos)
      << log;
  const auto memory = std::make_shared<TestMemory>(3 * kMib);
  const Status status = posts_.wait([&](BlobStore::Done done) {
    (*opened)->write({BlobId{1}, 3 * kMib, "model 1", memory}, std::move(done));
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(FileBlobStoreTest, TheBenchLeavesNothing) {
  const auto pool = [](const char* name) {
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), 4 * kMib), 0);
    return fd;
  };
  const UniqueFd from = pool("from");
  const UniqueFd to = pool("to");
  const auto result = bench_blob(folder_, {from.get(), to.get(), 2 * kMib}, 3 * kMib, true);
  if (!result && result.error().text().find("O_DIRECT") != std::string::npos)
    GTEST_SKIP() << "no O_DIRECT in " << folder_;
  ASSERT_TRUE(result) << result.error().to_string();
  EXPECT_GT(result->write.ns, 0);
  EXPECT_GT(result->raw_read.ns, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace plexrl::store
