// SPDX-License-Identifier: Apache-2.0
#include "store/write_queue.h"

#include <utility>

#include "base/check.h"
#include "store/store_limits.h"

namespace plexrl::store {

WriteQueue::WriteQueue(StateStore& below, Post post, std::function<void()> work)
    : below_(below),
      work_(std::move(work)),
      post_tell_([this, post = std::move(post), alive = std::weak_ptr<int>(alive_)] {
        post([this, alive] {
          if (!alive.expired()) tell();
        });
      }) {}

WriteQueue::~WriteQueue() { (void)drained(); }

// ---- loop ----

void WriteQueue::write(BatchPtr batch, Done done) {
  const std::uint64_t ticket = ++last_ticket_;
  if (done) dones_.emplace(ticket, std::move(done));
  {
    const Lock lock(shared_->mutex);
    if (!shared_->failure.ok()) return report(ticket, shared_->failure);
    shared_->waiting_bytes += batch->bytes();
    shared_->waiting.push_back({ticket, std::move(batch)});
  }
  shared_->changed.notify_all();
  if (work_) work_();
}

void WriteQueue::settle() {
  do {
    drained().unlock();
    tell();
  } while (!idle());
}

void WriteQueue::abandon() {
  const Lock lock = drained();
  dones_.clear();
  telling_.clear();
  shared_->reports.clear();
  shared_->failure = {};
}

bool WriteQueue::idle() const {
  const Lock lock(shared_->mutex);
  return shared_->waiting.empty() && !shared_->busy && shared_->reports.empty() && telling_.empty();
}

bool WriteQueue::crowded() const {
  const Lock lock(shared_->mutex);
  return shared_->waiting_bytes >= kCrowdedBytes || shared_->waiting.size() >= kCrowdedBatches;
}

Status WriteQueue::apply(std::span<const BatchPtr> batches) {
  const Lock lock = drained();
  return below_.apply(batches);
}

Result<std::string> WriteQueue::get(std::string_view table, std::uint64_t key,
                                    std::uint64_t subkey) const {
  const Lock lock = drained();
  return below_.get(table, key, subkey);
}

Status WriteQueue::scan(std::string_view table, const Visitor& visit) const {
  const Lock lock = drained();
  return below_.scan(table, visit);
}

// Nothing waits and nobody is in below_, for as long as the lock is held.
WriteQueue::Lock WriteQueue::drained() const {
  Lock lock(shared_->mutex);
  while (shared_->busy || !shared_->waiting.empty()) {
    if (shared_->busy) {
      shared_->changed.wait(lock);
    } else {
      (void)write_group(lock);
    }
  }
  return lock;
}

// Writes of those who are told fail like those before them, until all have been told: only then
// does everybody know from where on to write again.
void WriteQueue::tell() {
  for (;;) {
    {
      const Lock lock(shared_->mutex);
      for (Report& report : shared_->reports) telling_.push_back(std::move(report));
      shared_->reports.clear();
      if (telling_.empty()) shared_->failure = {};
    }
    if (telling_.empty()) return;
    const Report next = std::move(telling_.front());
    telling_.pop_front();
    auto done = dones_.extract(next.ticket);
    if (!done.empty()) done.mapped()(next.status);
  }
}

void WriteQueue::drop() {
  const Lock lock(shared_->mutex);
  PLEXRL_CHECK(!shared_->busy, "a transaction under way is not dropped");
  for (const Entry& entry : shared_->waiting) dones_.erase(entry.ticket);
  shared_->waiting.clear();
  shared_->waiting_bytes = 0;
}

// ---- the writer ----

bool WriteQueue::wait_for_work() {
  Lock lock(shared_->mutex);
  shared_->changed.wait(
      lock, [this] { return shared_->stopping || (!shared_->waiting.empty() && !shared_->busy); });
  return !shared_->waiting.empty();
}

void WriteQueue::stop() {
  {
    const Lock lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
}

bool WriteQueue::write_group() {
  Lock lock(shared_->mutex);
  return write_group(lock);
}

bool WriteQueue::write_group(Lock& lock) const {
  shared_->changed.wait(lock, [this] { return !shared_->busy; });
  if (shared_->waiting.empty()) return false;
  const std::vector<Entry> group = take_group();
  shared_->busy = true;
  lock.unlock();
  std::vector<BatchPtr> good;
  std::vector<Status> checked;
  for (const Entry& entry : group) {
    checked.push_back(check_batch(*entry.batch));
    if (checked.back().ok()) good.push_back(entry.batch);
  }
  const Status status = good.empty() ? Status() : below_.apply(good);
  lock.lock();
  shared_->busy = false;
  for (std::size_t i = 0; i < group.size(); ++i)
    report(group[i].ticket, checked[i].ok() ? status : checked[i]);
  if (!status.ok()) fail_waiting(status);
  shared_->changed.notify_all();
  return true;
}

std::vector<WriteQueue::Entry> WriteQueue::take_group() const {
  std::vector<Entry> group;
  std::uint64_t bytes = 0;
  while (!shared_->waiting.empty() && (group.empty() || bytes < kGroupBytes)) {
    bytes += shared_->waiting.front().batch->bytes();
    group.push_back(std::move(shared_->waiting.front()));
    shared_->waiting.pop_front();
  }
  shared_->waiting_bytes -= bytes;
  return group;
}

void WriteQueue::fail_waiting(const Status& why) const {
  shared_->failure = why;
  for (const Entry& entry : shared_->waiting) report(entry.ticket, why);
  shared_->waiting.clear();
  shared_->waiting_bytes = 0;
}

// One call of tell() is under way for all reports since the last one.
void WriteQueue::report(std::uint64_t ticket, Status status) const {
  const bool first = shared_->reports.empty();
  shared_->reports.push_back({ticket, std::move(status)});
  if (first) post_tell_();
}

}  // namespace plexrl::store
