// SPDX-License-Identifier: Apache-2.0
// guarded: runs the body of a hook. An exception that leaves a hook would abort srun, slurmstepd or
// slurmctld; here it becomes a line in the log and `fault_rc`.
#pragma once

#include <exception>

extern "C" void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

namespace plexrl {

template <class Body>
int guarded(const char* hook, int fault_rc, Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& failure) {
    slurm_error("plexrl: %s: %s", hook, failure.what());
  } catch (...) {
    slurm_error("plexrl: %s: unknown exception", hook);
  }
  return fault_rc;
}

}  // namespace plexrl
