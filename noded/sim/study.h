// SPDX-License-Identifier: Apache-2.0
// study: what `plexrl sim` reports of a workload: the run, its baselines, the offered loads, the
// sensitivity runs and the comparison, as one document. plexrl-sim(5) defines every key.
#pragma once

#include <nlohmann/json.hpp>

#include "sim/simulation.h"

namespace plexrl::sim {

struct Choice {
  std::string policy;
  std::string placement;
};

struct StudyOptions {
  Choice choice;  // empty texts: the workload's, else the default
  std::optional<std::uint64_t> seed;
  std::vector<std::string> compare;  // POLICY, PLACEMENT or POLICY/PLACEMENT
  bool sensitivity = true;
  RunObserver* observer = nullptr;  // of the headline run
  // What is being run, and how far it is, 0 to 1; false cancels.
  std::function<bool(const std::string& what, double done)> progress;
};

// Errors as simulate(), and INVALID_ARGUMENT for a name in `compare`.
[[nodiscard]] Result<nlohmann::ordered_json> study(const Workload& workload,
                                                   const StudyOptions& options);

// Names that --compare takes, and what it means. INVALID_ARGUMENT.
[[nodiscard]] Result<Choice> parse_choice(const std::string& text, const Choice& otherwise);

}  // namespace plexrl::sim
