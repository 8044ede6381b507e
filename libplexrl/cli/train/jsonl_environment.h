// SPDX-License-Identifier: Apache-2.0
// jsonl:FILE: one JSON object per line with "prompt" and, for exact match, "answer"; other fields
// are ignored. In place of a prompt there may be "messages", [{"role":"user","content":"..."}].
// With a verifier command the reward is what the command says (verifier.h). One prompt in ten is
// held out, chosen by a hash of the prompt or messages, so equal ones are on the same side. The
// others are taken in passes without repetition.
#pragma once

#include <optional>

#include "cli/train/environment.h"
#include "cli/train/verifier.h"

namespace plexrl::cli {

class JsonlEnvironment final : public Environment {
 public:
  // INVALID_ARGUMENT with file:line for a line that is not such an object; NOT_FOUND, IO, TOO_LARGE
  // for the file itself. Empty lines are skipped.
  [[nodiscard]] static Result<std::unique_ptr<Environment>> open(const TrainOptions& options);

  [[nodiscard]] std::uint32_t max_answer_chars() const override { return max_answer_chars_; }
  [[nodiscard]] const std::string& stop_text() const override { return stop_; }
  [[nodiscard]] Problem training_problem(ProblemSource& source) override;
  [[nodiscard]] Problem held_out_problem(Random& random) override;
  [[nodiscard]] Status check_problems(
      const std::function<Status(const Problem&)>& check) const override;
  [[nodiscard]] bool has_held_out() const override { return !held_out_.empty(); }
  [[nodiscard]] bool has_messages() const override { return has_messages_; }
  [[nodiscard]] Result<std::vector<double>> score(const std::vector<Attempt>& attempts) override;

 private:
  [[nodiscard]] Status read(const std::string& path);
  [[nodiscard]] Status add_line(const std::string& line);

  // Of one pass over the training problems; kept, as neighbours are of one pass nearly always.
  struct Pass {
    Stream order;
    std::uint64_t number;
    std::vector<std::uint32_t> problems;
  };

  std::vector<Problem> training_;
  std::vector<Problem> held_out_;
  std::optional<Pass> pass_;
  std::uint64_t seed_ = 0;
  std::string stop_;
  std::uint32_t max_answer_chars_ = 0;
  bool has_messages_ = false;
  std::optional<Verifier> verifier_;
};

}  // namespace plexrl::cli
