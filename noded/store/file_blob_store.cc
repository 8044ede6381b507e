// SPDX-License-Identifier: Apache-2.0
#include "store/file_blob_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "store/blob_check.h"
#include "store/quiet_thread.h"

namespace plexrl::store {
namespace {

struct DirectoryCloser {
  void operator()(DIR* at) const noexcept { ::closedir(at); }
};

constexpr unsigned kLoopReadPieces = 1;

std::string number(BlobId blob) { return "blob " + std::to_string(blob.value); }

std::string context_of(const BlobRequest& request) {
  return request.label + ": " + number(request.blob);
}

}  // namespace

Result<std::unique_ptr<BlobStore>> open_file_blob_store(const BlobStoreOptions& options,
                                                        BlobStore::Post post) {
  PLEXRL_ASSIGN(auto store, FileBlobStore::open(options, std::move(post), {}));
  return std::unique_ptr<BlobStore>(std::move(store));
}

Result<std::unique_ptr<FileBlobStore>> FileBlobStore::open(const BlobStoreOptions& options,
                                                           Post post, const QueueFactory& queues) {
  std::unique_ptr<FileBlobStore> store(new FileBlobStore(std::move(post)));
  const std::string where = "disk tier '" + options.directory + "'";
  PLEXRL_TRY(store->open_directory(options.directory).within(where));
  auto spares = store->sweep();
  if (!spares) return spares.error().within(where);
  PLEXRL_TRY(store->open_queues(options, queues).within(where));
  // What is there can be read without them.
  const Status made =
      store->spares_.open(store->directory_.get(), store->direct_, *std::move(spares));
  if (!made.ok())
    PLEXRL_LOG(kWarning, "%s: files for the next blobs: %s", where.c_str(),
               made.to_string().c_str());
  store->open_loop_read(options, queues);
  FileBlobStore& self = *store;
  for (Line* const line : {&self.reads_, &self.writes_})
    line->thread = start_quiet_thread([&self, line] { self.work(*line); });
  return store;
}

FileBlobStore::~FileBlobStore() {
  watch_.reset();
  loop_read_.reset();
  callers_->open = false;
  for (const auto& [id, control] : callers_->under_way) control->cancelled = true;
  for (Line* const line : {&reads_, &writes_}) {
    {
      const std::lock_guard lock(line->mutex);
      line->closing = true;
    }
    line->wanted.notify_one();
    if (line->thread.joinable()) line->thread.join();
  }
}

// ---- opening ----

Status FileBlobStore::open_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return errno_error(Code::IO, errno, "make the directory");
  directory_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory_) return errno_error(Code::IO, errno, "open");
  struct stat info {};
  if (::fstat(directory_.get(), &info) != 0) return errno_error(Code::IO, errno, "stat");
  // Segments are users' weights, and a file put here would be taken for one of them.
  if (info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return error(Code::PERMISSION,
                 "must belong to the user of plexrld (uid %u) and be closed to others (mode 0700)",
                 static_cast<unsigned>(::geteuid()));
  if (::flock(directory_.get(), LOCK_EX | LOCK_NB) != 0)
    return errno == EWOULDBLOCK ? error(Code::BUSY, "another process uses it")
                                : errno_error(Code::IO, errno, "lock");
  return {};
}

// The names in it, before any is changed.
Result<std::vector<std::string>> FileBlobStore::names() const {
  UniqueFd copy(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copy) return errno_error(Code::IO, errno, "open");
  const std::unique_ptr<DIR, DirectoryCloser> list(::fdopendir(copy.get()));
  if (list == nullptr) return errno_error(Code::IO, errno, "list");
  static_cast<void>(copy.release());
  std::vector<std::string> found;
  errno = 0;
  while (const dirent* const entry = ::readdir(list.get())) found.emplace_back(entry->d_name);
  if (errno != 0) return errno_error(Code::IO, errno, "list");
  return found;
}

// Halves of writes go; whose the whole ones are, the caller knows. The empty spares.
Result<std::vector<std::string>> FileBlobStore::sweep() {
  PLEXRL_ASSIGN(const auto all, names());
  std::vector<std::string> spares, empty;
  for (const std::string& name : all) {
    bool temporary = false;
    const BlobId blob = blob_of_file_name(name, &temporary);
    if (is_spare_file_name(name)) {
      spares.push_back(name);
    } else if (blob && temporary) {
      PLEXRL_TRY(remove_leftover(name));
    } else if (blob) {
      blobs_.push_back(blob);
    }
  }
  for (const std::string& spare : spares) PLEXRL_TRY(recover(spare, empty));
  std::sort(blobs_.begin(), blobs_.end());
  return empty;
}

// A blob that was told to be durable may lie in it still: its new name was not on the disk yet.
Status FileBlobStore::recover(const std::string& spare, std::vector<std::string>& empty) {
  const UniqueFd file(
      ::openat(directory_.get(), spare.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return errno_error(Code::IO, file ? EINVAL : errno, "open '%s'", spare.c_str());
  if (info.st_size == 0) {
    empty.push_back(spare);
    return {};
  }
  const BlobId blob = whole_blob_in(file.get(), static_cast<std::uint64_t>(info.st_size));
  if (!blob || std::find(blobs_.begin(), blobs_.end(), blob) != blobs_.end())
    return remove_leftover(spare);
  const std::string name = blob_file_name(blob);
  if (::renameat(directory_.get(), spare.c_str(), directory_.get(), name.c_str()) != 0)
    return errno_error(Code::IO, errno, "rename '%s' to '%s'", spare.c_str(), name.c_str());
  blobs_.push_back(blob);
  return {};
}

Status FileBlobStore::remove_leftover(const std::string& name) const {
  if (::unlinkat(directory_.get(), name.c_str(), 0) == 0) return {};
  return errno_error(Code::IO, errno, "remove '%s', which a crash left", name.c_str());
}

// tmpfs of older kernels and some network file systems have no O_DIRECT.
bool FileBlobStore::direct_works() const {
  const std::string name = temporary_file_name(BlobId{~std::uint64_t{0}});
  const int flags = O_WRONLY | O_CREAT | O_DIRECT | O_NOFOLLOW | O_CLOEXEC;
  const UniqueFd file(::openat(directory_.get(), name.c_str(), flags, 0600));
  // Whether it worked or the open failed after the file was made.
  ::unlinkat(directory_.get(), name.c_str(), 0);
  return static_cast<bool>(file);
}

Status FileBlobStore::open_queues(const BlobStoreOptions& options, const QueueFactory& queues) {
  direct_ = direct_works();
  if (!direct_)
    PLEXRL_LOG(kWarning, "disk tier '%s': its file system has no O_DIRECT; the page cache is used",
               options.directory.c_str());
  method_ = direct_ ? "O_DIRECT, " : "page cache, ";
  if (queues) {
    PLEXRL_ASSIGN(reads_.queue, queues());
    PLEXRL_ASSIGN(writes_.queue, queues());
    return {};
  }
  const Status refused =
      options.io_uring ? open_rings() : error(Code::UNSUPPORTED, "io_uring: switched off");
  if (refused.ok()) {
    method_ += "io_uring";
    return {};
  }
  // Often so in containers. A thread for each chunk under way keeps the disk as busy.
  PLEXRL_LOG(kWarning, "disk tier '%s': %s; threads with pread and pwrite are used",
             options.directory.c_str(), refused.text().c_str());
  for (Line* const line : {&reads_, &writes_}) line->queue = make_thread_queue(kBlobQueueDepth);
  method_ += "threads";
  return {};
}

Status FileBlobStore::open_rings() {
  for (Line* const line : {&reads_, &writes_}) {
    PLEXRL_ASSIGN(line->queue, make_uring_queue(kBlobQueueDepth));
  }
  return {};
}

// Without it everything works, slower. The queue of the threads says why there is no io_uring.
void FileBlobStore::open_loop_read(const BlobStoreOptions& options, const QueueFactory& queues) {
  if (!options.watch || !(options.io_uring || queues)) return;
  auto queue = queues ? queues() : make_uring_queue(kLoopReadPieces);
  if (!queue || (*queue)->fd() < 0) return;
  loop_read_ = std::make_unique<LoopRead>(*std::move(queue));
  auto watch = options.watch(loop_read_->fd(), [this] { on_readable(); });
  if (watch) {
    watch_ = *std::move(watch);
    return;
  }
  PLEXRL_LOG(kWarning, "disk tier '%s': small reads are slower: %s", options.directory.c_str(),
             watch.error().to_string().c_str());
  loop_read_.reset();
}

// ---- calls ----

FileBlobStore::Job FileBlobStore::new_job(Verb verb, BlobRequest request, Done done) {
  PLEXRL_CHECK(request.blob, "a blob has a number");
  if (verb != Verb::kRemove)
    PLEXRL_CHECK(request.bytes > 0 && request.bytes <= kMaxBlobBytes && request.memory,
                 "a blob has bytes, and a place for them");
  const TransferId id{++last_transfer_};
  auto control = std::make_shared<TransferControl>();
  callers_->under_way.emplace(id, control);
  return {verb, id, std::move(request), std::move(done), std::move(control)};
}

void FileBlobStore::hand_over(Line& line, Job job) {
  {
    const std::lock_guard lock(line.mutex);
    line.jobs.push_back(std::move(job));
  }
  line.wanted.notify_one();
}

TransferId FileBlobStore::write(BlobRequest request, Done done) {
  Job job = new_job(Verb::kWrite, std::move(request), std::move(done));
  const TransferId id = job.id;
  hand_over(writes_, std::move(job));
  return id;
}

TransferId FileBlobStore::read(BlobRequest request, Done done) {
  held_reads_.push_back(new_job(Verb::kRead, std::move(request), std::move(done)));
  const TransferId id = held_reads_.back().id;
  start_reads();
  return id;
}

void FileBlobStore::remove(BlobId blob, Done done) {
  hand_over(writes_, new_job(Verb::kRemove, {blob, 0, number(blob), nullptr}, std::move(done)));
}

// ---- reads on the caller's thread ----

// One at a time, in their order: behind what is read here all wait, behind what the thread reads
// they are the thread's too.
void FileBlobStore::start_reads() {
  while (!held_reads_.empty() && (loop_read_ == nullptr || !loop_read_->busy())) {
    Job job = std::move(held_reads_.front());
    held_reads_.pop_front();
    if (read_here(job)) continue;
    ++callers_->thread_reads;
    hand_over(reads_, std::move(job));
  }
}

bool FileBlobStore::read_here(Job& job) {
  if (loop_read_ == nullptr || callers_->thread_reads > 0 || job.control->cancelled) return false;
  read_here_ = std::move(job);
  if (loop_read_->begin(directory_.get(), direct_, read_here_.request, *read_here_.control))
    return true;
  job = std::move(read_here_);
  return false;
}

// The completion comes last: it may call the store, or end it.
void FileBlobStore::on_readable() {
  auto outcome = loop_read_->go_on();
  if (!outcome) return;
  Job job = std::move(read_here_);
  job.request.memory.reset();
  if (job.control->cancelled) outcome = error(Code::CANCELLED, "given up");
  callers_->under_way.erase(job.id);
  start_reads();
  job.done(outcome->within(context_of(job.request)));
}

void FileBlobStore::cancel(TransferId transfer) {
  const auto found = callers_->under_way.find(transfer);
  if (found != callers_->under_way.end()) found->second->cancelled = true;
}

std::uint64_t FileBlobStore::progress(TransferId transfer) const {
  const auto found = callers_->under_way.find(transfer);
  return found == callers_->under_way.end() ? 0 : found->second->moved.load();
}

// ---- the store's threads ----

void FileBlobStore::work(Line& line) {
  std::unique_lock lock(line.mutex);
  for (;;) {
    line.wanted.wait(lock, [&line] { return line.closing || !line.jobs.empty(); });
    if (line.closing) return;
    Job job = std::move(line.jobs.front());
    line.jobs.pop_front();
    lock.unlock();
    Status status = carry_out(line, job);
    job.request.memory.reset();
    post_([callers = callers_, id = job.id, verb = job.verb, done = std::move(job.done),
           status = std::move(status)] {
      if (!callers->open) return;
      callers->under_way.erase(id);
      callers->thread_reads -= verb == Verb::kRead ? 1 : 0;
      done(status);
    });
    lock.lock();
    if (&line != &writes_ || line.closing || !line.jobs.empty()) continue;
    lock.unlock();
    spares_.refill();
    lock.lock();
  }
}

Status FileBlobStore::carry_out(Line& line, const Job& job) {
  if (job.verb == Verb::kRemove) return unlink(job.request.blob);
  const std::string context = context_of(job.request);
  if (job.control->cancelled) return error(Code::CANCELLED, "given up").within(context);
  BlobTransfer transfer(*line.queue, directory_.get(), direct_, job.request, *job.control);
  const Status status = job.verb == Verb::kRead ? transfer.read() : transfer.write(spares_);
  return status.within(context);
}

Status FileBlobStore::unlink(BlobId blob) const {
  const std::string name = blob_file_name(blob);
  if (::unlinkat(directory_.get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  Status status = errno_error(Code::IO, errno, "remove '%s'", name.c_str());
  PLEXRL_LOG(kWarning, "disk tier: %s", status.to_string().c_str());
  return status;
}

}  // namespace plexrl::store
