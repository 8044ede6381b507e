// SPDX-License-Identifier: Apache-2.0
// FileBlobStore: a file per blob in one directory; a thread for reads and one for writes and
// removals. A read of one chunk that finds nothing before it is the caller's own (LoopRead).
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/unique_fd.h"
#include "store/loop_read.h"

namespace plexrl::store {

class FileBlobStore final : public BlobStore {
 public:
  using QueueFactory = std::function<Result<std::unique_ptr<IoQueue>>()>;
  // `queues`: for tests, instead of io_uring or threads.
  [[nodiscard]] static Result<std::unique_ptr<FileBlobStore>> open(const BlobStoreOptions& options,
                                                                   Post post,
                                                                   const QueueFactory& queues);
  ~FileBlobStore() override;

  TransferId write(BlobRequest request, Done done) override;
  TransferId read(BlobRequest request, Done done) override;
  void cancel(TransferId transfer) override;
  [[nodiscard]] std::uint64_t progress(TransferId transfer) const override;
  void remove(BlobId blob, Done done) override;
  [[nodiscard]] const std::vector<BlobId>& blobs() const override { return blobs_; }
  [[nodiscard]] const std::string& method() const override { return method_; }

 private:
  enum class Verb : std::uint8_t { kRead, kWrite, kRemove };
  struct Job {
    Verb verb = Verb::kRead;
    TransferId id;
    BlobRequest request;
    Done done;
    std::shared_ptr<TransferControl> control;
  };
  // Jobs of one kind, done by one thread in their order.
  struct Line {
    std::unique_ptr<IoQueue> queue;
    std::mutex mutex;
    std::condition_variable wanted;
    std::deque<Job> jobs;
    bool closing = false;
    std::thread thread;
  };
  // What completions need, which may come when the store is gone. The caller's thread only.
  struct Callers {
    bool open = true;
    std::map<TransferId, std::shared_ptr<TransferControl>> under_way;
    std::size_t thread_reads = 0;  // given to the thread, and not completed
  };

  explicit FileBlobStore(Post post) : post_(std::move(post)) {}
  [[nodiscard]] Status open_directory(const std::string& path);
  [[nodiscard]] Result<std::vector<std::string>> names() const;
  [[nodiscard]] Result<std::vector<std::string>> sweep();
  [[nodiscard]] Status remove_leftover(const std::string& name) const;
  [[nodiscard]] Status recover(const std::string& spare, std::vector<std::string>& empty);
  [[nodiscard]] Status open_queues(const BlobStoreOptions& options, const QueueFactory& queues);
  [[nodiscard]] Status open_rings();
  [[nodiscard]] bool direct_works() const;
  void open_loop_read(const BlobStoreOptions& options, const QueueFactory& queues);
  [[nodiscard]] Job new_job(Verb verb, BlobRequest request, Done done);
  static void hand_over(Line& line, Job job);
  void start_reads();
  [[nodiscard]] bool read_here(Job& job);
  void on_readable();
  void work(Line& line);
  [[nodiscard]] Status carry_out(Line& line, const Job& job);
  [[nodiscard]] Status unlink(BlobId blob) const;

  Post post_;
  UniqueFd directory_;
  bool direct_ = false;
  std::string method_;
  std::vector<BlobId> blobs_;
  std::uint64_t last_transfer_ = 0;
  std::shared_ptr<Callers> callers_ = std::make_shared<Callers>();
  Line reads_;
  Line writes_;
  SpareFiles spares_;  // after the opening of the thread of writes_ only

  // The caller's thread only.
  std::deque<Job> held_reads_;  // behind the one that is read here
  Job read_here_;
  std::unique_ptr<LoopRead> loop_read_;  // null: all reads are the thread's
  std::shared_ptr<void> watch_;          // of its fd
};

}  // namespace plexrl::store
