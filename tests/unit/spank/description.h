// SPDX-License-Identifier: Apache-2.0
// A job description as slurmctld gets it: owned strings, "not given" everywhere else. From malloc,
// which stands for Slurm's allocator (slurm_fakes.cc).
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "slurm/modify.h"
#include "slurm/rewrite.h"
#include "slurmctld_api.h"

namespace plexrl::job_submit {

class Description {
 public:
  Description() {
    d.shared = d.ntasks_per_tres = d.core_spec = NO_VAL16;
    d.pn_min_memory = NO_VAL64;
    d.min_nodes = d.max_nodes = d.het_job_offset = d.user_id = NO_VAL;
  }
  explicit Description(const slurm::JobRequest& request);
  explicit Description(const slurm::ModifyRequest& request);
  ~Description() {
    free_array(&d.spank_job_env, d.spank_job_env_size);
    free_array(&d.environment, d.env_size);
    for (char** field :
         {&d.name, &d.partition, &d.tres_per_node, &d.tres_per_job, &d.tres_per_socket,
          &d.tres_per_task, &d.script, &d.cpus_per_tres, &d.features, &d.tres_bind})
      std::free(*field);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  static void fill(char*** array, std::uint32_t* size, const std::vector<std::string>& words) {
    *array = static_cast<char**>(std::calloc(words.size() + 1, sizeof(char*)));
    for (const std::string& word : words) (*array)[(*size)++] = ::strdup(word.c_str());
  }
  void options(const std::vector<std::string>& words) {
    fill(&d.spank_job_env, &d.spank_job_env_size, words);
  }
  void environment(const std::vector<std::string>& words) {
    fill(&d.environment, &d.env_size, words);
  }
  std::vector<std::string> environment() const {
    return {d.environment, d.environment + d.env_size};
  }

  job_desc_msg_t d{};

 private:
  static void free_array(char*** array, std::uint32_t size) {
    for (std::uint32_t i = 0; i < size; ++i) std::free((*array)[i]);
    std::free(*array);
  }
};

}  // namespace plexrl::job_submit
