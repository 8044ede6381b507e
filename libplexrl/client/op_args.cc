// SPDX-License-Identifier: Apache-2.0
#include "client/op_args.h"

#include <cmath>
#include <string_view>

namespace plexrl::client {
namespace {

constexpr std::size_t kMaxStoreName = 64;

Result<std::vector<std::unique_ptr<wire::PromptT>>> token_rows(const plexrl_tokens* rows,
                                                               std::size_t count,
                                                               const char* what) {
  if (rows == nullptr || count == 0)
    return error(Code::INVALID_ARGUMENT, "%s: at least one is needed", what);
  std::vector<std::unique_ptr<wire::PromptT>> result;
  result.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (rows[i].data == nullptr || rows[i].count == 0)
      return error(Code::INVALID_ARGUMENT, "%s[%zu]: at least one token is needed", what, i);
    result.push_back(std::make_unique<wire::PromptT>());
    result.back()->tokens.assign(rows[i].data, rows[i].data + rows[i].count);
  }
  return result;
}

template <class T>
void copy_column(std::vector<T>& to, const T* from, std::size_t count) {
  if (from != nullptr) to.assign(from, from + count);
}

Status check_columns(const plexrl_datum& d, plexrl_loss loss, std::size_t index) {
  if (d.count == 0 || d.tokens == nullptr || d.target_tokens == nullptr)
    return error(Code::INVALID_ARGUMENT, "data[%zu]: tokens and target_tokens are needed", index);
  if (loss == PLEXRL_LOSS_CROSS_ENTROPY && d.weights == nullptr)
    return error(Code::INVALID_ARGUMENT, "data[%zu]: cross_entropy needs weights", index);
  if (loss != PLEXRL_LOSS_CROSS_ENTROPY && (d.logprobs == nullptr || d.advantages == nullptr))
    return error(Code::INVALID_ARGUMENT, "data[%zu]: this loss needs logprobs and advantages",
                 index);
  return {};
}

std::unique_ptr<wire::DatumT> datum(const plexrl_datum& d) {
  auto result = std::make_unique<wire::DatumT>();
  copy_column(result->tokens, d.tokens, d.count);
  copy_column(result->target_tokens, d.target_tokens, d.count);
  copy_column(result->weights, d.weights, d.count);
  copy_column(result->logprobs, d.logprobs, d.count);
  copy_column(result->advantages, d.advantages, d.count);
  return result;
}

bool is_store_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

Result<wire::GenerateArgsT> generate_args(const plexrl_generate_options& options) {
  wire::GenerateArgsT args;
  PLEXRL_ASSIGN(args.prompts, token_rows(options.prompts, options.prompt_count, "prompts"));
  if (options.samples_per_prompt == 0 || options.max_new_tokens == 0)
    return error(Code::INVALID_ARGUMENT, "samples_per_prompt and max_new_tokens must be above 0");
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    return error(Code::INVALID_ARGUMENT, "temperature must be 0 (greedy) or above");
  if (!(options.top_p > 0 && options.top_p <= 1))
    return error(Code::INVALID_ARGUMENT, "top_p must be above 0 and at most 1 (1 = off)");
  if (options.stop_tokens == nullptr && options.stop_token_count != 0)
    return error(Code::INVALID_ARGUMENT, "stop_tokens is NULL, its count is not 0");
  args.version = options.version;
  args.samples_per_prompt = options.samples_per_prompt;
  args.max_new_tokens = options.max_new_tokens;
  args.temperature = options.temperature;
  args.top_p = options.top_p;
  args.seed = options.seed;
  copy_column(args.stop_tokens, options.stop_tokens, options.stop_token_count);
  return args;
}

Result<wire::LogprobsArgsT> logprobs_args(std::uint64_t version, const plexrl_tokens* sequences,
                                          std::size_t count) {
  wire::LogprobsArgsT args;
  args.version = version;
  PLEXRL_ASSIGN(args.sequences, token_rows(sequences, count, "sequences"));
  return args;
}

Result<wire::ForwardBackwardArgsT> forward_backward_args(
    const plexrl_forward_backward_options& options) {
  if (options.loss < PLEXRL_LOSS_CROSS_ENTROPY || options.loss > PLEXRL_LOSS_DRO)
    return error(Code::INVALID_ARGUMENT, "loss %d is not known", static_cast<int>(options.loss));
  if (options.data == nullptr || options.datum_count == 0)
    return error(Code::INVALID_ARGUMENT, "data: at least one datum is needed");
  wire::ForwardBackwardArgsT args;
  args.loss = static_cast<wire::LossKind>(options.loss);
  args.forward_only = options.forward_only != 0;
  if (options.clip_low != 0 || options.clip_high != 0) {
    args.clip_low = static_cast<float>(options.clip_low);
    args.clip_high = static_cast<float>(options.clip_high);
  }
  if (!std::isfinite(options.beta) || options.beta < 0)
    return error(Code::INVALID_ARGUMENT, "beta must be finite and not below 0");
  if (options.beta != 0) args.beta = static_cast<float>(options.beta);
  args.data.reserve(options.datum_count);
  for (std::size_t i = 0; i < options.datum_count; ++i) {
    PLEXRL_TRY(check_columns(options.data[i], options.loss, i));
    args.data.push_back(datum(options.data[i]));
  }
  return args;
}

Result<wire::OptimStepArgsT> optim_args(const plexrl_optim_options& options) {
  wire::OptimStepArgsT args;
  args.learning_rate = options.learning_rate;
  if (options.beta1 != 0 || options.beta2 != 0 || options.eps != 0) {
    args.beta1 = options.beta1;
    args.beta2 = options.beta2;
    args.eps = options.eps;
  }
  args.weight_decay = options.weight_decay;
  args.grad_clip_norm = options.grad_clip_norm;
  for (const double value : {args.learning_rate, args.beta1, args.beta2, args.eps,
                             args.weight_decay, args.grad_clip_norm})
    if (!std::isfinite(value) || value < 0)
      return error(Code::INVALID_ARGUMENT,
                   "optim_step: every number must be finite and not below 0");
  return args;
}

Status check_store_name(const char* name) {
  const std::string_view text = name != nullptr ? name : "";
  const bool length_ok = !text.empty() && text.size() <= kMaxStoreName && text[0] != '.';
  for (const char c : text)
    if (!length_ok || !is_store_character(c))
      return error(Code::INVALID_ARGUMENT,
                   "name '%.80s': 1 to 64 of A-Z a-z 0-9 . _ - are allowed, no dot in front", name);
  if (text.empty()) return error(Code::INVALID_ARGUMENT, "name: 1 to 64 characters are needed");
  return {};
}

}  // namespace plexrl::client
