// SPDX-License-Identifier: Apache-2.0
// generate: prefill each prompt once, copy its cache to the other samples of the prompt, then
// decode all unfinished rows token by token. The prompt's cache is bit-equal to what each row would
// have computed for itself, because a token's bits depend on its row only.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "engine_torch/arena_math.h"
#include "engine_torch/op_checks.h"
#include "engine_torch/op_factories.h"
#include "engine_torch/sampling.h"
#include "engine_torch/scratch.h"

namespace plexrl::model {
namespace {

constexpr std::int64_t kLogitRows = 64;  // rows whose logits exist at a time
constexpr std::size_t kMaxStopTokens = 1024;
constexpr float kMinTemperature = 1e-3F;  // below, the exponentials lose all meaning: ask for 0
constexpr float kMaxTemperature = 100.0F;

struct Row {
  KvRow kv;
  std::int32_t next_position = 0;  // of the token that is sampled next
  bool done = false;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  wire::FinishReason finish = wire::FinishReason::Length;
};

// The last token of a prompt: token `index` of a chunk.
struct PromptEnd {
  std::size_t index = 0, prompt = 0;
};

Status check_prompts(const ModelConfig& config, const wire::GenerateArgsT& args) {
  for (std::size_t p = 0; p < args.prompts.size(); ++p) {
    const std::string what = "generate: prompts[" + std::to_string(p) + "]";
    if (!args.prompts[p] || args.prompts[p]->tokens.empty())
      return error(Code::INVALID_ARGUMENT, "%s: needs at least one token", what.c_str());
    const std::vector<std::int32_t>& tokens = args.prompts[p]->tokens;
    const std::uint64_t length = tokens.size() + std::uint64_t{args.max_new_tokens};
    if (length > static_cast<std::uint64_t>(config.max_positions))
      return error(Code::TOO_LARGE,
                   "%s: %zu tokens and max_new_tokens %u do not fit the model's %lld positions",
                   what.c_str(), tokens.size(), args.max_new_tokens,
                   static_cast<long long>(config.max_positions));
    PLEXRL_TRY(check_tokens(what, tokens, config.vocab_size));
  }
  return {};
}

Status check_sizes(const wire::GenerateArgsT& args) {
  if (args.prompts.empty()) return error(Code::INVALID_ARGUMENT, "generate: no prompts");
  if (args.samples_per_prompt == 0 || args.max_new_tokens == 0)
    return error(Code::INVALID_ARGUMENT,
                 "generate: samples_per_prompt and max_new_tokens must be at least 1");
  if (args.prompts.size() > kMaxRows || args.prompts.size() * args.samples_per_prompt > kMaxRows)
    return error(Code::TOO_LARGE, "generate: %zu prompts of %u samples, at most %zu rows in one op",
                 args.prompts.size(), args.samples_per_prompt, kMaxRows);
  std::uint64_t tokens = 0;
  for (const auto& prompt : args.prompts)
    tokens += ((prompt ? prompt->tokens.size() : 0) + std::uint64_t{args.max_new_tokens}) *
              args.samples_per_prompt;
  if (tokens > kMaxOpTokens)
    return error(Code::TOO_LARGE, "generate: %llu tokens with the new ones, at most %zu in one op",
                 static_cast<unsigned long long>(tokens), kMaxOpTokens);
  return {};
}

Status check_sampling(const ModelConfig& config, const wire::GenerateArgsT& args) {
  const float t = args.temperature;
  if (!(t == 0.0F || (t >= kMinTemperature && t <= kMaxTemperature)))
    return error(Code::INVALID_ARGUMENT, "generate: temperature %g, must be 0 or %g to %g",
                 static_cast<double>(t), static_cast<double>(kMinTemperature),
                 static_cast<double>(kMaxTemperature));
  if (!(args.top_p > 0.0F && args.top_p <= 1.0F))
    return error(Code::INVALID_ARGUMENT, "generate: top_p %g, must be above 0, at most 1",
                 static_cast<double>(args.top_p));
  if (args.stop_tokens.size() > kMaxStopTokens)
    return error(Code::TOO_LARGE, "generate: %zu stop_tokens, at most %zu", args.stop_tokens.size(),
                 kMaxStopTokens);
  return check_tokens("generate: stop_tokens", args.stop_tokens, config.vocab_size);
}

class GenerateOp final : public OpRun {
 public:
  GenerateOp(const OpEnv& env, const wire::GenerateArgsT& args);

  Result<bool> step() override {
    return guarded("generate", [this] { return advance(); });
  }
  wire::OpValueUnion take_result() override;
  [[nodiscard]] std::uint64_t tokens_done() const noexcept override { return tokens_done_; }

 private:
  Result<bool> advance();
  [[nodiscard]] Status prefill();
  [[nodiscard]] Status decode();
  [[nodiscard]] Status sample_rows(const float* hidden, std::span<const std::size_t> rows);
  [[nodiscard]] Status draw(const float* logits, std::span<const std::size_t> rows);
  void append(Row& row, const SampledToken& sampled);
  void share_prompt_cache(std::size_t prompt);
  [[nodiscard]] std::vector<TokenAt> next_prompt_tokens(std::vector<PromptEnd>* ends);
  [[nodiscard]] Status start_rows(const float* hidden, std::size_t prompt);

  const ModelState* state_;
  std::uint64_t version_;
  std::int64_t layer_planes_;  // planes [capacity, head_dim] of one row's cache
  std::vector<std::vector<std::int32_t>> prompts_;
  std::size_t samples_;
  std::size_t max_new_;
  SamplingRule rule_;
  std::vector<std::int32_t> stop_;
  std::vector<Row> rows_;
  std::unique_ptr<TokenDecoder> decoder_;
  std::size_t prompt_at_ = 0;  // prefill cursor
  std::size_t token_at_ = 0;
  std::uint64_t tokens_done_ = 0;
  std::vector<SamplingScratch> sampling_;  // one per thread
};

GenerateOp::GenerateOp(const OpEnv& env, const wire::GenerateArgsT& args)
    : state_(env.state),
      version_(args.version),
      layer_planes_(env.state->layout->config.layers * 2 * env.state->layout->config.kv_heads),
      samples_(args.samples_per_prompt),
      max_new_(args.max_new_tokens),
      rule_{args.temperature, args.top_p, args.seed},
      stop_(args.stop_tokens),
      decoder_(make_version_decoder(*env.state, args.version,
                                    [&] {
                                      std::size_t longest = 0;
                                      for (const auto& prompt : args.prompts)
                                        longest = std::max(longest, prompt->tokens.size());
                                      return static_cast<std::int64_t>(longest +
                                                                       args.max_new_tokens);
                                    }())),
      sampling_(static_cast<std::size_t>(omp_get_max_threads())) {
  std::sort(stop_.begin(), stop_.end());
  auto* at = reinterpret_cast<float*>(env.kv.data());
  for (const auto& prompt : args.prompts) {
    prompts_.push_back(prompt->tokens);
    for (std::size_t s = 0; s < samples_; ++s) {
      Row row;
      row.kv = {at, static_cast<std::int64_t>(prompt->tokens.size() + max_new_)};
      row.next_position = static_cast<std::int32_t>(prompt->tokens.size());
      rows_.push_back(std::move(row));
      at += layer_planes_ * rows_.back().kv.capacity * decoder_->config().head_dim;
    }
  }
}

Result<bool> GenerateOp::advance() {
  PLEXRL_TRY(check_version(*state_, version_).within("generate: replaced while it was parked"));
  PLEXRL_TRY(decoder_->acquire());
  const Status status = prompt_at_ < prompts_.size() ? prefill() : decode();
  decoder_->release();
  PLEXRL_TRY(status);
  return prompt_at_ == prompts_.size() &&
         std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.done; });
}

// The next tokens of the prompts, up to a chunk; each prompt is computed in its first row.
std::vector<TokenAt> GenerateOp::next_prompt_tokens(std::vector<PromptEnd>* ends) {
  std::vector<TokenAt> tokens;
  while (prompt_at_ < prompts_.size() && tokens.size() < TokenDecoder::kChunk) {
    const std::vector<std::int32_t>& prompt = prompts_[prompt_at_];
    tokens.push_back(
        {prompt[token_at_], static_cast<std::int32_t>(token_at_), rows_[prompt_at_ * samples_].kv});
    if (++token_at_ < prompt.size()) continue;
    ends->push_back({tokens.size() - 1, prompt_at_++});
    token_at_ = 0;
  }
  return tokens;
}

Status GenerateOp::prefill() {
  std::vector<PromptEnd> ends;
  const std::vector<TokenAt> tokens = next_prompt_tokens(&ends);
  const float* hidden = decoder_->forward(tokens);
  tokens_done_ += tokens.size();
  const std::int64_t width = decoder_->config().hidden_size;
  for (const PromptEnd& end : ends)
    PLEXRL_TRY(start_rows(hidden + static_cast<std::int64_t>(end.index) * width, end.prompt));
  return {};
}

// Samples the first token of every row of a prompt from the state of the prompt's last token.
Status GenerateOp::start_rows(const float* hidden, std::size_t prompt) {
  share_prompt_cache(prompt);
  PLEXRL_ASSIGN(const Scratch logits, Scratch::make(decoder_->config().vocab_size));
  decoder_->logits(hidden, 1, logits.data());
  for (std::size_t s = 0; s < samples_; ++s) {
    const std::size_t row = prompt * samples_ + s;
    PLEXRL_TRY(draw(logits.data(), {&row, 1}));
  }
  return {};
}

void GenerateOp::share_prompt_cache(std::size_t prompt) {
  const Row& from = rows_[prompt * samples_];
  const std::int64_t dim = decoder_->config().head_dim;
  const auto used = static_cast<std::int64_t>(prompts_[prompt].size()) * dim;
  for (std::size_t s = 1; s < samples_; ++s)
    for (std::int64_t plane = 0; plane < layer_planes_; ++plane)
      copy_floats(state_->device, from.kv.data + plane * from.kv.capacity * dim,
                  rows_[prompt * samples_ + s].kv.data + plane * from.kv.capacity * dim,
                  static_cast<std::size_t>(used));
}

Status GenerateOp::decode() {
  std::vector<std::size_t> active;
  for (std::size_t r = 0; r < rows_.size(); ++r)
    if (!rows_[r].done) active.push_back(r);
  for (std::size_t at = 0; at < active.size(); at += TokenDecoder::kChunk) {
    const std::span<const std::size_t> rows = std::span(active).subspan(
        at, std::min<std::size_t>(TokenDecoder::kChunk, active.size() - at));
    std::vector<TokenAt> tokens;
    for (const std::size_t r : rows)
      tokens.push_back({rows_[r].tokens.back(), rows_[r].next_position - 1, rows_[r].kv});
    const float* hidden = decoder_->forward(tokens);
    tokens_done_ += tokens.size();
    PLEXRL_TRY(sample_rows(hidden, rows));
  }
  return {};
}

Status GenerateOp::sample_rows(const float* hidden, std::span<const std::size_t> rows) {
  const ModelConfig& c = decoder_->config();
  PLEXRL_ASSIGN(const Scratch logits, Scratch::make(kLogitRows * c.vocab_size));
  for (std::size_t at = 0; at < rows.size(); at += kLogitRows) {
    const auto part = rows.subspan(at, std::min<std::size_t>(kLogitRows, rows.size() - at));
    decoder_->logits(hidden + static_cast<std::int64_t>(at) * c.hidden_size,
                     static_cast<std::int64_t>(part.size()), logits.data());
    PLEXRL_TRY(draw(logits.data(), part));
  }
  return {};
}

Status GenerateOp::draw(const float* logits, std::span<const std::size_t> rows) {
  const std::int64_t vocab = decoder_->config().vocab_size;
  const auto count = static_cast<std::int64_t>(rows.size());
  std::vector<SampledToken> sampled(rows.size());
#pragma omp parallel for schedule(static) if (count * vocab > 1 << 15)
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t r = rows[static_cast<std::size_t>(i)];
    sampled[static_cast<std::size_t>(i)] =
        sample(logits + i * vocab, vocab, rule_, static_cast<std::uint32_t>(r),
               static_cast<std::uint32_t>(rows_[r].next_position),
               &sampling_[static_cast<std::size_t>(omp_get_thread_num())]);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!std::isfinite(sampled[i].logprob))
      return error(Code::INVALID_ARGUMENT,
                   "generate: version %llu gives logits that are not finite: the model has "
                   "diverged, load an earlier checkpoint",
                   static_cast<unsigned long long>(version_));
    append(rows_[rows[i]], sampled[i]);
  }
  return {};
}

void GenerateOp::append(Row& row, const SampledToken& sampled) {
  row.tokens.push_back(sampled.token);
  row.logprobs.push_back(sampled.logprob);
  ++row.next_position;
  if (std::binary_search(stop_.begin(), stop_.end(), sampled.token)) {
    row.finish = wire::FinishReason::Stop;
    row.done = true;
  }
  row.done = row.done || row.tokens.size() == max_new_;
}

wire::OpValueUnion GenerateOp::take_result() {
  wire::GenerateResultT result;
  result.version = version_;
  for (Row& row : rows_) {
    auto sequence = std::make_unique<wire::SequenceT>();
    sequence->tokens = std::move(row.tokens);
    sequence->logprobs = std::move(row.logprobs);
    sequence->finish = row.finish;
    result.sequences.push_back(std::move(sequence));
  }
  wire::OpValueUnion value;
  value.Set(std::move(result));
  return value;
}

}  // namespace

OpRunResult make_generate(const OpEnv& env, const wire::GenerateArgsT& args) {
  const ModelConfig& config = env.state->layout->config;
  PLEXRL_TRY(check_version(*env.state, args.version).within("generate"));
  PLEXRL_TRY(check_sizes(args));
  PLEXRL_TRY(check_prompts(config, args));
  PLEXRL_TRY(check_sampling(config, args));
  PLEXRL_ASSIGN(const std::uint64_t need, kv_bytes(config, args));
  if (env.kv.size() < need)
    return error(Code::NO_CAPACITY, "generate: the KV segment has %zu bytes, %llu are needed",
                 env.kv.size(), static_cast<unsigned long long>(need));
  return std::unique_ptr<OpRun>(std::make_unique<GenerateOp>(env, args));
}

}  // namespace plexrl::model
