// SPDX-License-Identifier: Apache-2.0
#include "store/write_queue.h"

#include <utility>

#include "base/check.h"

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
    if (Status why = blocked_by(shared_->blocked, *batch); !why.ok()) {
      block(shared_->blocked, *batch, why);
      return report(ticket, std::move(why));
    }
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
  shared_->blocked.clear();
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
      if (telling_.empty()) {
        shared_->blocked.clear();
        shared_->failure = {};
      }
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
  Outcome outcome = make_durable(group);
  lock.lock();
  shared_->busy = false;
  for (std::size_t i = 0; i < group.size(); ++i)
    report(group[i].ticket, std::move(outcome.statuses[i]));
  shared_->blocked.merge(outcome.blocked);
  if (!outcome.failure.ok()) shared_->failure = outcome.failure;
  fail_waiting();
  shared_->changed.notify_all();
  return true;
}

WriteQueue::Outcome WriteQueue::make_durable(const std::vector<Entry>& group) const {
  std::vector<BatchPtr> batches;
  for (const Entry& entry : group) batches.push_back(entry.batch);
  Status status = below_.apply(batches);
  if (!status.ok() && group.size() > 1) return one_by_one(group);
  Outcome outcome;
  if (!status.ok()) block(outcome.blocked, *group.front().batch, status);
  outcome.statuses.assign(group.size(), std::move(status));
  return outcome;
}

// A disk that took all of them and could not say so takes them once more.
WriteQueue::Outcome WriteQueue::one_by_one(const std::vector<Entry>& group) const {
  Outcome outcome;
  std::size_t refused = 0;
  for (const Entry& entry : group) {
    Status status = outcome.failure;
    if (status.ok()) status = blocked_by(outcome.blocked, *entry.batch);
    if (status.ok()) {
      status = below_.apply({&entry.batch, 1});
      if (!status.ok() && ++refused == kMostRefused) outcome.failure = status;
    }
    if (!status.ok()) block(outcome.blocked, *entry.batch, status);
    outcome.statuses.push_back(std::move(status));
  }
  return outcome;
}

Status WriteQueue::blocked_by(const Blocked& blocked, const Batch& batch) {
  for (const Batch::Change& change : batch.changes())
    if (const auto found = blocked.find(change.key); found != blocked.end()) return found->second;
  return {};
}

void WriteQueue::block(Blocked& blocked, const Batch& batch, const Status& why) {
  for (const Batch::Change& change : batch.changes()) blocked.emplace(change.key, why);
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

// What waits behind a batch that failed.
void WriteQueue::fail_waiting() const {
  if (shared_->blocked.empty() && shared_->failure.ok()) return;
  for (Entry& entry : std::exchange(shared_->waiting, {})) {
    const Batch& batch = *entry.batch;
    const Status why =
        shared_->failure.ok() ? blocked_by(shared_->blocked, batch) : shared_->failure;
    if (why.ok()) {
      shared_->waiting.push_back(std::move(entry));
      continue;
    }
    block(shared_->blocked, batch, why);
    shared_->waiting_bytes -= batch.bytes();
    report(entry.ticket, why);
  }
}

// One call of tell() is under way for all reports since the last one.
void WriteQueue::report(std::uint64_t ticket, Status status) const {
  const bool first = shared_->reports.empty();
  shared_->reports.push_back({ticket, std::move(status)});
  if (first) post_tell_();
}

}  // namespace plexrl::store
