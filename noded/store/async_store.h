// SPDX-License-Identifier: Apache-2.0
// AsyncStore: a StateStore that the loop does not wait for. WriteQueue is the one there is.
#pragma once

#include <functional>

#include "store/state_store.h"

namespace plexrl::store {

// A StateStore whose changes need not be waited for. The calls of StateStore wait for everything
// that was written before them. For the loop thread.
class AsyncStore : public StateStore {
 public:
  // Called once, from the loop (or from settle()), never from inside write(). It may write.
  using Done = std::function<void(const Status&)>;

  // Changes reach the disk in the order of the calls; ok: they are durable, and so is everything
  // that was written before and not reported as failed. When a batch fails, those written behind
  // it that share a key with it, whatever the table, fail too, up to the end of that report: what
  // is on disk of a key has no holes, and who writes the failed ones again, in their order, keeps
  // it so. Batches of other keys go on. `done` may be empty.
  virtual void write(BatchPtr batch, Done done) = 0;
  // Waits for the disk and calls what is to be called, here and now; also for what those called
  // write.
  virtual void settle() = 0;
  // The changes go on, but nobody who wrote before this call hears of them: the callers are going.
  virtual void abandon() = 0;
  // Nothing is under way.
  [[nodiscard]] virtual bool idle() const = 0;
  // So much is under way that no new work should be taken on: the queue is bounded by those who
  // ask. What follows from work that was accepted is always taken.
  [[nodiscard]] virtual bool crowded() const = 0;
};

}  // namespace plexrl::store
