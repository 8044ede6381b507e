// SPDX-License-Identifier: Apache-2.0
// Verifier: runs the user's command once per answer. Contract (plexrl-train(1)):
//   stdin   one line {"prompt","answer","completion","stopped"}, and "messages" if the problem has
//           some
//   stdout  nothing, or a number: the reward; at most 64 KiB
//   exit 0  verified: the number, 1 without one.   exit 1  wrong: reward 0.
// Anything else (another exit status, a signal, the time limit, too much or unreadable output) is a
// broken check: it counts as reward 0 and is reported; when every check of a batch is broken the
// run stops, because training on it would be training on nothing. The command runs in a process
// group of its own that is killed when it is over. Its stderr is ours.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/train/environment.h"

namespace plexrl::cli {

class Verifier {
 public:
  // `jobs` commands at a time.
  Verifier(std::string command, double timeout_s, std::uint32_t jobs);

  // NOT_FOUND when the shell knows no such command, which is better said once at the start than for
  // every answer. Only a first word that the shell takes as it is written is looked for.
  [[nodiscard]] Status find() const;
  // The reward of one attempt, or why there is none. Any thread.
  [[nodiscard]] Result<double> verify(const Attempt& attempt) const;
  // Rewards in order. Reports broken checks on stderr, one line per batch.
  [[nodiscard]] Result<std::vector<double>> score(const std::vector<Attempt>& attempts) const;

 private:
  std::string command_;
  double timeout_s_;
  std::uint32_t jobs_;
};

}  // namespace plexrl::cli
