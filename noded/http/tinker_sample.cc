// SPDX-License-Identifier: Apache-2.0
#include "http/tinker_sample.h"

#include <cmath>
#include <cstring>

#include "http/body_fields.h"
#include "http/proto_wire.h"
#include "http/tinker_tensor.h"
#include "http/tinker_train.h"
#include "runtime/op_limits.h"

namespace plexrl::http {
namespace {

template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void read_stop(BodyFields& fields, TinkerSample& sample) {
  const Json* const stop = fields.find("stop");
  if (stop == nullptr) return;
  const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
  if (!list.is_array())
    return fields.refuse("stop", error(Code::INVALID_ARGUMENT, "texts or token ids are needed"));
  if (list.empty() || list.front().is_number()) {
    auto ids = token_ids(list);
    if (!ids) return fields.refuse("stop", ids.error());
    sample.stop_tokens = *std::move(ids);
    return;
  }
  for (const Json& text : list) {
    const bool good = text.is_string() && !text.get_ref<const std::string&>().empty() &&
                      text.get_ref<const std::string&>().size() <= kMaxStopBytes &&
                      sample.stop.size() < kMaxStops;
    if (!good)
      return fields.refuse(
          "stop", error(Code::INVALID_ARGUMENT, "1 to %zu texts of 1 to %zu bytes are possible",
                        kMaxStops, kMaxStopBytes));
    sample.stop.push_back(text.get<std::string>());
  }
}

void read_whole(BodyFields& fields, const char* name, std::uint64_t* value) {
  const Json* const found = fields.find(name);
  if (found == nullptr) return;
  if (found->is_number_unsigned()) {
    *value = found->get<std::uint64_t>();
  } else {
    fields.refuse(name, error(Code::INVALID_ARGUMENT, "a whole number from 0 is needed"));
  }
}

void read_params(const Json& params, TinkerSample& sample, BodyFields& outer) {
  if (!params.is_object())
    return outer.refuse("sampling_params", error(Code::INVALID_ARGUMENT, "an object is needed"));
  BodyFields fields(params);
  if (fields.find("max_tokens") != nullptr) {
    std::uint32_t most = 0;
    fields.read("max_tokens", &most, 1, INT32_MAX);
    sample.max_tokens = most;
  }
  if (fields.find("seed") != nullptr) {
    std::uint64_t seed = 0;
    read_whole(fields, "seed", &seed);
    sample.seed = seed;
  }
  fields.read("temperature", &sample.temperature, 0, 100);
  fields.read("top_p", &sample.top_p, 0, 1);
  double top_k = -1;
  if (fields.find("top_k") != nullptr && (!fields.is_number("top_k", &top_k) || top_k > 0))
    fields.refuse("top_k", error(Code::UNSUPPORTED, "-1, no limit, is possible"));
  read_stop(fields, sample);
  if (!fields.status().ok()) outer.refuse("sampling_params", fields.status());
}

// What newer SDKs can ask for and is not there.
void refuse_unknown(BodyFields& fields) {
  for (const char* name : {"topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k"}) {
    double count = 0;
    if (fields.find(name) != nullptr && (!fields.is_number(name, &count) || count != 0))
      fields.refuse(name, error(Code::UNSUPPORTED,
                                "0 is possible: of tokens that were neither "
                                "sampled nor in the prompt nothing is known"));
  }
  if (fields.find("target_prompt_logprobs") != nullptr)
    fields.refuse("target_prompt_logprobs", error(Code::UNSUPPORTED, "not possible here"));
  bool stability = false;
  fields.read("record_stability_info", &stability);
  if (stability)
    fields.refuse("record_stability_info", error(Code::UNSUPPORTED, "not possible here"));
}

}  // namespace

Result<TinkerSample> parse_sample(std::string_view text, std::string* field) {
  PLEXRL_ASSIGN(const Json body, parse_body(text));
  BodyFields fields(body);
  TinkerSample sample;
  fields.read("sampling_session_id", &sample.sampler);
  read_whole(fields, "seq_id", &sample.seq);
  fields.read("base_model", &sample.base);
  fields.read("model_path", &sample.path);
  fields.read("num_samples", &sample.count, 1, runtime::kMaxRows);
  if (const Json* const prompt = fields.find("prompt")) {
    auto tokens = read_chunks(*prompt);
    if (tokens) sample.prompt = *std::move(tokens);
    if (!tokens) fields.refuse("prompt", tokens.error());
  }
  if (sample.prompt.empty())
    fields.refuse("prompt", error(Code::INVALID_ARGUMENT, "at least one token is needed"));
  if (const Json* const params = fields.find("sampling_params"))
    read_params(*params, sample, fields);
  fields.read("prompt_logprobs", &sample.prompt_logprobs);
  fields.read("prompt_logprobs_last_n", &sample.last_prompt_logprobs, 1, UINT32_MAX);
  refuse_unknown(fields);
  if (fields.status().ok()) return sample;
  *field = fields.field();
  return fields.status();
}

std::string sample_message(const SampleResult& result) {
  ProtoWriter response;
  for (const AnswerRow& row : result.rows) {
    ProtoWriter sequence;
    if (!row.stopped) sequence.varint(1, 1);  // STOP_REASON_LENGTH; STOP is 0, which is not written
    sequence.bytes(2, raw_bytes(row.tokens));
    sequence.bytes(3, raw_bytes(row.logprobs));
    response.bytes(1, sequence.message());
  }
  if (!result.prompt_logprobs.empty()) response.bytes(2, raw_bytes(result.prompt_logprobs));
  return response.take();
}

std::string sample_json(const SampleResult& result) {
  Json sequences = Json::array();
  for (const AnswerRow& row : result.rows)
    sequences.push_back(Json{{"stop_reason", row.stopped ? "stop" : "length"},
                             {"tokens", row.tokens},
                             {"logprobs", row.logprobs}});
  Json document{{"type", "sample"}, {"sequences", std::move(sequences)}};
  if (!result.prompt_logprobs.empty()) {
    Json values = Json::array();
    for (const float value : result.prompt_logprobs)
      values.push_back(std::isnan(value) ? Json(nullptr) : Json(value));
    document["prompt_logprobs"] = std::move(values);
  }
  return dump_json(document);
}

}  // namespace plexrl::http
