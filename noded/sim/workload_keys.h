// SPDX-License-Identifier: Apache-2.0
// The one table of keys of a workload file: the reader, sensitivity runs and plexrl-sim(5) go by
// it. Defaults are those of the structures in workload.h.
#pragma once

#include <span>
#include <variant>

#include "sim/workload.h"

namespace plexrl::sim {

template <class Section>
struct WorkloadKey {
  using Field = std::variant<std::string Section::*, std::uint32_t Section::*, double Section::*,
                             Distribution Section::*, std::vector<double> Section::*>;
  const char* name;
  Field field;
  bool required;
  double min;  // of numbers
  double max;
  const char* doc;  // one sentence, plain text
};

// In the order of the manual.
[[nodiscard]] std::span<const WorkloadKey<Workload>> workload_keys();
[[nodiscard]] std::span<const WorkloadKey<PoolSpec>> pool_keys();
[[nodiscard]] std::span<const WorkloadKey<JobSpec>> job_keys();
[[nodiscard]] std::span<const WorkloadKey<Published>> published_keys();
[[nodiscard]] std::span<const WorkloadKey<Sensitivity>> sensitivity_keys();

// Sets one number for a sensitivity run: "quantum_s", "pools.NAME.KEY", "jobs.NAME.KEY", the name
// "*" for all. `factor`: the file's value times `value`. A distribution is scaled, or becomes the
// constant. INVALID_ARGUMENT: no such key, or not a number.
[[nodiscard]] Status override_key(Workload& workload, const std::string& key, double value,
                                  bool factor);

}  // namespace plexrl::sim
