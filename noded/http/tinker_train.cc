// SPDX-License-Identifier: Apache-2.0
#include "http/tinker_train.h"

#include <cmath>
#include <cstring>

#include "http/proto_wire.h"
#include "http/tinker_tensor.h"

namespace plexrl::http {
namespace {

using LossConfig = std::map<std::string, double>;

// A loss and what clips it unless told: published for ppo and cispo, not for dro's beta.
struct Loss {
  const char* name;
  wire::LossKind kind;
  bool clips;
  float clip_low, clip_high;
};
constexpr Loss kLosses[] = {
    {"cross_entropy", wire::LossKind::CrossEntropy, false, 0.8F, 1.2F},
    {"importance_sampling", wire::LossKind::ImportanceSampling, false, 0.8F, 1.2F},
    {"ppo", wire::LossKind::Ppo, true, 0.8F, 1.2F},
    {"cispo", wire::LossKind::Cispo, true, 0.0F, 4.0F},
    {"dro", wire::LossKind::Dro, false, 0.8F, 1.2F},
};

Status broken(const char* what) {
  return error(Code::INVALID_ARGUMENT, "%s is no protobuf message as Tinker has it", what);
}

const Loss* find_loss(const std::string& name) {
  for (const Loss& loss : kLosses)
    if (name == loss.name) return &loss;
  return nullptr;
}

Status configure(const Loss& loss, const LossConfig& config, wire::ForwardBackwardArgsT& args) {
  args.loss = loss.kind;
  args.clip_low = loss.clip_low;
  args.clip_high = loss.clip_high;
  for (const auto& [key, value] : config) {
    float* const setting = loss.clips && key == "clip_low_threshold"           ? &args.clip_low
                           : loss.clips && key == "clip_high_threshold"        ? &args.clip_high
                           : loss.kind == wire::LossKind::Dro && key == "beta" ? &args.beta
                                                                               : nullptr;
    if (setting == nullptr)
      return error(Code::UNSUPPORTED, "'loss_fn_config': %s has no setting '%s' here", loss.name,
                   key.substr(0, 64).c_str());
    *setting = static_cast<float>(value);
  }
  return {};
}

// The contents of a forward_backward, protobuf's or JSON's.
template <class Source>
struct Contents {
  std::string loss;
  LossConfig config;
  std::vector<Source> data;
  bool forward_only = false;
};

template <class Source>
Status fill(const Contents<Source>& contents, wire::ForwardBackwardArgsT& args) {
  const Loss* const loss = find_loss(contents.loss);
  if (loss == nullptr)
    return error(Code::UNSUPPORTED, "'loss_fn': '%s' is not known here",
                 contents.loss.substr(0, 64).c_str());
  PLEXRL_TRY(configure(*loss, contents.config, args));
  args.forward_only = contents.forward_only;
  args.data.reserve(contents.data.size());
  for (std::size_t i = 0; i < contents.data.size(); ++i) {
    auto datum = read_datum(contents.data[i]);
    auto made = datum ? make_datum(loss->kind, *std::move(datum))
                      : Result<std::unique_ptr<wire::DatumT>>(datum.error());
    if (!made) return made.error().within("datum " + std::to_string(i));
    args.data.push_back(*std::move(made));
  }
  return {};
}

template <class Source>
void fill(const Result<Contents<Source>>& contents, TrainRequest& request) {
  wire::ForwardBackwardArgsT args;
  request.refusal = contents ? fill(*contents, args) : contents.error();
  if (!request.refusal.ok()) args = {};
  request.args.Set(std::move(args));
}

Status read_setting(std::string_view entry, LossConfig& config) {
  std::string name;
  double value = 0;
  ProtoReader fields(entry);
  while (fields.next()) {
    if (fields.number() == 1) name = fields.bytes();
    if (fields.number() == 2) {
      if (fields.kind() != ProtoReader::Kind::kFixed64) return broken("'loss_fn_config'");
      value = fields.as_double();
    }
  }
  if (fields.broken()) return broken("'loss_fn_config'");
  config[name] = value;
  return {};
}

// loss_fn_config_v2: numbers are in loss_fn_config as well, so that only texts say something new.
Status check_setting_v2(std::string_view entry) {
  std::string name;
  ProtoReader fields(entry);
  while (fields.next()) {
    if (fields.number() == 1) name = fields.bytes();
    if (fields.number() != 2 || !fields.is_bytes()) continue;
    ProtoReader value(fields.bytes());
    while (value.next())
      if (value.number() == 2)
        return error(Code::UNSUPPORTED, "'loss_fn_config': '%s' is a text, which no loss takes",
                     name.substr(0, 64).c_str());
  }
  return {};
}

Result<Contents<std::string_view>> read_contents(std::string_view message) {
  Contents<std::string_view> contents;
  ProtoReader fields(message);
  while (fields.next()) {
    const std::uint32_t number = fields.number();
    const bool text = number == 3 || number == 4 || number == 5 || number == 7;
    if (text && !fields.is_bytes()) return broken("the body");
    if (number == 3) contents.data.push_back(fields.bytes());
    if (number == 4) contents.loss = fields.bytes();
    if (number == 5) PLEXRL_TRY(read_setting(fields.bytes(), contents.config));
    if (number == 6) contents.forward_only = fields.value() != 0;
    if (number == 7) PLEXRL_TRY(check_setting_v2(fields.bytes()));
  }
  if (fields.broken()) return broken("the body");
  return contents;
}

Result<Contents<Json>> read_contents(Json& input, bool forward_only) {
  Contents<Json> contents;
  contents.forward_only = forward_only;
  if (!input.is_object()) return error(Code::INVALID_ARGUMENT, "an object is needed");
  BodyFields fields(input);
  fields.read("loss_fn", &contents.loss);
  PLEXRL_TRY(Status(fields.status()));
  if (const Json* const config = fields.find("loss_fn_config")) {
    if (!config->is_object()) return error(Code::INVALID_ARGUMENT, "'loss_fn_config' is an object");
    for (const auto& [key, value] : config->items()) {
      if (!value.is_number())
        return error(Code::UNSUPPORTED, "'loss_fn_config': '%s' is no number",
                     key.substr(0, 64).c_str());
      contents.config[key] = value.get<double>();
    }
  }
  const auto data = input.find("data");
  if (data == input.end() || !data->is_array())
    return error(Code::INVALID_ARGUMENT, "'data' is a list");
  for (Json& datum : *data) contents.data.push_back(std::move(datum));
  return contents;
}

Result<TrainRequest> parse_json(std::string_view text, const char* name, bool forward_only,
                                std::string* field) {
  PLEXRL_ASSIGN(Json body, parse_body(text));
  BodyFields fields(body);
  TrainRequest request;
  read_stream_fields(fields, request);
  if (!fields.status().ok()) {
    *field = fields.field();
    return fields.status();
  }
  const auto input = body.find(name);
  if (input == body.end()) {
    fill<Json>(Result<Contents<Json>>(error(Code::INVALID_ARGUMENT, "'%s' is missing", name)),
               request);
  } else {
    fill<Json>(read_contents(*input, forward_only), request);
  }
  return request;
}

std::string float_bytes(const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Names are NAME:REDUCTION; the client combines those of a call's parts by the reduction.
std::vector<std::pair<const char*, double>> metrics(const wire::ForwardBackwardResultT& result) {
  return {{"loss:sum", result.loss_sum},
          {"tokens:sum", static_cast<double>(result.token_count)},
          {"ratio:mean", result.ratio_mean},
          {"clip_fraction:mean", result.clip_fraction},
          {"logprob_drop:mean", result.logprob_drop_mean},
          {"entropy:mean", result.entropy_mean}};
}

constexpr const char* kOutputType = "ArrayRecord";

double adam(const BodyFields& fields, const char* name, double otherwise, Status* wrong) {
  const Json* const found = fields.find(name);
  if (found == nullptr) return otherwise;
  if (found->is_number()) return found->get<double>();
  *wrong = error(Code::INVALID_ARGUMENT, "'adam_params': '%s' is a number", name);
  return otherwise;
}

Status read_adam(const BodyFields& body, wire::OptimStepArgsT& args) {
  if (body.find("optimizer_params") != nullptr)
    return error(Code::UNSUPPORTED, "'optimizer_params': AdamW is the only optimizer here");
  const Json* const given = body.find("adam_params");
  const Json none = Json::object();
  if (given != nullptr && !given->is_object())
    return error(Code::INVALID_ARGUMENT, "'adam_params' is an object");
  const BodyFields fields(given == nullptr ? none : *given);
  Status wrong;
  args.learning_rate = adam(fields, "learning_rate", 1e-4, &wrong);
  args.beta1 = adam(fields, "beta1", 0.9, &wrong);
  args.beta2 = adam(fields, "beta2", 0.95, &wrong);
  args.eps = adam(fields, "eps", 1e-12, &wrong);
  args.weight_decay = adam(fields, "weight_decay", 0.0, &wrong);
  args.grad_clip_norm = adam(fields, "grad_clip_norm", 0.0, &wrong);
  return wrong;
}

}  // namespace

std::string dump_json(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void read_stream_fields(BodyFields& fields, TrainRequest& request) {
  fields.read("model_id", &request.model_id);
  if (request.model_id.empty())
    fields.refuse("model_id", error(Code::INVALID_ARGUMENT, "the id of a model is needed"));
  std::uint32_t seq = 0;
  fields.read("seq_id", &seq, 1, INT32_MAX);
  if (seq == 0) fields.refuse("seq_id", error(Code::INVALID_ARGUMENT, "calls are numbered from 1"));
  request.seq = seq;
}

Result<TrainRequest> parse_forward_backward(std::string_view message, std::string* field) {
  TrainRequest request;
  ProtoReader fields(message);
  while (fields.next()) {
    if (fields.number() == 1) request.model_id = fields.bytes();
    if (fields.number() == 2) request.seq = fields.value();
  }
  if (request.model_id.empty() || request.seq == 0 || request.seq > INT32_MAX) {
    *field = request.model_id.empty() ? "model_id" : "seq_id";
    return error(Code::INVALID_ARGUMENT, "'%s' is missing or out of range%s", field->c_str(),
                 fields.broken() ? ", and the body is no protobuf message" : "");
  }
  fill<std::string_view>(read_contents(message), request);
  return request;
}

Result<TrainRequest> parse_json_forward_backward(std::string_view body, std::string* field) {
  return parse_json(body, "forward_backward_input", false, field);
}

Result<TrainRequest> parse_json_forward(std::string_view body, std::string* field) {
  return parse_json(body, "forward_input", true, field);
}

Result<TrainRequest> parse_optim_step(std::string_view text, std::string* field) {
  PLEXRL_ASSIGN(const Json body, parse_body(text));
  BodyFields fields(body);
  TrainRequest request;
  read_stream_fields(fields, request);
  if (!fields.status().ok()) {
    *field = fields.field();
    return fields.status();
  }
  wire::OptimStepArgsT args;
  request.refusal = read_adam(fields, args);
  request.args.Set(std::move(args));
  return request;
}

std::string forward_backward_message(const wire::ForwardBackwardResultT& result) {
  std::string data, offsets;
  const auto mark = [&] {
    const std::uint64_t at = data.size();
    offsets.append(reinterpret_cast<const char*>(&at), sizeof at);
  };
  mark();
  for (const auto& row : result.logprobs) {
    data += float_bytes(row->values);
    mark();
  }
  ProtoWriter batch;  // BatchedTensor
  batch.bytes(1, data);
  batch.bytes(2, offsets);
  batch.varint(3, 1);  // DTYPE_FLOAT32
  ProtoWriter entry;   // of ArrayRecord.fields
  entry.bytes(1, "logprobs");
  entry.bytes(2, batch.message());
  ProtoWriter record;
  record.bytes(1, kOutputType);
  record.bytes(2, entry.message());
  record.varint(3, result.logprobs.size());
  ProtoWriter output;
  output.bytes(1, kOutputType);
  output.bytes(2, record.message());
  for (const auto& [name, value] : metrics(result)) {
    ProtoWriter metric;
    metric.bytes(1, name);
    metric.fixed(2, value);
    output.bytes(3, metric.message());
  }
  return output.take();
}

std::string forward_backward_json(const wire::ForwardBackwardResultT& result) {
  Json outputs = Json::array();
  for (const auto& row : result.logprobs) {
    const Json logprobs{
        {"data", row->values}, {"dtype", "float32"}, {"shape", Json::array({row->values.size()})}};
    outputs.push_back(Json{{"logprobs", logprobs}});
  }
  Json named = Json::object();
  for (const auto& [name, value] : metrics(result)) named[name] = value;
  return dump_json(Json{{"loss_fn_output_type", kOutputType},
                        {"loss_fn_outputs", std::move(outputs)},
                        {"metrics", std::move(named)}});
}

std::string optim_step_json(const wire::OptimStepResultT& result) {
  return dump_json(Json{
      {"metrics", {{"grad_norm", result.grad_norm}, {"step", static_cast<double>(result.step)}}}});
}

}  // namespace plexrl::http
