// SPDX-License-Identifier: Apache-2.0
// logprobs: whole sequences in groups of at least a chunk of tokens; a group is one step. The cache
// of a group is scratch.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine_torch/kernels.h"
#include "engine_torch/op_checks.h"
#include "engine_torch/op_factories.h"
#include "engine_torch/scratch.h"
#include "engine_torch/token_decoder.h"

namespace plexrl::model {
namespace {

constexpr std::int64_t kLogitRows = 64;

using Sequences = std::vector<std::vector<std::int32_t>>;

class LogprobsOp final : public OpRun {
 public:
  LogprobsOp(const OpEnv& env, std::uint64_t version, Sequences sequences, std::int64_t longest)
      : state_(env.state),
        version_(version),
        sequences_(std::move(sequences)),
        decoder_(make_decoder(*env.state)),
        adapter_(bind_version(*decoder_, *env.state, version)) {
    decoder_->reach(longest);
  }

  Result<bool> step() override {
    return guarded("logprobs", [this] { return advance(); });
  }
  wire::OpValueUnion take_result() override;
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override { return tokens_done_; }

 private:
  Result<bool> advance();
  [[nodiscard]] std::vector<TokenAt> group_tokens(std::size_t end, float* cache) const;
  [[nodiscard]] Status score(std::span<const TokenAt> tokens);
  [[nodiscard]] Status score_rows(std::int64_t count);

  const ModelState* state_;
  std::uint64_t version_;
  Sequences sequences_;
  std::unique_ptr<TokenDecoder> decoder_;
  std::unique_ptr<const RowAdapter> adapter_;
  std::size_t next_ = 0;              // first sequence that is not computed
  std::vector<std::int32_t> follow_;  // of the group's tokens: the next token, -1 at the end
  std::vector<float> scores_;         // of the group
  std::vector<std::vector<float>> results_;
  std::uint64_t tokens_done_ = 0;
};

Result<bool> LogprobsOp::advance() {
  PLEXRL_TRY(check_version(*state_, version_).within("logprobs: replaced while it was parked"));
  std::size_t end = next_;
  std::int64_t count = 0;
  while (end < sequences_.size() && count < TokenDecoder::kChunk)
    count += static_cast<std::int64_t>(sequences_[end++].size());
  const auto per_position =
      static_cast<std::int64_t>(kv_bytes_per_position(decoder_->config()) / sizeof(float));
  PLEXRL_ASSIGN(float* const cache, decoder_->make_cache(count * per_position));
  follow_.clear();
  scores_.clear();
  for (std::size_t s = next_; s < end; ++s) {
    follow_.insert(follow_.end(), sequences_[s].begin() + 1, sequences_[s].end());
    follow_.push_back(-1);
  }
  PLEXRL_TRY(score(group_tokens(end, cache)));
  auto at = scores_.begin();
  for (; next_ < end; ++next_) {
    const auto size = static_cast<std::ptrdiff_t>(sequences_[next_].size());
    results_.emplace_back(at, at + size - 1);
    at += size;
  }
  return next_ == sequences_.size();
}

std::vector<TokenAt> LogprobsOp::group_tokens(std::size_t end, float* cache) const {
  const auto per_position =
      static_cast<std::int64_t>(kv_bytes_per_position(decoder_->config()) / sizeof(float));
  std::vector<TokenAt> tokens;
  for (std::size_t s = next_; s < end; ++s) {
    const auto length = static_cast<std::int64_t>(sequences_[s].size());
    for (std::int64_t i = 0; i < length; ++i)
      tokens.push_back({sequences_[s][static_cast<std::size_t>(i)],
                        static_cast<std::int32_t>(i),
                        {cache, length},
                        adapter_.get()});
    cache += length * per_position;
  }
  return tokens;
}

Status LogprobsOp::score(std::span<const TokenAt> tokens) {
  PLEXRL_TRY(decoder_->acquire());
  Status status;
  for (std::size_t at = 0; status.ok() && at < tokens.size(); at += TokenDecoder::kChunk) {
    const auto part =
        tokens.subspan(at, std::min<std::size_t>(TokenDecoder::kChunk, tokens.size() - at));
    decoder_->forward(part);
    status = score_rows(static_cast<std::int64_t>(part.size()));
    tokens_done_ += part.size();
  }
  decoder_->release();
  return status;
}

// Of the tokens of the last forward.
Status LogprobsOp::score_rows(std::int64_t count) {
  const ModelConfig& c = decoder_->config();
  PLEXRL_ASSIGN(const Scratch logits, Scratch::make(kLogitRows * c.vocab_size));
  for (std::int64_t at = 0; at < count; at += kLogitRows) {
    const std::int64_t rows = std::min(kLogitRows, count - at);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(rows));
    std::iota(tokens.begin(), tokens.end(), at);
    decoder_->logits(tokens, logits.data());
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* row = logits.data() + i * c.vocab_size;
      const std::int32_t target = follow_[scores_.size()];
      const float logp = target < 0 ? 0.0F : row[target] - log_sum_exp(row, c.vocab_size);
      if (!std::isfinite(logp))
        return error(Code::INVALID_ARGUMENT,
                     "logprobs: version %llu gives logits that are not finite: the model has "
                     "diverged, load an earlier checkpoint",
                     static_cast<unsigned long long>(version_));
      scores_.push_back(logp);
    }
  }
  return {};
}

wire::OpValueUnion LogprobsOp::take_result() {
  wire::LogprobsResultT result;
  for (std::vector<float>& values : results_) {
    auto row = std::make_unique<wire::FloatRowT>();
    row->values = std::move(values);
    result.rows.push_back(std::move(row));
  }
  wire::OpValueUnion value;
  value.Set(std::move(result));
  return value;
}

}  // namespace

OpRunResult make_logprobs(const OpEnv& env, const wire::LogprobsArgsT& args) {
  const ModelConfig& config = env.state->layout->config;
  PLEXRL_TRY(check_version(*env.state, args.version).within("logprobs"));
  if (args.sequences.empty()) return error(Code::INVALID_ARGUMENT, "logprobs: no sequences");
  if (args.sequences.size() > kMaxRows)
    return error(Code::TOO_LARGE, "logprobs: %zu sequences, at most %zu in one op",
                 args.sequences.size(), kMaxRows);
  Sequences sequences;
  std::size_t longest = 0;
  std::size_t total = 0;
  for (std::size_t s = 0; s < args.sequences.size(); ++s) {
    const std::string what = "logprobs: sequences[" + std::to_string(s) + "]";
    if (!args.sequences[s] || args.sequences[s]->tokens.empty())
      return error(Code::INVALID_ARGUMENT, "%s: needs at least one token", what.c_str());
    const std::vector<std::int32_t>& tokens = args.sequences[s]->tokens;
    if (tokens.size() > static_cast<std::size_t>(config.max_positions))
      return error(Code::TOO_LARGE, "%s: %zu tokens, the model has %lld positions", what.c_str(),
                   tokens.size(), static_cast<long long>(config.max_positions));
    PLEXRL_TRY(check_tokens(what, tokens, config.vocab_size));
    longest = std::max(longest, tokens.size());
    total += tokens.size();
    sequences.push_back(tokens);
  }
  if (total > kMaxOpTokens)
    return error(Code::TOO_LARGE, "logprobs: %zu tokens, at most %zu in one op", total,
                 kMaxOpTokens);
  return std::unique_ptr<OpRun>(std::make_unique<LogprobsOp>(
      env, args.version, std::move(sequences), static_cast<std::int64_t>(longest)));
}

}  // namespace plexrl::model
