// SPDX-License-Identifier: Apache-2.0
#include "http/tinker_samples.h"

#include <cmath>

#include "http/random_number.h"
#include "http/tinker_calls.h"
#include "http/tinker_state.h"

namespace plexrl::http {
namespace {

std::size_t bytes_of(const SampleResult& result) {
  std::size_t bytes = 256 + result.prompt_logprobs.size() * sizeof(float);
  for (const AnswerRow& row : result.rows) bytes += 128 + row.tokens.size() * 8 + row.text.size();
  return bytes;
}

}  // namespace

TinkerSamples::TinkerSamples(HttpContext& context)
    : context_(context), run_(random_number() >> 1) {}

TinkerSamples::Sample* TinkerSamples::find(Number number) {
  const auto found = samples_.find(number);
  return found == samples_.end() ? nullptr : &found->second;
}

TinkerSamples::Sample* TinkerSamples::find(TenantId tenant, const Promise& promise) {
  Sample* const sample = promise.a == run_ ? find(promise.b) : nullptr;
  return sample != nullptr && sample->tenant == tenant ? sample : nullptr;
}

// Older requests name a base or a path instead of a session.
Result<SamplerId> TinkerSamples::sampler_of(TenantId tenant, const TinkerSample& request) const {
  SamplerId sampler;
  if (!request.sampler.empty()) {
    auto found = parse_sampler(tenant, request.sampler);
    if (found) return *found;
    return error(Code::NOT_FOUND, "this job has no sampling session '%s'",
                 request.sampler.substr(0, 120).c_str());
  }
  if (!request.path.empty()) {
    PLEXRL_ASSIGN(const CheckpointName checkpoint, parse_checkpoint_path(request.path));
    sampler.kind = SamplerId::Kind::kCheckpoint;
    sampler.file = checkpoint_file(checkpoint);
    return sampler;
  }
  const auto& bases = context_.node.tenants().find(tenant)->grant.models;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    sampler.base = i;
    if (bases[i] == request.base) return sampler;
  }
  return error(Code::NOT_FOUND, "'%s' is no base of this job's grant; name it as 'base_model'",
               request.base.substr(0, 80).c_str());
}

void TinkerSamples::begin(Exchange& exchange, TenantId tenant, TinkerSample request) {
  auto sampler = sampler_of(tenant, request);
  if (!sampler) return answer_refusal(exchange, sampler.error());
  OfTenant& of_tenant = tenants_[tenant];
  const std::pair key(request.sampler, request.seq);
  const auto known = of_tenant.known.find(key);
  if (!request.sampler.empty() && known != of_tenant.known.end()) {
    Sample& same = samples_.at(known->second);
    same.starters.push_back(exchange.id());
    if (same.taken) take(same);
    return;
  }
  const Number number = ++last_number_;
  if (!request.sampler.empty()) of_tenant.known[key] = number;
  Sample& sample = samples_[number];
  sample.tenant = tenant;
  sample.number = number;
  sample.request = std::move(request);
  sample.sampler = *std::move(sampler);
  sample.starters.push_back(exchange.id());
  find_model(sample);
}

// ---- the model that is sampled ----

void TinkerSamples::find_model(Sample& sample) {
  const Number number = sample.number;
  const TenantId tenant = sample.tenant;
  if (sample.sampler.kind == SamplerId::Kind::kVersion) {
    const runtime::Model* const model = find_tinker_model(context_, tenant, sample.sampler.model);
    return model_found(number,
                       model == nullptr
                           ? Result<ModelId>(error(Code::NOT_FOUND, "the model was unloaded"))
                           : Result<ModelId>(model->id),
                       sample.sampler.version);
  }
  if (sample.sampler.kind == SamplerId::Kind::kCheckpoint)
    return load_for_sampling(context_, tenant, sample.sampler.file,
                             [this, number](const Result<ModelId>& model) {
                               model_found(number, model, kLoadedVersion);
                             });
  const auto& bases = context_.node.tenants().find(tenant)->grant.models;
  if (sample.sampler.base >= bases.size())
    return drop(number, error(Code::NOT_FOUND, "the grant has no such base"), 0);
  wire::CreateModelT request;
  request.base = bases[sample.sampler.base];
  request.name = sampler_name(request.base);
  request.mode = wire::TrainMode::None;
  context_.node.model_service().create(
      tenant, std::move(request), [this, number](const Result<wire::ModelInfoT>& made) {
        model_found(number, made ? Result<ModelId>(ModelId{made->model}) : made.error(), 0);
      });
}

void TinkerSamples::model_found(Number number, const Result<ModelId>& id, std::uint64_t version) {
  Sample* const sample = find(number);
  if (sample == nullptr) return;
  if (!id) return drop(number, id.error(), 0);
  const runtime::Model* const model = context_.node.models().find(*id);
  if (model == nullptr) return drop(number, error(Code::NOT_FOUND, "the model was removed"), 0);
  sample->model = *id;
  sample->version = version;
  context_.codecs.get(model->base, model->shape.tokenizer,
                      [this, number](const Result<std::shared_ptr<const TextCodec>>& codec) {
                        codec_found(number, codec);
                      });
}

// Log-probabilities of the prompt first: the generate is what may take long.
void TinkerSamples::codec_found(Number number,
                                const Result<std::shared_ptr<const TextCodec>>& codec) {
  Sample* const sample = find(number);
  if (sample == nullptr) return;
  if (!codec) return drop(number, codec.error(), 0);
  sample->codec = *codec;
  const Tokens& prompt = sample->request.prompt;
  if (!sample->request.prompt_logprobs) return generate(number);
  sample->result.prompt_logprobs.assign(prompt.size(), NAN);
  if (prompt.size() < 2) return generate(number);
  wire::LogprobsArgsT args;
  args.version = sample->version;
  args.sequences.push_back(std::make_unique<wire::PromptT>());
  args.sequences.back()->tokens = prompt;
  wire::OpArgsUnion op;
  op.Set(std::move(args));
  submit(*sample, std::move(op));
}

void TinkerSamples::generate(Number number) {
  Sample* const sample = find(number);
  const runtime::Model* const model = context_.node.models().find(sample->model);
  if (model == nullptr) return drop(number, error(Code::NOT_FOUND, "the model was removed"), 0);
  const TinkerSample& request = sample->request;
  const std::uint32_t positions = model->shape.max_positions;
  const auto used = static_cast<std::uint32_t>(request.prompt.size());
  wire::GenerateArgsT args;
  args.version = sample->version;
  args.prompts.push_back(std::make_unique<wire::PromptT>());
  args.prompts.back()->tokens = request.prompt;
  args.samples_per_prompt = request.count;
  args.max_new_tokens = request.max_tokens.value_or(used < positions ? positions - used : 1);
  args.temperature = request.temperature;
  args.top_p = request.top_p;
  args.seed = request.seed ? *request.seed : random_number();
  args.stop_tokens = request.stop_tokens;
  const Tokens& ends = sample->codec->ends();
  args.stop_tokens.insert(args.stop_tokens.end(), ends.begin(), ends.end());
  wire::OpArgsUnion op;
  op.Set(std::move(args));
  submit(*sample, std::move(op));
}

// The op may end before this does.
void TinkerSamples::submit(Sample& sample, wire::OpArgsUnion args) {
  const Number number = sample.number;
  runtime::SubmitRequest submit;
  submit.tenant = sample.tenant;
  submit.session = TinkerState::owner(sample.tenant);
  submit.request_id = sample.op_request = context_.tinker->next_request();
  submit.client = "tinker";
  submit.submit.model = sample.model.value;
  submit.submit.args = std::move(args);
  submit.handler = [this, number](const runtime::OpOutcome& outcome) { op_ended(number, outcome); };
  context_.node.op_service().submit(std::move(submit));
  if (Sample* const still = find(number)) take(*still);
}

// ---- ends ----

void TinkerSamples::op_ended(Number number, const runtime::OpOutcome& outcome) {
  Sample* const sample = find(number);
  if (sample == nullptr) return;
  const Status& status = outcome.status;
  if (status.scope() == Scope::kRetry) return drop(number, status, outcome.retry_after_ms);
  if (!status.ok()) return finish(*sample, status);
  if (const auto* const logprobs = outcome.reply.value.AsLogprobsResult()) {
    const auto& prompt = sample->request.prompt;
    if (logprobs->rows.size() != 1 || logprobs->rows.front()->values.size() + 1 != prompt.size())
      return finish(*sample, error(Code::INTERNAL, "the engine's answer has another length"));
    const std::size_t wanted = sample->request.last_prompt_logprobs;
    for (std::size_t i = 1; i < prompt.size(); ++i)
      if (prompt.size() - i <= wanted)
        sample->result.prompt_logprobs[i] = logprobs->rows.front()->values[i - 1];
    return generate(number);
  }
  const auto* const made = outcome.reply.value.AsGenerateResult();
  if (made == nullptr || made->sequences.size() != sample->request.count)
    return finish(*sample, error(Code::INTERNAL, "the engine's answer has another number of rows"));
  CompletionRequest cut;
  cut.stop = sample->request.stop;
  cut.skip_special = false;
  for (const auto& sequence : made->sequences) {
    RawRow row{sequence->tokens, sequence->logprobs, sequence->finish == wire::FinishReason::Stop};
    sample->result.rows.push_back(answer_row(cut, *sample->codec, std::move(row)));
    sample->result.rows.back().text.clear();
  }
  finish(*sample, {});
}

// Who asked for the sample has its promise.
void TinkerSamples::take(Sample& sample) {
  sample.taken = true;
  const Promise promise{Promise::kSample, "", run_, sample.number, ""};
  for (const SessionId id : std::exchange(sample.starters, {})) {
    Exchange* const exchange = context_.server->find(id);
    if (exchange == nullptr || exchange->is_answered()) continue;
    Json answer{{"request_id", format_promise(promise)}};
    Json& ids = answer["sample_sequence_ids"] = Json::array();
    for (std::uint32_t i = 0; i < sample.request.count; ++i)
      ids.push_back(format_promise(promise) + std::to_string(i));
    answer_json(*exchange, answer);
  }
}

void TinkerSamples::finish(Sample& sample, Status status) {
  const Number number = sample.number;
  const TenantId tenant = sample.tenant;
  sample.status = std::move(status);
  sample.done = true;
  sample.bytes = bytes_of(sample.result) + sample.request.sampler.size() * 2;
  sample.request.prompt = {};
  take(sample);
  OfTenant& of_tenant = tenants_[tenant];
  of_tenant.finished.push_back(number);
  of_tenant.bytes += sample.bytes;
  for (const SessionId id : std::exchange(sample.polls, {})) {
    Exchange* const exchange = context_.server->find(id);
    if (exchange == nullptr || exchange->is_answered()) continue;
    static_cast<TinkerPoll*>(exchange->handler())->sample_over();
  }
  make_room(tenant);
}

// Without a promise yet its askers hear why not; with one it is lost, and asked for anew.
void TinkerSamples::drop(Number number, const Status& why, std::uint32_t retry_after_ms) {
  Sample* const sample = find(number);
  if (sample == nullptr) return;
  const std::vector<SessionId> starters = std::move(sample->starters);
  const std::set<SessionId> polls = std::move(sample->polls);
  forget(number);
  for (const SessionId id : starters) {
    Exchange* const exchange = context_.server->find(id);
    if (exchange != nullptr && !exchange->is_answered())
      answer_refusal(*exchange, why, retry_after_ms);
  }
  for (const SessionId id : polls) {
    Exchange* const exchange = context_.server->find(id);
    if (exchange != nullptr && !exchange->is_answered())
      static_cast<TinkerPoll*>(exchange->handler())->sample_over();
  }
}

void TinkerSamples::forget(Number number) {
  const auto found = samples_.find(number);
  if (found == samples_.end()) return;
  const Sample& sample = found->second;
  const auto of_tenant = tenants_.find(sample.tenant);
  if (of_tenant != tenants_.end()) {
    of_tenant->second.known.erase({sample.request.sampler, sample.request.seq});
    if (sample.done) of_tenant->second.bytes -= sample.bytes;
  }
  samples_.erase(found);
}

void TinkerSamples::make_room(TenantId tenant) {
  OfTenant& of_tenant = tenants_[tenant];
  while (of_tenant.bytes > kResultBytes || of_tenant.finished.size() > kResults) {
    forget(of_tenant.finished.front());
    of_tenant.finished.pop_front();
  }
}

void TinkerSamples::tenant_closed(TenantId tenant) {
  std::erase_if(samples_, [&](const auto& entry) { return entry.second.tenant == tenant; });
  tenants_.erase(tenant);
}

}  // namespace plexrl::http
