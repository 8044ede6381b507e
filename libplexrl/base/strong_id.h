// SPDX-License-Identifier: Apache-2.0
// StrongId<Tag>: a 64-bit number that cannot be mixed up with another kind of number.
// Zero is "none". Ordered, so that containers keyed by ids iterate the same way in every run.
#pragma once

#include <compare>
#include <cstdint>

namespace plexrl {

template <class Tag>
struct StrongId {
  std::uint64_t value = 0;
  [[nodiscard]] explicit operator bool() const noexcept { return value != 0; }
  friend auto operator<=>(const StrongId&, const StrongId&) = default;
};

using TenantId = StrongId<struct TenantTag>;    // one job's stake in a device group
using ModelId = StrongId<struct ModelTag>;      // node-wide; never reused within a daemon's store
using OpId = StrongId<struct OpTag>;            // node-wide, in order of acceptance
using EngineId = StrongId<struct EngineTag>;    // one engine process slot
using SessionId = StrongId<struct SessionTag>;  // one client connection
using BlobId = StrongId<struct BlobTag>;        // a segment in the disk tier; never used twice

}  // namespace plexrl
