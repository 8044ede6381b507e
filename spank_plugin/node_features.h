// SPDX-License-Identifier: Apache-2.0
// What slurmctld knows of node features. Within a call of job_submit, where slurmctld holds the
// lock of its nodes.
#pragma once

#include <string>

namespace plexrl::job_submit {

// Whether any node has the feature active now. False as well where slurmctld cannot be asked.
[[nodiscard]] bool is_active_feature(const std::string& name);

}  // namespace plexrl::job_submit
