// SPDX-License-Identifier: Apache-2.0
#include "slurm/modify.h"

#include "slurm/gres_list.h"

namespace plexrl::slurm {
namespace {

Status refuse(const std::string& pool, const char* what) {
  return error(Code::PERMISSION,
               "%s of a job of pool '%s' cannot be changed: cancel the job and submit it again",
               what, pool.c_str());
}

Status check_partitions(const ModifyRequest& request, const std::string& pool,
                        const config::SiteConfig& site) {
  for (const std::string& partition : gres_items(request.partition)) {
    const config::PoolEntry* target = site.pool_of_partition(partition);
    if (!pool.empty() && (target == nullptr || target->name != pool))
      return refuse(pool, "the partition");
    if (pool.empty() && target != nullptr)
      return error(Code::PERMISSION,
                   "partition '%s' serves the jobs of pool '%s' only: submit a job with "
                   "--plexrl-pool=%s instead",
                   partition.c_str(), target->name.c_str(), target->name.c_str());
  }
  return {};
}

}  // namespace

Status check_modify(const ModifyRequest& request, const std::string& pool,
                    const config::SiteConfig& site) {
  if (request.privileged) return {};
  const std::string* fields[] = {&request.tres_per_node, &request.tres_per_job,
                                 &request.tres_per_socket, &request.tres_per_task};
  for (const std::string* field : fields) {
    if (names_plexrl(*field))
      return error(Code::PERMISSION,
                   "gres/plexrl and gres/plexrl_mem are set by the site: submit a job with "
                   "--plexrl-pool=NAME instead");
    if (!pool.empty() && !field->empty()) return refuse(pool, "the GRES request");
  }
  PLEXRL_TRY(check_partitions(request, pool, site));
  if (pool.empty()) return {};
  if (request.features) return refuse(pool, "the features");
  if (request.sharing) return refuse(pool, "the sharing of nodes");
  if (request.whole_memory) return refuse(pool, "the memory, to all of the node,");
  if (request.min_nodes.value_or(1) > 1 || request.max_nodes.value_or(1) > 1)
    return refuse(pool, "the number of nodes");
  return {};
}

}  // namespace plexrl::slurm
