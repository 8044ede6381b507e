// SPDX-License-Identifier: Apache-2.0
// sort: six random digits and '>' (402917>); the answer is the digits ascending (012479), then ';'.
// The split hashes the sorted digits: all orders of one multiset are on the same side, so no
// held-out answer was ever seen in training.
#pragma once

#include "cli/train/environment.h"

namespace plexrl::cli {

class SortEnvironment final : public Environment {
 public:
  [[nodiscard]] std::uint32_t max_answer_chars() const override { return 7; }
  [[nodiscard]] const std::string& stop_text() const override { return stop_; }
  [[nodiscard]] Problem training_problem(ProblemSource& source) override;
  [[nodiscard]] Problem held_out_problem(Random& random) override;
  [[nodiscard]] Result<std::vector<double>> score(const std::vector<Attempt>& attempts) override;

  [[nodiscard]] static bool held_out(const Problem& problem);

 private:
  std::string stop_ = ";";
};

}  // namespace plexrl::cli
