// SPDX-License-Identifier: Apache-2.0
#include "store/blob_bench.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <optional>

#include "base/unique_fd.h"
#include "store/blob_format.h"
#include "store/blob_store.h"
#include "store/io_queue.h"
#include "store/memfd_memory.h"

namespace plexrl::store {
namespace {

// The first chunks of a pool, mapped and faulted in before the clock runs.
class Area {
 public:
  Area() = default;
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  ~Area() {
    if (mapping_ != MAP_FAILED) ::munmap(mapping_, mapped_);
  }
  // At a multiple of the chunk, so that huge pages are mapped as such.
  Status open(int pool, std::size_t chunk_bytes, std::uint64_t bytes, ChunkHooks hooks) {
    pool_ = pool;
    hooks_ = std::move(hooks);
    chunk_bytes_ = chunk_bytes;
    bytes_ = (bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
    mapped_ = bytes_ + chunk_bytes;
    mapping_ =
        ::mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping_ == MAP_FAILED)
      return errno_error(Code::NO_CAPACITY, errno, "%zu bytes of address space", mapped_);
    at_ = static_cast<std::byte*>(mapping_);
    at_ += -reinterpret_cast<std::uintptr_t>(at_) % chunk_bytes;
    const int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    if (::mmap(at_, bytes_, PROT_READ | PROT_WRITE, flags, pool, 0) == MAP_FAILED)
      return errno_error(Code::NO_CAPACITY, errno, "%zu bytes of memory", bytes_);
    return {};
  }
  void fill() {
    for (std::uint32_t i = 0; hooks_.before_write && i < bytes_ / chunk_bytes_; ++i)
      hooks_.before_write(i, chunk_bytes_);
    for (std::size_t i = 0; i < bytes_ / sizeof(std::uint64_t); ++i) {
      const std::uint64_t word = i * 0x9E3779B97F4A7C15U;
      std::memcpy(at_ + i * sizeof word, &word, sizeof word);
    }
  }
  void clear() {
    std::memset(at_, 0, bytes_);
    for (std::uint32_t i = 0; hooks_.filled && i < bytes_ / chunk_bytes_; ++i)
      hooks_.filled(i, at_ + i * chunk_bytes_, 0);
  }
  [[nodiscard]] std::shared_ptr<BlobMemory> memory() const {
    std::vector<std::uint32_t> chunks(bytes_ / chunk_bytes_);
    std::iota(chunks.begin(), chunks.end(), 0U);
    return std::make_shared<MemfdMemory>(pool_, chunk_bytes_, std::move(chunks), hooks_,
                                         std::shared_ptr<std::byte>(std::shared_ptr<void>(), at_));
  }
  [[nodiscard]] std::byte* data() const { return at_; }

 private:
  int pool_ = -1;
  std::size_t chunk_bytes_ = 0;
  void* mapping_ = MAP_FAILED;
  std::size_t mapped_ = 0;
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
  ChunkHooks hooks_;
};

// Completions for a caller that waits as the daemon's loop does.
class Waiter {
 public:
  Status open() {
    wakeup_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return wakeup_ ? Status() : errno_error(Code::IO, errno, "eventfd");
  }
  void post(std::function<void()> callback) {
    {
      const std::lock_guard lock(mutex_);
      callback_ = std::move(callback);
    }
    static_cast<void>(::eventfd_write(wakeup_.get(), 1));
  }
  Result<std::shared_ptr<void>> watch(int fd, std::function<void()> ready) {
    watched_ = fd;
    ready_ = std::move(ready);
    return std::shared_ptr<void>(std::make_shared<int>(fd));
  }
  void run() {
    std::array<pollfd, 2> fds = {pollfd{wakeup_.get(), POLLIN, 0}, pollfd{watched_, POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), -1) < 0) return;
    if (fds[1].revents != 0) ready_();
    eventfd_t count = 0;
    if (fds[0].revents == 0 || ::eventfd_read(wakeup_.get(), &count) != 0) return;
    std::unique_lock lock(mutex_);
    const auto callback = std::exchange(callback_, nullptr);
    lock.unlock();
    if (callback) callback();
  }

 private:
  UniqueFd wakeup_;
  int watched_ = -1;
  std::function<void()> ready_;
  std::mutex mutex_;
  std::function<void()> callback_;
};

Result<std::unique_ptr<IoQueue>> queue_like_the_stores() {
  auto ring = make_uring_queue(kBlobQueueDepth);
  if (ring) return ring;
  return make_thread_queue(kBlobQueueDepth);
}

// The whole file in order, kBlobQueueDepth chunks under way.
Status move_raw(IoQueue& queue, IoRequest::Kind kind, int fd, std::byte* data, std::size_t bytes) {
  std::size_t next = 0;
  unsigned under_way = 0;
  Status status;
  while (next < bytes || under_way > 0) {
    while (status.ok() && next < bytes && under_way < kBlobQueueDepth) {
      const std::size_t length = std::min(kBlobChunkBytes, bytes - next);
      status = queue.submit({kind, fd, data + next, length, next, length});
      next += length;
      under_way += status.ok() ? 1 : 0;
    }
    if (under_way == 0) break;
    const IoCompletion done = queue.wait();
    --under_way;
    if (done.result != static_cast<std::int64_t>(done.tag) && status.ok()) {
      status = errno_error(Code::IO, done.result < 0 ? static_cast<int>(-done.result) : EIO, "raw");
      next = bytes;
    }
  }
  return status;
}

class Round {
 public:
  Round(std::string directory, std::uint64_t bytes) : directory_(std::move(directory)) {
    result_.bytes = bytes;
  }
  Status open(const BlobBenchPools& pools) {
    PLEXRL_TRY(area_.open(pools.from, pools.chunk_bytes, result_.bytes, pools.from_hooks));
    PLEXRL_TRY(back_.open(pools.to, pools.chunk_bytes, result_.bytes, pools.to_hooks));
    area_.fill();
    back_.clear();
    PLEXRL_TRY(waiter_.open());
    const auto watch = [this](int fd, std::function<void()> ready) {
      return waiter_.watch(fd, std::move(ready));
    };
    PLEXRL_ASSIGN(store_, open_file_blob_store({directory_ + "/blobs", true, watch},
                                               [this](std::function<void()> callback) {
                                                 waiter_.post(std::move(callback));
                                               }));
    result_.method = store_->method();
    PLEXRL_ASSIGN(queue_, queue_like_the_stores());
    return settle(directory_);
  }

  Status blob() {
    const BlobRequest out{BlobId{1}, result_.bytes, "bench", area_.memory()};
    const BlobRequest in{BlobId{1}, result_.bytes, "bench", back_.memory()};
    PLEXRL_TRY(timed(&result_.write, [&] {
      return wait([&](BlobStore::Done done) { store_->write(out, std::move(done)); });
    }));
    PLEXRL_TRY(timed(&result_.read, [&] {
      return wait([&](BlobStore::Done done) { store_->read(in, std::move(done)); });
    }));
    if (std::memcmp(area_.data(), back_.data(), result_.bytes) != 0)
      return error(Code::CORRUPT, "the blob came back changed");
    PLEXRL_TRY(wait([&](BlobStore::Done done) { store_->remove(BlobId{1}, std::move(done)); }));
    return settle(directory_ + "/blobs");
  }

  Status raw() {
    const std::string path = directory_ + "/raw";
    const UniqueFd file(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600));
    if (!file) return errno_error(Code::IO, errno, "open '%s' with O_DIRECT", path.c_str());
    const std::size_t bytes = BlobShape(result_.bytes).data_bytes;
    PLEXRL_TRY(timed(&result_.raw_write, [&] { return raw_write(file.get(), bytes); }));
    PLEXRL_TRY(timed(&result_.raw_read, [&] {
      return move_raw(*queue_, IoRequest::Kind::kRead, file.get(), back_.data(), bytes);
    }));
    ::unlink(path.c_str());
    return settle(directory_);
  }

  [[nodiscard]] const BlobBench& result() const { return result_; }

 private:
  template <class Call>
  Status wait(const Call& call) {
    std::optional<Status> outcome;
    call([&](const Status& status) { outcome = status; });
    while (!outcome) waiter_.run();
    return *outcome;
  }
  template <class Work>
  static Status timed(Duration* duration, const Work& work) {
    const TimePoint start = system_clock().now();
    Status status = work();
    *duration = system_clock().now() - start;
    return status;
  }

  // What making and removing files still costs the file system is not the next measurement's.
  static Status settle(const std::string& path) {
    const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder || ::fsync(folder.get()) != 0)
      return errno_error(Code::IO, errno, "sync '%s'", path.c_str());
    return {};
  }

  [[nodiscard]] Status raw_write(int fd, std::size_t bytes) const {
    if (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP)
      return errno_error(Code::IO, errno, "fallocate");
    PLEXRL_TRY(move_raw(*queue_, IoRequest::Kind::kWrite, fd, area_.data(), bytes));
    return ::fsync(fd) == 0 ? Status() : errno_error(Code::IO, errno, "fsync");
  }

  std::string directory_;
  BlobBench result_;
  Area area_;
  Area back_;
  Waiter waiter_;
  std::unique_ptr<BlobStore> store_;
  std::unique_ptr<IoQueue> queue_;  // of the raw copy, made beforehand like those of the store
};

}  // namespace

Result<BlobBench> bench_blob(const std::string& directory, const BlobBenchPools& pools,
                             std::uint64_t bytes, bool raw_first) {
  std::string folder = directory + "/plexrl-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr)
    return errno_error(Code::IO, errno, "make a folder in '%s'", directory.c_str());
  Status status;
  BlobBench result;
  {
    Round round(folder, bytes);
    status = round.open(pools);
    if (status.ok() && raw_first) status = round.raw();
    if (status.ok()) status = round.blob();
    if (status.ok() && !raw_first) status = round.raw();
    result = round.result();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (!status.ok()) return status;
  return result;
}

}  // namespace plexrl::store
