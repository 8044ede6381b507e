// SPDX-License-Identifier: Apache-2.0
// add: two numbers of two digits (37+58=); the answer is the sum as three digits, lowest digit
// first (590 for 95), then ';'. The split hashes the unordered pair: 58+37 is on the side of 37+58.
// A rule on the numbers themselves, such as (131 a + 17 b) mod 10, would look at the last digits
// only and keep whole pairs of last digits out of training.
#pragma once

#include "cli/train/environment.h"

namespace plexrl::cli {

class AddEnvironment final : public Environment {
 public:
  [[nodiscard]] std::uint32_t max_answer_chars() const override { return 4; }
  [[nodiscard]] const std::string& stop_text() const override { return stop_; }
  [[nodiscard]] Problem training_problem(ProblemSource& source) override;
  [[nodiscard]] Problem held_out_problem(Random& random) override;
  [[nodiscard]] Result<std::vector<double>> score(const std::vector<Attempt>& attempts) override;

  // 0 <= a, b < 100.
  [[nodiscard]] static Problem problem(std::uint32_t a, std::uint32_t b);
  [[nodiscard]] static bool held_out(std::uint32_t a, std::uint32_t b);

 private:
  std::string stop_ = ";";
};

}  // namespace plexrl::cli
