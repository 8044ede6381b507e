// SPDX-License-Identifier: Apache-2.0
#include "config/pool_features.h"

namespace plexrl::config {

const char* job_kind_name(JobKind kind) {
  return kind == JobKind::kRollout ? "rollout" : "training";
}

std::string pool_feature(std::string_view pool, JobKind kind) {
  return "plexrl_" + std::string(pool) + "_for_" + job_kind_name(kind);
}

std::string job_kind_mark(JobKind kind) {
  return "plexrl: mostly " + std::string(job_kind_name(kind));
}

}  // namespace plexrl::config
