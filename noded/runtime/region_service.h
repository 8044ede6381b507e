// SPDX-License-Identifier: Apache-2.0
// RegionService: host memory of lease holders, one sealed memfd per region, charged to the job's
// grant for as long as the connection lasts that asked for it. plexrld never maps or keeps them.
// Loop thread only.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/strong_id.h"
#include "base/unique_fd.h"
#include "plexrl_generated.h"
#include "state/state_manager.h"

namespace plexrl::runtime {

class RegionService {
 public:
  static constexpr std::size_t kMaxPerSession = 4096;

  explicit RegionService(state::StateManager& state) : state_(state) {}

  struct Made {
    wire::RegionInfoT info;
    UniqueFd fd;  // for the client; none when it brought its own
  };
  // Whole pages. NO_CAPACITY: the grant has no room; BUSY: too many regions. `given`: a region of
  // before a restart; PERMISSION when it is not a memfd of that size that is sealed as ours are.
  [[nodiscard]] Result<Made> create(TenantId tenant, SessionId session, std::uint64_t bytes,
                                    UniqueFd given);
  [[nodiscard]] Status destroy(SessionId session, std::uint64_t region);
  void session_closed(SessionId session);

 private:
  struct Region {
    TenantId tenant;
    std::uint64_t bytes = 0;
  };
  using Key = std::pair<SessionId, std::uint64_t>;
  void refund(const Region& region) { state_.refund(region.tenant, region.bytes); }

  state::StateManager& state_;
  std::map<Key, Region> regions_;
  std::uint64_t last_ = 0;
};

}  // namespace plexrl::runtime
