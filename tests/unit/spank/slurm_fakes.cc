// SPDX-License-Identifier: Apache-2.0
// What slurmctld brings: its allocator is malloc, its log goes nowhere, and a job record is the
// Description that the job was submitted with.
#include <cstdlib>
#include <cstring>

#include "description.h"

using plexrl::job_submit::Description;

extern "C" {

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
