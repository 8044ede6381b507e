// SPDX-License-Identifier: Apache-2.0
#include "node_features.h"

#include <cstdint>

#include "slurmctld_api.h"

namespace plexrl::job_submit {
namespace {

// An entry of slurmctld's list; the node bitmap is allocated with the entry. No installed header
// has it, and it was tested with 22.05 only.
struct NodeFeature {
  std::uint32_t magic;
  char* name;
  void* nodes;
};
constexpr bool kTested = SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 2, 0);

bool can_ask() {
  return kTested && &active_feature_list != nullptr && list_find_feature != nullptr &&
         slurm_list_find_first != nullptr && slurm_bit_ffs != nullptr;
}

}  // namespace

bool is_active_feature(const std::string& name) {
  if (!can_ask() || active_feature_list == nullptr) return false;
  std::string key = name;  // the search takes it as a pointer to what may be changed
  const auto* const found = static_cast<const NodeFeature*>(
      slurm_list_find_first(active_feature_list, list_find_feature, key.data()));
  return found != nullptr && found->nodes != nullptr && slurm_bit_ffs(found->nodes) >= 0;
}

}  // namespace plexrl::job_submit
