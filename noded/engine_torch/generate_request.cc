// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/generate_request.h"

#include <algorithm>

#include "engine_torch/arena_math.h"
#include "engine_torch/op_checks.h"

namespace plexrl::model {
namespace {

constexpr std::size_t kMaxStopTokens = 1024;
constexpr float kMinTemperature = 1e-3F;  // below, the exponentials lose all meaning: ask for 0
constexpr float kMaxTemperature = 100.0F;

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
  std::uint64_t grouped = 0;
  for (const auto& group : args.groups) {
    if (!group) return error(Code::INVALID_ARGUMENT, "generate: an empty group");
    grouped += group->prompts;
  }
  if (!args.groups.empty() && grouped != args.prompts.size())
    return error(Code::INVALID_ARGUMENT, "generate: groups of %llu prompts, there are %zu",
                 static_cast<unsigned long long>(grouped), args.prompts.size());
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

Status check_all(const OpEnv& env, const wire::GenerateArgsT& args) {
  const ModelConfig& config = env.state->layout->config;
  PLEXRL_TRY(check_version(*env.state, args.version).within("generate"));
  PLEXRL_TRY(check_sizes(args));
  PLEXRL_TRY(check_prompts(config, args));
  PLEXRL_TRY(check_sampling(config, args));
  PLEXRL_ASSIGN(const std::uint64_t need, kv_bytes(config, args));
  if (env.kv.size() >= need) return {};
  return error(Code::NO_CAPACITY, "generate: the KV segment has %zu bytes, %llu are needed",
               env.kv.size(), static_cast<unsigned long long>(need));
}

}  // namespace

Result<GenerateRequest> GenerateRequest::make(const OpEnv& env, const wire::GenerateArgsT& args) {
  PLEXRL_TRY(check_all(env, args));
  return GenerateRequest(env, args);
}

GenerateRequest::GenerateRequest(const OpEnv& env, const wire::GenerateArgsT& args)
    : state_(env.state),
      version_(args.version),
      temperature_(args.temperature),
      top_p_(args.top_p),
      stop_(args.stop_tokens),
      samples_(args.samples_per_prompt),
      max_new_(args.max_new_tokens) {
  std::sort(stop_.begin(), stop_.end());
  const auto of_position =
      static_cast<std::int64_t>(kv_bytes_per_position(state_->layout->config) / sizeof(float));
  auto* at = reinterpret_cast<float*>(env.kv.data());
  for (const auto& prompt : args.prompts) {
    prompts_.push_back(prompt->tokens);
    const auto length = static_cast<std::int64_t>(prompt->tokens.size() + max_new_);
    positions_ = std::max(positions_, length);
    for (std::size_t s = 0; s < samples_; ++s) {
      Row row;
      row.kv = {at, length};
      row.next_position = static_cast<std::int32_t>(prompt->tokens.size());
      rows_.push_back(std::move(row));
      at += length * of_position;
    }
  }
  unfinished_ = rows_.size();
  number_rows(args);
}

void GenerateRequest::number_rows(const wire::GenerateArgsT& args) {
  auto row = rows_.begin();
  const auto number = [&](std::uint64_t seed, std::size_t prompts) {
    for (std::uint32_t i = 0; i < prompts * samples_; ++i, ++row) {
      row->seed = seed;
      row->number = i;
    }
  };
  if (args.groups.empty()) number(args.seed, prompts_.size());
  for (const auto& group : args.groups) number(group->seed, group->prompts);
}

void GenerateRequest::plan_rows(std::vector<PlannedToken>& plan) const {
  const std::size_t begun = prompt_at_ * samples_;
  for (std::size_t r = 0; r < begun; ++r) {
    const Row& row = rows_[r];
    if (row.done) continue;
    plan.push_back(
        {{row.tokens.back(), row.next_position - 1, row.kv}, static_cast<std::uint32_t>(r), 1});
  }
}

// Each prompt is computed in its first row.
void GenerateRequest::plan_prompts(std::size_t limit, std::vector<PlannedToken>& plan) {
  for (; limit > 0 && has_prompts(); --limit) {
    const std::vector<std::int32_t>& prompt = prompts_[prompt_at_];
    const std::size_t row = prompt_at_ * samples_;
    plan.push_back({{prompt[token_at_], static_cast<std::int32_t>(token_at_), rows_[row].kv},
                    static_cast<std::uint32_t>(row),
                    0});
    if (++token_at_ < prompt.size()) continue;
    plan.back().rows = static_cast<std::uint32_t>(samples_);
    ++prompt_at_;
    token_at_ = 0;
  }
}

void GenerateRequest::computed(const PlannedToken& token) {
  ++tokens_done_;
  if (token.rows > 0 && rows_[token.first_row].tokens.empty()) share_prompt_cache(token.first_row);
}

// The prompt's cache is bit-equal to what each row would have computed for itself, because a
// token's bits depend on its row only.
void GenerateRequest::share_prompt_cache(std::size_t first_row) {
  const ModelConfig& c = state_->layout->config;
  const KvRow& from = rows_[first_row].kv;
  const std::int64_t planes = c.layers * 2 * c.kv_heads;
  const auto used = static_cast<std::size_t>(rows_[first_row].next_position * c.head_dim);
  for (std::size_t s = 1; s < samples_; ++s)
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      const std::int64_t at = plane * from.capacity * c.head_dim;
      copy_floats(state_->device, from.data + at, rows_[first_row + s].kv.data + at, used);
    }
}

void GenerateRequest::accept(std::uint32_t number, const SampledToken& drawn) {
  Row& row = rows_[number];
  row.tokens.push_back(drawn.token);
  row.logprobs.push_back(drawn.logprob);
  ++row.next_position;
  if (std::binary_search(stop_.begin(), stop_.end(), drawn.token)) {
    row.finish = wire::FinishReason::Stop;
    row.done = true;
  }
  row.done = row.done || row.tokens.size() == max_new_;
  if (row.done) --unfinished_;
}

wire::GenerateResultT GenerateRequest::take_result() {
  wire::GenerateResultT result;
  result.version = version_;
  for (Row& row : rows_) {
    auto sequence = std::make_unique<wire::SequenceT>();
    sequence->tokens = std::move(row.tokens);
    sequence->logprobs = std::move(row.logprobs);
    sequence->finish = row.finish;
    result.sequences.push_back(std::move(sequence));
  }
  return result;
}

}  // namespace plexrl::model
