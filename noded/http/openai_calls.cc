// SPDX-License-Identifier: Apache-2.0
#include "http/openai_calls.h"

#include <cstdio>
#include <ctime>

#include "http/api_error.h"
#include "http/completion_gate.h"
#include "http/completion_reply.h"
#include "http/random_number.h"

namespace plexrl::http {
namespace {

// Starts `Call` with what `parse` made of the body.
template <class Call, class Parse>
void begin(HttpContext& context, Exchange& exchange, TenantId tenant, Parse parse) {
  std::string field;
  auto request = parse(exchange.request().body, &field);
  if (!request) return exchange.answer(error_response(request.error(), 0, field));
  auto call = std::make_unique<Call>(context, exchange, tenant, *std::move(request));
  Call& begun = *call;
  exchange.set_handler(std::move(call));
  begun.find_model(begun.model_name());
}

class CompletionCall final : public ModelCall, public GatedCall {
 public:
  CompletionCall(HttpContext& context, Exchange& exchange, TenantId tenant,
                 CompletionRequest request)
      : ModelCall(context, exchange, tenant), request_(std::move(request)) {}
  ~CompletionCall() override { leave(); }
  [[nodiscard]] const std::string& model_name() const { return request_.model; }

  void go_on() override { find_model(request_.model); }
  void withdraw() override { take_back(); }
  void abort() override {
    completion_.rows.assign(completion_.prompts.size() * request_.n, AnswerRow());
    for (AnswerRow& row : completion_.rows) row.aborted = true;
    reply();
  }

 protected:
  void ready() override {
    if (const Status status = encode(); !status.ok())
      return fail(status, 0, request_.chat ? "messages" : "prompt");
    model_name_ = request_.model.empty() ? model().base : request_.model;
    if (context().gate->enter(tenant(), id(), *this)) generate();
  }
  void op_over() override { leave(); }

  void op_done(const wire::OpReplyT& op) override {
    const auto* const result = op.value.AsGenerateResult();
    if (result == nullptr || result->sequences.size() != completion_.prompts.size() * request_.n)
      return fail(error(Code::INTERNAL, "the engine's answer has another number of sequences"));
    for (const auto& sequence : result->sequences)
      completion_.rows.push_back(answer_row(
          request_, codec(),
          {sequence->tokens, sequence->logprobs, sequence->finish == wire::FinishReason::Stop}));
    reply();
  }

 private:
  void leave() { context().gate->leave(tenant(), id()); }

  void generate() {
    wire::GenerateArgsT args;
    args.version = version();
    for (const Tokens& tokens : completion_.prompts) {
      args.prompts.push_back(std::make_unique<wire::PromptT>());
      args.prompts.back()->tokens = tokens;
    }
    args.samples_per_prompt = request_.n;
    args.max_new_tokens = max_tokens();
    args.temperature = request_.temperature;
    args.top_p = request_.top_p;
    args.seed = request_.seed ? *request_.seed : random_number();
    args.stop_tokens = request_.stop_token_ids;
    if (!request_.ignore_end)
      args.stop_tokens.insert(args.stop_tokens.end(), codec().ends().begin(), codec().ends().end());
    wire::OpArgsUnion op;
    op.Set(std::move(args));
    submit(std::move(op));
  }

  void reply() {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%016llx",
                  static_cast<unsigned long long>(random_number()));
    completion_.id = digits;
    completion_.created_s = std::time(nullptr);
    completion_.model = model_name_;
    if (!request_.stream) return answer(completion_json(request_, codec(), completion_));
    answer(completion_events(request_, codec(), completion_), "text/event-stream");
  }

  // Again for a call that was held: by then the name may mean another model.
  Status encode() {
    completion_.prompts.clear();
    if (request_.chat != nullptr) {
      PLEXRL_ASSIGN(Tokens tokens, codec().encode_chat(*request_.chat));
      completion_.prompts.push_back(std::move(tokens));
      return {};
    }
    for (const PromptInput& prompt : request_.prompts) {
      if (const auto* const tokens = std::get_if<Tokens>(&prompt)) {
        completion_.prompts.push_back(*tokens);
        continue;
      }
      PLEXRL_ASSIGN(Tokens tokens,
                    codec().encode(std::get<std::string>(prompt), request_.add_special));
      if (tokens.empty()) return error(Code::INVALID_ARGUMENT, "a prompt is empty");
      completion_.prompts.push_back(std::move(tokens));
    }
    return {};
  }

  // Without a number a chat may fill the context.
  [[nodiscard]] std::uint32_t max_tokens() const {
    if (request_.max_tokens) return *request_.max_tokens;
    const std::size_t used = completion_.prompts.front().size();
    const std::uint32_t positions = model().shape.max_positions;
    return used < positions ? positions - static_cast<std::uint32_t>(used) : 1;
  }

  CompletionRequest request_;
  Completion completion_;
  std::string model_name_;
};

class TokenizeCall final : public ModelCall {
 public:
  TokenizeCall(HttpContext& context, Exchange& exchange, TenantId tenant, TokenizeRequest request)
      : ModelCall(context, exchange, tenant), request_(std::move(request)) {}
  [[nodiscard]] const std::string& model_name() const { return request_.model; }

 protected:
  void ready() override {
    const auto tokens = request_.chat != nullptr
                            ? codec().encode_chat(*request_.chat)
                            : codec().encode(request_.prompt, request_.add_special);
    if (!tokens) return fail(tokens.error(), 0, request_.chat ? "messages" : "prompt");
    answer(tokenize_json(*tokens, model().shape.max_positions,
                         request_.token_texts ? &codec() : nullptr));
  }

 private:
  TokenizeRequest request_;
};

class DetokenizeCall final : public ModelCall {
 public:
  DetokenizeCall(HttpContext& context, Exchange& exchange, TenantId tenant,
                 DetokenizeRequest request)
      : ModelCall(context, exchange, tenant), request_(std::move(request)) {}
  [[nodiscard]] const std::string& model_name() const { return request_.model; }

 protected:
  void ready() override { answer(detokenize_json(codec().decode(request_.tokens, false))); }

 private:
  DetokenizeRequest request_;
};

// Of ".../models/ID" the ID; "" without one or with escapes that are none.
std::string decoded_id(std::string_view path) {
  constexpr std::string_view kHead = "/v1/models/";
  std::string id;
  if (!path.starts_with(kHead)) return id;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
  };
  path.remove_prefix(kHead.size());
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool escape = path[i] == '%';
    const int high = escape && i + 2 < path.size() ? digit(path[i + 1]) : -1;
    const int low = high >= 0 ? digit(path[i + 2]) : -1;
    if (escape && low < 0) return "";
    id += escape ? static_cast<char>(high * 16 + low) : path[i];
    if (escape) i += 2;
  }
  return id;
}

// Waits until the bases of the grant have been described, or could not be.
class ModelListCall final : public Handler {
 public:
  ModelListCall(HttpContext& context, Exchange& exchange, TenantId tenant)
      : context_(context), exchange_(exchange), tenant_(tenant) {}

  void start() {
    const std::vector<std::string> wanted = bases();
    missing_ = wanted.size() + 1;
    for (const std::string& base : wanted) {
      wire::CreateModelT request;
      request.name = sampler_name(base);
      request.base = base;
      request.mode = wire::TrainMode::None;
      context_.node.model_service().create(
          tenant_, std::move(request),
          [&context = context_, id = exchange_.id()](const Result<wire::ModelInfoT>&) {
            Exchange* const exchange = context.server->find(id);
            if (exchange != nullptr && exchange->handler() != nullptr)
              static_cast<ModelListCall*>(exchange->handler())->one_less();
          });
    }
    one_less();
  }

 private:
  // None are left when the job has ended meanwhile.
  [[nodiscard]] std::vector<std::string> bases() const {
    const runtime::Tenant* const tenant = context_.node.tenants().find(tenant_);
    return tenant == nullptr ? std::vector<std::string>() : tenant->grant.models;
  }

  void one_less() {
    if (--missing_ > 0 || exchange_.is_answered()) return;
    const auto models = list();
    const std::string& path = exchange_.request().path;
    Response response;
    if (path == "/v1/models") {
      response.body = model_list_json(models, context_.started_s);
      return exchange_.answer(std::move(response));
    }
    const std::string id = decoded_id(path);
    for (const ListedModel& model : models) {
      if (model.id != id) continue;
      response.body = model_json(model, context_.started_s);
      return exchange_.answer(std::move(response));
    }
    exchange_.answer(error_response(
        error(Code::NOT_FOUND, "The model `%s` does not exist.", id.substr(0, 80).c_str()), 0,
        "model"));
  }

  [[nodiscard]] std::vector<ListedModel> list() const {
    std::vector<ListedModel> models;
    for (const std::string& base : bases()) {
      const auto* sampler = context_.node.models().find(tenant_, sampler_name(base));
      models.push_back({base, base, "", sampler == nullptr ? 0 : sampler->shape.max_positions});
    }
    for (const runtime::Model* model : context_.node.models().of_tenant(tenant_)) {
      if (is_sampler_name(model->name) || model->removing) continue;
      const std::uint32_t length = model->shape.max_positions;
      if (const std::string adapter = adapter_of(model->name); !adapter.empty()) {
        if (model->latest_version > 0) models.push_back({adapter, adapter, model->base, length});
        continue;
      }
      models.push_back({model->name, model->name, model->base, length});
      if (model->latest_version == 0) continue;
      const std::string version = model->name + "@" + std::to_string(model->latest_version);
      models.push_back({version, model->name, model->base, length});
    }
    return models;
  }

  HttpContext& context_;
  Exchange& exchange_;
  TenantId tenant_;
  std::size_t missing_ = 0;
};

}  // namespace

void begin_completion(HttpContext& context, Exchange& exchange, TenantId tenant) {
  begin<CompletionCall>(context, exchange, tenant, parse_completion);
}

void begin_chat(HttpContext& context, Exchange& exchange, TenantId tenant) {
  begin<CompletionCall>(context, exchange, tenant, parse_chat);
}

void begin_tokenize(HttpContext& context, Exchange& exchange, TenantId tenant) {
  begin<TokenizeCall>(context, exchange, tenant, parse_tokenize);
}

void begin_detokenize(HttpContext& context, Exchange& exchange, TenantId tenant) {
  begin<DetokenizeCall>(context, exchange, tenant, parse_detokenize);
}

void begin_model_list(HttpContext& context, Exchange& exchange, TenantId tenant) {
  auto call = std::make_unique<ModelListCall>(context, exchange, tenant);
  ModelListCall& begun = *call;
  exchange.set_handler(std::move(call));
  begun.start();
}

}  // namespace plexrl::http
