// SPDX-License-Identifier: Apache-2.0
// What is said of a JOB on the command line that Slurm would take and plexrld does not.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace plexrl::cli {

// For CLI::Option::check(), before that of the range; empty: nothing to say.
[[nodiscard]] inline std::string job_argument_problem(const std::string& text) {
  const auto digits = [](const std::string& part) {
    return !part.empty() && std::all_of(part.begin(), part.end(),
                                        [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  const auto bar = text.find('_');
  if (bar == text.npos || !digits(text.substr(0, bar)) || !digits(text.substr(bar + 1))) return {};
  return text + " is a task of an array: write its own job id, as 'squeue -o \"%i %A\"' says it";
}

}  // namespace plexrl::cli
