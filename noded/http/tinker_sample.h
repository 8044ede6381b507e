// SPDX-License-Identifier: Apache-2.0
// asample of the Tinker API: the request as values and the result as the client reads it. The work
// is linear in the body and the result. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/completion_reply.h"

namespace plexrl::http {

struct TinkerSample {
  std::string sampler;     // sampling_session_id
  std::uint64_t seq = 0;   // seq_id; with a sampler only
  std::string base, path;  // base_model, model_path: without a sampler
  Tokens prompt;
  std::uint32_t count = 1;  // num_samples
  std::optional<std::uint32_t> max_tokens;
  std::optional<std::uint64_t> seed;
  float temperature = 1.0F;
  float top_p = 1.0F;
  std::vector<std::string> stop;
  Tokens stop_tokens;
  bool prompt_logprobs = false;
  std::uint32_t last_prompt_logprobs = UINT32_MAX;  // prompt_logprobs_last_n
};
[[nodiscard]] Result<TinkerSample> parse_sample(std::string_view body, std::string* field);

struct SampleResult {
  std::vector<AnswerRow> rows;
  // One per token of the prompt, NaN where there is none; empty unless asked for.
  std::vector<float> prompt_logprobs;
};
// SampleResponse, and the same as JSON for SDKs that take no messages.
[[nodiscard]] std::string sample_message(const SampleResult& result);
[[nodiscard]] std::string sample_json(const SampleResult& result);

}  // namespace plexrl::http
