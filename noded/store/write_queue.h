// SPDX-License-Identifier: Apache-2.0
// WriteQueue: the AsyncStore over a StateStore that takes its time. What is written waits in order;
// write_group() makes all that waits durable in one transaction, so the more is written meanwhile,
// the less each costs. When that is refused, each batch of it is tried by itself. A WriterThread
// calls it in the daemon, a test when it likes.
//
// Threads: AsyncStore's calls are for the loop thread, write_group() and wait_for_work() for one
// other. Never two of them are in the store below at once. Loop calls that must wait for what was
// written carry it out themselves.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "store/async_store.h"

namespace plexrl::store {

class WriteQueue final : public AsyncStore {
 public:
  // A disk that takes this much in a second is slow; beyond it the queue only gets longer.
  static constexpr std::uint64_t kCrowdedBytes = 64ULL << 20;
  static constexpr std::size_t kCrowdedBatches = 4096;
  // Of one transaction: what comes later should not wait for too much.
  static constexpr std::uint64_t kGroupBytes = 8ULL << 20;
  // So many batches refused in one group: it is the disk, not what is in them, and more tries would
  // only keep the loop waiting.
  static constexpr std::size_t kMostRefused = 8;

  // Runs a callback on the loop's thread, later (EventLoop::post). Any thread.
  using Post = std::function<void(std::function<void()>)>;
  // `below` outlives the queue. `work`: called by write() when there is something for
  // write_group(); may be empty.
  WriteQueue(StateStore& below, Post post, std::function<void()> work = {});
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;
  ~WriteQueue() override;  // what waits is made durable; nobody hears of it

  void write(BatchPtr batch, Done done) override;
  void settle() override;
  void abandon() override;
  [[nodiscard]] bool idle() const override;
  [[nodiscard]] bool crowded() const override;
  [[nodiscard]] Status apply(std::span<const BatchPtr> batches) override;
  [[nodiscard]] Result<std::string> get(std::string_view table, std::uint64_t key,
                                        std::uint64_t subkey) const override;
  [[nodiscard]] Status scan(std::string_view table, const Visitor& visit) const override;

  // One transaction; false when nothing waits.
  bool write_group();
  // True: there is something for write_group(). False: stop() was called, and nothing waits.
  [[nodiscard]] bool wait_for_work();
  void stop();
  // What kill -9 does: what waits never reaches the disk.
  void drop();

 private:
  struct Entry {
    std::uint64_t ticket = 0;
    BatchPtr batch;
  };
  struct Report {
    std::uint64_t ticket = 0;
    Status status;
  };
  // By key of the rows: why a batch with one of them must not be written.
  using Blocked = std::map<std::uint64_t, Status>;
  struct Shared {
    std::mutex mutex;  // guards what follows
    std::condition_variable changed;
    std::deque<Entry> waiting;
    std::uint64_t waiting_bytes = 0;
    bool busy = false;           // someone is in below_
    Blocked blocked;             // of failed batches that not everybody has been told of
    Status failure;              // not ok: the same for all keys
    std::deque<Report> reports;  // for tell()
    bool stopping = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  bool write_group(Lock& lock) const;
  [[nodiscard]] std::vector<Entry> take_group() const;
  struct Outcome {
    std::vector<Status> statuses;  // of the group's batches
    Blocked blocked;
    Status failure;
  };
  [[nodiscard]] Outcome make_durable(const std::vector<Entry>& group) const;
  [[nodiscard]] Outcome one_by_one(const std::vector<Entry>& group) const;
  static Status blocked_by(const Blocked& blocked, const Batch& batch);
  static void block(Blocked& blocked, const Batch& batch, const Status& why);
  void report(std::uint64_t ticket, Status status) const;
  void fail_waiting() const;
  [[nodiscard]] Lock drained() const;
  void tell();

  StateStore& below_;
  std::function<void()> work_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::function<void()> post_tell_;
  const std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();

  // Loop thread.
  std::map<std::uint64_t, Done> dones_;
  std::deque<Report> telling_;
  std::uint64_t last_ticket_ = 0;
};

}  // namespace plexrl::store
