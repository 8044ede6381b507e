// SPDX-License-Identifier: Apache-2.0
// countdown: some numbers and a target; the answer is an expression of + - * / that uses each
// number exactly once and equals the target. Every problem has a solution: it is made from one.
// Reward: 1 for a solution, 0.1 for an expression of just these numbers with another value, else 0.
// The task is that of TinyZero (Pan et al. 2025); problems and wording are our own. The split
// hashes the numbers in order of size and the target.
#pragma once

#include "cli/train/environment.h"

namespace plexrl::cli {

class CountdownEnvironment final : public Environment {
 public:
  static constexpr std::uint32_t kFewest = 2;
  static constexpr std::uint32_t kMost = 6;

  // "countdown": three or four numbers; "countdown:N": N of them, 2 to 6. INVALID_ARGUMENT: another
  // N.
  [[nodiscard]] static Result<std::unique_ptr<Environment>> open(const std::string& name);
  CountdownEnvironment(std::uint32_t fewest, std::uint32_t most) : fewest_(fewest), most_(most) {}

  [[nodiscard]] std::uint32_t max_answer_chars() const override { return 64; }
  [[nodiscard]] const std::string& stop_text() const override { return stop_; }
  [[nodiscard]] Problem training_problem(ProblemSource& source) override;
  [[nodiscard]] Problem held_out_problem(Random& random) override;
  [[nodiscard]] Result<std::vector<double>> score(const std::vector<Attempt>& attempts) override;

  // What counts of a completion: what stands in the last <answer></answer>; without one all of it,
  // if the model ended it.
  [[nodiscard]] static double reward(const Attempt& attempt);

 private:
  Problem draw(Random& random, bool held_out) const;

  std::uint32_t fewest_;
  std::uint32_t most_;
  std::string stop_ = "\n";
};

}  // namespace plexrl::cli
