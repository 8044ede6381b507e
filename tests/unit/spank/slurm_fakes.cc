// SPDX-License-Identifier: Apache-2.0
// What slurmctld brings: its allocator is malloc, its log goes nowhere, a job record is the
// Description that the job was submitted with, and two nodes have the features of pool rl.
#include "slurm_fakes.h"

#include <cstdlib>
#include <cstring>

#include "description.h"

using plexrl::job_submit::Description;

namespace {

struct Feature {
  std::uint32_t magic;
  const char* name;
  std::int64_t* first_node;  // stands for a bitmap
};

std::int64_t first_node = 0;
Feature features[] = {{1, "plexrl_rl_for_training", &first_node},
                      {1, "plexrl_rl_for_rollout", &first_node}};

}  // namespace

namespace plexrl::job_submit {
void fake_active_features(bool active) { first_node = active ? 0 : -1; }
}  // namespace plexrl::job_submit

extern "C" {

List active_feature_list = reinterpret_cast<List>(features);

int list_find_feature(void* feature, void* name) {
  return std::strcmp(static_cast<Feature*>(feature)->name, static_cast<char*>(name)) == 0;
}
void* slurm_list_find_first(List list, ListFindF find, void* key) {
  for (Feature& feature : features)
    if (list == active_feature_list && find(&feature, key) != 0) return &feature;
  return nullptr;
}
int64_t slurm_bit_ffs(void* bitmap) { return *static_cast<std::int64_t*>(bitmap); }

void* slurm_xcalloc(size_t count, size_t size, bool, bool, const char*, int, const char*) {
  return std::calloc(count, size);
}
char* slurm_xstrdup(const char* text) { return ::strdup(text); }
void slurm_xfree(void** pointer) {
  std::free(*pointer);
  *pointer = nullptr;
}
void slurm_info(const char*, ...) {}
void slurm_error(const char*, ...) {}

// As slurmctld's: the caller owns the copy, whose environment is one block.
job_desc_msg_t* copy_job_record_to_job_desc(job_record* job) {
  const job_desc_msg_t& held = reinterpret_cast<const Description*>(job)->d;
  auto* const copy = new job_desc_msg_t{};
  Description::fill(&copy->spank_job_env, &copy->spank_job_env_size,
                    {held.spank_job_env, held.spank_job_env + held.spank_job_env_size});
  copy->environment = static_cast<char**>(std::calloc(2, sizeof(char*)));
  copy->environment[0] = static_cast<char*>(std::calloc(8, 1));
  copy->environment[1] = copy->environment[0] + 4;
  copy->env_size = 2;
  return copy;
}

void slurm_free_job_desc_msg(job_desc_msg_t* description) {
  for (std::uint32_t i = 0; i < description->spank_job_env_size; ++i)
    std::free(description->spank_job_env[i]);
  std::free(description->spank_job_env);
  delete description;
}
}
