// SPDX-License-Identifier: Apache-2.0
// sbatch, salloc and srun: keeps apart what was given to the job that they run in.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "contexts.h"
#include "slurm/marked_env.h"

namespace plexrl::spank {
namespace {

std::vector<std::string> environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    entries.emplace_back(*entry);
  return entries;
}

std::string name_of(const std::string& entry) { return entry.substr(0, entry.find('=')); }

// Makes the process's environment what `wanted` says; only removal and addition of names is needed.
void apply(const std::vector<std::string>& before, const std::vector<std::string>& wanted) {
  std::vector<std::string> kept;
  kept.reserve(wanted.size());
  for (const std::string& entry : wanted) kept.push_back(name_of(entry));
  for (const std::string& entry : before) {
    const std::string name = name_of(entry);
    bool found = false;
    for (const std::string& other : kept) found = found || other == name;
    if (!found) ::unsetenv(name.c_str());
  }
  for (const std::string& entry : wanted)
    if (const std::size_t equals = entry.find('='); equals != std::string::npos)
      ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
}

// A batch script has the marker; salloc's shell was never started by slurmstepd, but has Slurm's
// own copy of the option.
bool inside_pool_job(const std::vector<std::string>& entries) {
  for (const std::string& entry : entries) {
    const std::string name = name_of(entry);
    if (name == slurm::kMarker || name.rfind(slurm::kOptionVariable, 0) == 0) return true;
  }
  return false;
}

}  // namespace

// srun inside a job makes a step: it must not ask for what the job no longer has, and a count-only
// GRES would make parallel steps wait for each other. Everything else makes a new job, which must
// not inherit what was given to this one. Runs before the command reads its option variables.
void client_init(spank_context_t context) {
  const std::vector<std::string> before = environment();
  if (!inside_pool_job(before)) return;
  std::vector<std::string> wanted = before;
  if (context == S_CTX_LOCAL && std::getenv("SLURM_JOB_ID") != nullptr) {
    slurm::strip_gpu_variables(&wanted);
    slurm::add_step_gres(&wanted);
  } else {
    slurm::strip_marked(&wanted);
  }
  apply(before, wanted);
}

}  // namespace plexrl::spank
