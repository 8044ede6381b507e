// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace plexrl::job_submit {

// Whether any node has the features of pool rl active.
void fake_active_features(bool active);

}  // namespace plexrl::job_submit
