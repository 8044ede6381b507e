// SPDX-License-Identifier: Apache-2.0
// Lease: what a plexrl_lease is. It has a connection of its own, because a lease lives as long as
// its connection: when the process dies, the kernel closes it. Messages are read by whoever calls;
// there is no thread. A lost connection (restart of plexrld) is re-established by the next call:
// a held lease is taken up again under its number, a queued one is asked for anew.
//
// Any thread; calls are serialised, and none blocks while it holds the lock for longer than
// one exchange with the service. Not usable in a forked child.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/region.h"
#include "client/rpc_client.h"

namespace plexrl::client {

class Lease {
 public:
  enum class State : std::uint8_t { kQueued, kHeld, kOver };

  // Connects and asks for it. `timeout`: of this and of each exchange.
  [[nodiscard]] static Result<std::unique_ptr<Lease>> acquire(ConnectTarget target,
                                                              wire::LeaseAcquireT request,
                                                              Duration timeout);
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  // Gives it up; regions that are left are unmapped.
  ~Lease();

  // Until it is held and its regions are usable. TIMEOUT leaves it queued; none: waits for good.
  // LOST: the service gave the device to others meanwhile; contents of regions are as of the last
  // yield.
  [[nodiscard]] Status wait(std::optional<TimePoint> deadline);
  // Whether the holder is asked to make way, and until when. Does not block.
  [[nodiscard]] Result<bool> should_yield(TimePoint* until);
  // Regions are suspended, then the device is given up; queued again.
  [[nodiscard]] Status yield();
  [[nodiscard]] Status release();
  [[nodiscard]] Result<std::string> explain();
  [[nodiscard]] State state();
  [[nodiscard]] wire::LeaseGrantT grant();
  // Readable when should_yield or wait has something new. Belongs to the lease; -1 while the
  // connection is lost.
  [[nodiscard]] int fd();

  // NO_CAPACITY: the grant's host memory has no room. UNAVAILABLE unless held.
  [[nodiscard]] Result<Region*> create_region(
      std::uint64_t bytes, const RegionMemoryFactory& memory = make_mapped_memory);
  [[nodiscard]] Status destroy_region(Region* region);

 private:
  using Lock = std::unique_lock<std::mutex>;
  Lease(ConnectTarget target, wire::LeaseAcquireT request, Duration timeout)
      : target_(std::move(target)), request_(std::move(request)), timeout_(timeout) {}

  [[nodiscard]] Status connect(TimePoint deadline);
  [[nodiscard]] Status connected(TimePoint deadline);
  [[nodiscard]] Status ask(TimePoint deadline);
  [[nodiscard]] Status give_back(TimePoint deadline);
  [[nodiscard]] Status restore_regions(TimePoint deadline);
  [[nodiscard]] Status pump();
  void take(wire::MessageT message, std::vector<UniqueFd> fds);
  void take_grant(wire::MessageT& message);
  void suspend_regions();
  [[nodiscard]] Status granted(const wire::LeaseGrantT& grant);
  [[nodiscard]] Status send(wire::MessageT message, std::vector<UniqueFd> fds, TimePoint deadline);
  struct Answer {
    wire::MessageT message;
    std::vector<UniqueFd> fds;
  };
  [[nodiscard]] Result<Answer> call(wire::MessageT request, std::vector<UniqueFd> fds);
  [[nodiscard]] TimePoint deadline() const { return system_clock().now() + timeout_; }

  const ConnectTarget target_;
  const wire::LeaseAcquireT request_;
  const Duration timeout_;
  std::mutex mutex_;
  // Everything below is guarded by mutex_.
  std::optional<wire::Channel> channel_;  // none: lost
  TimePoint try_again_;
  std::uint64_t last_id_ = 0;
  std::uint64_t grant_id_ = 0;  // of the request that LeaseGrant answers; 0: none
  std::uint64_t watch_id_ = 0;
  std::uint64_t call_id_ = 0;  // of call()
  std::optional<Answer> answer_;
  std::map<std::uint64_t, Region*> charged_again_;  // by request
  State state_ = State::kQueued;
  Status over_;  // why it is over
  wire::LeaseGrantT grant_;
  bool asked_ = false;
  TimePoint yield_until_;
  std::vector<std::unique_ptr<Region>> regions_;
};

}  // namespace plexrl::client
