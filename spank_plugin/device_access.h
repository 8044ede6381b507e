// SPDX-License-Identifier: Apache-2.0
// DeviceAccess: the users of this node's lease jobs may open its device files, nobody else's jobs.
// A lease job is one that trains nothing in the service (--plexrl-train=none): it may bring its own
// engine. Several jobs of a user share the user's entry; the last one takes it away. Root.
#pragma once

#include <string>

#include "base/clock.h"
#include "grant_file.h"

namespace plexrl::spank {

// Whether a job with this grant may open the device files.
[[nodiscard]] bool is_lease_job(const NotedJob& job);

// After the job was noted. No pattern, or no lease job: nothing to do.
[[nodiscard]] Status open_devices(const GrantFiles& files, const NotedJob& job,
                                  const std::string& pattern, TimePoint deadline);
// After its note is forgotten.
[[nodiscard]] Status close_devices(const GrantFiles& files, const NotedJob& job,
                                   const std::string& pattern, TimePoint deadline);

}  // namespace plexrl::spank
