// SPDX-License-Identifier: Apache-2.0
#include "description.h"

#include <algorithm>

#include "slurm/options.h"

namespace plexrl::job_submit {
namespace {

void put(char** field, const std::string& value) {
  if (!value.empty()) *field = ::strdup(value.c_str());
}

template <class Request>
void put_requests(const Request& request, job_desc_msg_t* d) {
  put(&d->partition, request.partition);
  put(&d->tres_per_node, request.tres_per_node);
  put(&d->tres_per_job, request.tres_per_job);
  put(&d->tres_per_socket, request.tres_per_socket);
  put(&d->tres_per_task, request.tres_per_task);
  if (request.whole_memory) d->pn_min_memory = 0;
  d->min_nodes = request.min_nodes.value_or(NO_VAL);
  d->max_nodes = request.max_nodes.value_or(NO_VAL);
}

}  // namespace

Description::Description(const slurm::JobRequest& request) : Description() {
  std::vector<std::string> entries = {"OTHER=1"};
  for (const slurm::OptionRow& row : slurm::option_table()) {
    if (!request.option(row.option)) continue;
    std::string name = row.name;
    std::replace(name.begin(), name.end(), '-', '_');
    entries.push_back("_SLURM_SPANK_OPTION_plexrl_" + name + "=" + *request.option(row.option));
  }
  options(entries);
  put(&d.name, request.name);
  put_requests(request, &d);
  if (request.gpu_hints) put(&d.tres_bind, "gres:gpu:closest");
  if (request.exclusive) d.shared = JOB_SHARED_NONE;
  if (request.core_spec) d.core_spec = 1;
  d.min_cpus = request.min_cpus.value_or(NO_VAL);
  if (request.picks_nodes) put(&d.features, "any");
  if (request.het_component) d.het_job_offset = 0;
  if (!request.has_script) return;
  put(&d.script, "#!/bin/sh\n");
  environment(request.environment);
}

Description::Description(const slurm::ModifyRequest& request) : Description() {
  put_requests(request, &d);
  if (request.features) put(&d.features, "any");
  if (request.sharing) d.shared = JOB_SHARED_OK;
}

}  // namespace plexrl::job_submit
