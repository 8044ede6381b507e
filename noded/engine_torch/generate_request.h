// SPDX-License-Identifier: Apache-2.0
// GenerateRequest: the rows of one generate op: prompts, what was drawn, where each row is, and the
// rules by which it goes on. It knows nothing of other requests and computes nothing: a
// BatchDecoder asks it which tokens come next and hands it what was drawn. Its rows draw the same
// tokens in any batch, and it may go from one batch to another at any token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine_torch/op_run.h"
#include "engine_torch/sampling.h"
#include "engine_torch/token_decoder.h"

namespace plexrl::model {

// A token to compute, and the rows that draw their next token from its state: none inside of a
// prompt, all samples of the prompt at its end.
struct PlannedToken {
  TokenAt at;
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
};

class GenerateRequest {
 public:
  // Checks all of `args`, as make_op_run promises. The state and the memory of `env.kv` are
  // borrowed; the caches of the rows lie there.
  [[nodiscard]] static Result<GenerateRequest> make(const OpEnv& env,
                                                    const wire::GenerateArgsT& args);

  [[nodiscard]] const ModelState& state() const noexcept { return *state_; }
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  // By which a row draws, and its number there: with several requests in one op that in its own.
  [[nodiscard]] SamplingRule rule(std::uint32_t row) const noexcept {
    return {temperature_, top_p_, rows_[row].seed};
  }
  [[nodiscard]] std::uint32_t number(std::uint32_t row) const noexcept { return rows_[row].number; }
  // Positions that its longest row may reach.
  [[nodiscard]] std::int64_t positions() const noexcept { return positions_; }
  [[nodiscard]] bool has_prompts() const noexcept { return prompt_at_ < prompts_.size(); }
  [[nodiscard]] bool finished() const noexcept { return !has_prompts() && unfinished_ == 0; }
  [[nodiscard]] std::uint64_t tokens_done() const noexcept { return tokens_done_; }

  // Each appends tokens that must be computed before the next plan: the newest one of every row
  // that decodes; the next ones of the prompts, at most `limit`, each prompt once for all samples.
  void plan_rows(std::vector<PlannedToken>& plan) const;
  void plan_prompts(std::size_t limit, std::vector<PlannedToken>& plan);
  // What was planned has been computed, and its rows draw now: a prompt's cache goes to all of its
  // samples.
  void computed(const PlannedToken& token);
  // Number of the position that is drawn next: it selects the random number.
  [[nodiscard]] std::uint32_t next_position(std::uint32_t row) const noexcept {
    return static_cast<std::uint32_t>(rows_[row].next_position);
  }
  void accept(std::uint32_t row, const SampledToken& drawn);

  // Once, when finished.
  [[nodiscard]] wire::GenerateResultT take_result();

 private:
  struct Row {
    KvRow kv;
    std::uint64_t seed = 0;
    std::uint32_t number = 0;
    std::int32_t next_position = 0;  // of the token that is drawn next
    bool done = false;
    std::vector<std::int32_t> tokens;
    std::vector<float> logprobs;
    wire::FinishReason finish = wire::FinishReason::Length;
  };

  GenerateRequest(const OpEnv& env, const wire::GenerateArgsT& args);
  void number_rows(const wire::GenerateArgsT& args);
  void share_prompt_cache(std::size_t first_row);

  const ModelState* state_;
  std::uint64_t version_;
  float temperature_;
  float top_p_;
  std::vector<std::int32_t> stop_;  // in order
  std::size_t samples_;
  std::size_t max_new_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<Row> rows_;
  std::int64_t positions_ = 0;
  std::size_t prompt_at_ = 0;  // first prompt that is not planned to its end
  std::size_t token_at_ = 0;   // first token of it that is not planned
  std::size_t unfinished_ = 0;
  std::uint64_t tokens_done_ = 0;
};

}  // namespace plexrl::model
