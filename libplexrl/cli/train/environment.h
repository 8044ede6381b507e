// SPDX-License-Identifier: Apache-2.0
// Environment: problems with verifiable answers, which follow from a seed and a place in the run.
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/train/random.h"
#include "cli/train/train_options.h"

namespace plexrl::cli {

// Of a chat: {"system", "Be brief."}.
struct Message {
  std::string role;
  std::string content;
};

struct Problem {
  std::string prompt;  // where there are messages, the content of the last
  std::string answer;  // reference, without the stop text
  std::vector<Message> messages = {};
};

// What the model said to a problem.
struct Attempt {
  const Problem* problem = nullptr;
  std::string completion;  // without the stop text
  bool stopped = false;    // the model ended it; false: it was cut at the length limit
};

// Where training problems come from. Made-up ones are drawn from `random`. Those of a list are
// taken one after the other, from number `position` of the run on: every pass over the list has an
// order of its own, the permutation of (seed, `order`, pass).
struct ProblemSource {
  Random random;
  Stream order = Stream::kProblemOrder;
  std::uint64_t position = 0;
};

class EnvPool;

class Environment {
 public:
  virtual ~Environment() = default;
  // Longest answer in characters, stop text included.
  [[nodiscard]] virtual std::uint32_t max_answer_chars() const = 0;
  // What ends an answer, one token; "": what the model ends by itself.
  [[nodiscard]] virtual const std::string& stop_text() const = 0;
  [[nodiscard]] virtual Problem training_problem(ProblemSource& source) = 0;
  [[nodiscard]] virtual Problem held_out_problem(Random& random) = 0;
  [[nodiscard]] virtual bool has_held_out() const { return true; }
  // Some problem has messages, so that all are asked by the model's chat template.
  [[nodiscard]] virtual bool has_messages() const { return false; }
  // Calls `check` for each problem that was given, until one fails; made-up ones are not looked at.
  [[nodiscard]] virtual Status check_problems(const std::function<Status(const Problem&)>&) const {
    return {};
  }
  // Not nullptr: problems are episodes of these workers, and nothing below but stop_text() and
  // max_answer_chars() is asked for.
  [[nodiscard]] virtual EnvPool* workers() { return nullptr; }
  // One reward per attempt, in order.
  [[nodiscard]] virtual Result<std::vector<double>> score(const std::vector<Attempt>& attempts) = 0;
};

// 1 when the answer is complete and equal to the reference, else 0.
[[nodiscard]] double exact_match(const Attempt& attempt);
[[nodiscard]] std::vector<double> exact_matches(const std::vector<Attempt>& attempts);

// INVALID_ARGUMENT: there is no such environment, or it has no such option. Opens no file.
[[nodiscard]] Status check_environment(const TrainOptions& options);
// "sort", "add", "countdown", "countdown:N" or "jsonl:FILE", or the workers of --env-cmd.
[[nodiscard]] Result<std::unique_ptr<Environment>> make_environment(const TrainOptions& options);

}  // namespace plexrl::cli
