// SPDX-License-Identifier: Apache-2.0
#include "engine/fake_model.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace plexrl::engine {
namespace {

using wire::SegmentKind;
constexpr SegmentKind kTrained[] = {SegmentKind::Weights, SegmentKind::AdamM, SegmentKind::AdamV};

// The fake has no memory cap that would bound an answer.
constexpr std::uint64_t kMaxRows = 4096;
constexpr std::uint32_t kMaxNewTokens = 4096;
// One word of KV in 1,024 bytes tells its op: a chunk that was mixed up or not copied shows, and
// the fake is cheap beside the daemon that it measures.
constexpr std::uint64_t kKvMarkEvery = 128;

std::uint64_t number(SegmentKind kind) { return static_cast<std::uint64_t>(kind); }

// A training op's input as one number: its bytes as they are sent.
std::uint64_t input_of(const wire::OpArgsUnion& args) {
  flatbuffers::FlatBufferBuilder builder;
  (void)args.Pack(builder);
  std::uint64_t value = builder.GetSize();
  const std::uint8_t* const bytes = builder.GetCurrentBufferPointer();
  for (flatbuffers::uoffset_t i = 0; i < builder.GetSize(); ++i) value = fake_mix(value, bytes[i]);
  return value;
}

void note_written(FakeModel& model, const wire::OpArgsUnion& args) {
  const auto* const save = args.AsSaveArgs();
  if (save != nullptr && save->target == wire::SaveTarget::Sampler)
    model.written.insert(SegmentKind::SamplerWeights);
  if (args.AsOptimStepArgs() != nullptr || args.AsLoadArgs() != nullptr)
    model.written.insert(std::begin(kTrained), std::end(kTrained));
}

// In [-8, 0), exact in float.
float logprob_of(std::uint64_t mixed) { return -static_cast<float>(1 + mixed % 1024) / 128.0f; }

template <class Value>
wire::OpValueUnion value_of(Value value) {
  wire::OpValueUnion result;
  result.Set(std::move(value));
  return result;
}

Status no_file(const char* what) {
  return error(Code::INVALID_ARGUMENT, "%s: no file descriptor came with the op", what);
}

}  // namespace

FakeWords FakeMaths::words(const FakeModel& model, SegmentKind kind) const {
  const FakeSegment& segment = model.segments.at(kind);
  return {device_, segment.device, segment.bytes};
}

std::uint64_t FakeMaths::digest(const FakeModel& model, SegmentKind kind) const {
  const FakeWords all = words(model, kind);
  std::uint64_t value = number(kind);
  for (std::uint64_t i = 0; i < all.size(); ++i) value = fake_mix(value, all.at(i));
  return value;
}

void FakeMaths::initialise(const FakeModel& model, SegmentKind kind) const {
  const bool random = kind == SegmentKind::Weights || kind == SegmentKind::Base;
  const FakeWords all = words(model, kind);
  for (std::uint64_t i = 0; i < all.size(); ++i) all.at(i) = random ? fake_mix(model.seed, i) : 0;
}

void FakeMaths::fill_kv(const FakeModel& model, std::uint64_t op) const {
  if (!model.segments.contains(SegmentKind::Kv)) return;
  const FakeWords all = words(model, SegmentKind::Kv);
  for (std::uint64_t i = 0; i < all.size(); i += kKvMarkEvery) all.at(i) = fake_mix(op, i);
}

Status FakeMaths::check_kv(const FakeModel& model, std::uint64_t op) const {
  if (!model.segments.contains(SegmentKind::Kv)) return {};
  const FakeWords all = words(model, SegmentKind::Kv);
  for (std::uint64_t i = 0; i < all.size(); i += kKvMarkEvery)
    if (all.at(i) != fake_mix(op, i))
      return error(Code::INTERNAL, "op %llu: word %llu of its KV has changed",
                   static_cast<unsigned long long>(op), static_cast<unsigned long long>(i));
  return {};
}

Result<wire::OpValueUnion> FakeMaths::run(FakeModel& model, const wire::EngineRunOpT& op,
                                          int file) const {
  if (const auto* args = op.args.AsGenerateArgs()) return generate(model, *args);
  if (const auto* args = op.args.AsLogprobsArgs()) return logprobs(model, *args);
  if (op.seq > 0 && op.seq <= model.applied_seq)
    return error(Code::PROTOCOL, "training op %llu was applied before",
                 static_cast<unsigned long long>(op.seq));
  if (!model.segments.contains(SegmentKind::Gradients))
    return error(Code::UNSUPPORTED, "the model is not trained");
  Result<wire::OpValueUnion> result = apply(model, op, file);
  if (!result) return result;
  model.applied_seq = std::max(model.applied_seq, op.seq);
  if (!model.gradients_pending) model.committed_seq = model.applied_seq;
  note_written(model, op.args);
  return result;
}

Result<wire::OpValueUnion> FakeMaths::apply(FakeModel& model, const wire::EngineRunOpT& op,
                                            int file) const {
  if (op.args.AsForwardBackwardArgs() != nullptr) return forward_backward(model, op);
  if (op.args.AsOptimStepArgs() != nullptr) return optim_step(model, input_of(op.args));
  const auto* const args = op.args.AsSaveArgs();
  if (args == nullptr) return load(model, file);
  if (args->target == wire::SaveTarget::Sampler) return publish(model, op.version_out);
  return save(model, file);
}

Result<std::uint64_t> FakeMaths::sampled_state(const FakeModel& model,
                                               std::uint64_t version) const {
  if (version == 0) return std::uint64_t{0};
  if (version == model.version && model.segments.contains(SegmentKind::SamplerWeights))
    return digest(model, SegmentKind::SamplerWeights);
  return error(Code::NOT_FOUND, "version %llu is not here, the newest is %llu",
               static_cast<unsigned long long>(version),
               static_cast<unsigned long long>(model.version));
}

Result<wire::OpValueUnion> FakeMaths::generate(const FakeModel& model,
                                               const wire::GenerateArgsT& args) const {
  PLEXRL_ASSIGN(const std::uint64_t state, sampled_state(model, args.version));
  wire::GenerateResultT result;
  result.version = args.version;
  const std::uint64_t rows = args.prompts.size() * args.samples_per_prompt;
  if (args.max_new_tokens > kMaxNewTokens || rows > kMaxRows)
    return error(Code::TOO_LARGE, "%llu rows of %u new tokens, at most %llu of %u",
                 static_cast<unsigned long long>(rows), args.max_new_tokens,
                 static_cast<unsigned long long>(kMaxRows), kMaxNewTokens);
  const auto add = [&](std::uint64_t seed, std::uint64_t prompts) {
    for (std::uint64_t row = 0; row < prompts * args.samples_per_prompt; ++row)
      result.sequences.push_back(
          std::make_unique<wire::SequenceT>(sequence(args, seed ^ state, row)));
  };
  if (args.groups.empty()) add(args.seed, args.prompts.size());
  for (const auto& group : args.groups) add(group->seed, group->prompts);
  return value_of(std::move(result));
}

wire::SequenceT FakeMaths::sequence(const wire::GenerateArgsT& args, std::uint64_t seed,
                                    std::uint64_t row) const {
  wire::SequenceT sequence;
  sequence.finish = wire::FinishReason::Length;
  for (std::uint64_t position = 0; position < args.max_new_tokens; ++position) {
    const std::uint64_t mixed = fake_mix(seed, row, position);
    const auto token = static_cast<std::int32_t>(mixed % vocab_size_);
    sequence.tokens.push_back(token);
    sequence.logprobs.push_back(logprob_of(mixed >> 32));
    const auto& stops = args.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) == stops.end()) continue;
    sequence.finish = wire::FinishReason::Stop;
    break;
  }
  return sequence;
}

Result<wire::OpValueUnion> FakeMaths::logprobs(const FakeModel& model,
                                               const wire::LogprobsArgsT& args) const {
  PLEXRL_ASSIGN(const std::uint64_t state, sampled_state(model, args.version));
  wire::LogprobsResultT result;
  for (const auto& sequence : args.sequences) {
    auto row = std::make_unique<wire::FloatRowT>();
    for (std::size_t i = 1; i < sequence->tokens.size(); ++i)
      row->values.push_back(
          logprob_of(fake_mix(state, i, static_cast<std::uint64_t>(sequence->tokens[i]))));
    result.rows.push_back(std::move(row));
  }
  return value_of(std::move(result));
}

Result<wire::OpValueUnion> FakeMaths::forward_backward(FakeModel& model,
                                                       const wire::EngineRunOpT& op) const {
  const auto& args = *op.args.AsForwardBackwardArgs();
  const std::uint64_t weights = digest(model, SegmentKind::Weights);
  wire::ForwardBackwardResultT result;
  result.ratio_mean = 1;
  for (const auto& datum : args.data) {
    auto row = std::make_unique<wire::FloatRowT>();
    for (const std::int32_t target : datum->target_tokens)
      row->values.push_back(
          logprob_of(fake_mix(weights, row->values.size(), static_cast<std::uint64_t>(target))));
    for (const float value : row->values) result.loss_sum -= static_cast<double>(value);
    result.token_count += row->values.size();
    result.logprobs.push_back(std::move(row));
  }
  if (result.token_count > 0)
    result.entropy_mean = result.loss_sum / static_cast<double>(result.token_count);
  if (!args.forward_only) {
    const std::uint64_t size = words(model, SegmentKind::Gradients).size();
    add_gradients(model, input_of(op.args), model.partial_op == op.op ? size / 2 : 0, size);
    model.partial_op = 0;
    model.gradients_pending = true;
  }
  return value_of(std::move(result));
}

void FakeMaths::add_gradients(const FakeModel& model, std::uint64_t input, std::uint64_t first,
                              std::uint64_t end) const {
  const std::uint64_t weights = digest(model, SegmentKind::Weights);
  const FakeWords gradients = words(model, SegmentKind::Gradients);
  for (std::uint64_t i = first; i < end; ++i) gradients.at(i) += fake_mix(input ^ weights, i);
}

void FakeMaths::add_partial(FakeModel& model, const wire::EngineRunOpT& op) const {
  const auto* const args = op.args.AsForwardBackwardArgs();
  if (args == nullptr || args->forward_only || model.partial_op == op.op) return;
  const FakeWords gradients = words(model, SegmentKind::Gradients);
  model.partial_op = op.op;
  model.earlier.clear();
  for (std::uint64_t i = 0; i < gradients.size(); ++i) model.earlier.push_back(gradients.at(i));
  add_gradients(model, input_of(op.args), 0, gradients.size() / 2);
}

void FakeMaths::undo_partial(FakeModel& model) const {
  const FakeWords gradients = words(model, SegmentKind::Gradients);
  for (std::uint64_t i = 0; i < gradients.size(); ++i) gradients.at(i) = model.earlier[i];
  model.partial_op = 0;
  model.undo_partial = false;
}

Result<wire::OpValueUnion> FakeMaths::optim_step(FakeModel& model, std::uint64_t input) const {
  if (!model.gradients_pending)
    return error(Code::INVALID_ARGUMENT, "optim_step without forward_backward");
  const FakeWords gradients = words(model, SegmentKind::Gradients);
  for (const SegmentKind kind : kTrained) {
    const FakeWords all = words(model, kind);
    for (std::uint64_t i = 0; i < all.size(); ++i)
      all.at(i) = fake_mix(all.at(i), gradients.at(i % gradients.size()), input + number(kind));
  }
  for (std::uint64_t i = 0; i < gradients.size(); ++i) gradients.at(i) = 0;
  model.gradients_pending = false;
  wire::OptimStepResultT result;
  result.step = ++model.step;
  result.grad_norm = 1;
  return value_of(std::move(result));
}

Result<wire::OpValueUnion> FakeMaths::publish(FakeModel& model, std::uint64_t version) const {
  const FakeWords from = words(model, SegmentKind::Weights);
  const FakeWords to = words(model, SegmentKind::SamplerWeights);
  for (std::uint64_t i = 0; i < to.size(); ++i) to.at(i) = from.at(i % from.size());
  model.version = version;
  wire::SaveResultT result;
  result.version = version;
  result.step = model.step;
  result.bytes = model.segments.at(SegmentKind::SamplerWeights).bytes;
  return value_of(std::move(result));
}

// A checkpoint is the step and the words of the trained segments.
Result<wire::OpValueUnion> FakeMaths::save(const FakeModel& model, int file) const {
  if (file < 0) return no_file("save");
  std::vector<std::uint64_t> checkpoint{model.step};
  for (const SegmentKind kind : kTrained) {
    const FakeWords all = words(model, kind);
    for (std::uint64_t i = 0; i < all.size(); ++i) checkpoint.push_back(all.at(i));
  }
  const std::size_t bytes = checkpoint.size() * sizeof(std::uint64_t);
  if (::pwrite(file, checkpoint.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    return errno_error(Code::IO, errno, "save");
  wire::SaveResultT result;
  result.step = model.step;
  result.bytes = bytes;
  return value_of(std::move(result));
}

Result<wire::OpValueUnion> FakeMaths::load(FakeModel& model, int file) const {
  if (file < 0) return no_file("load");
  std::uint64_t count = 1;
  for (const SegmentKind kind : kTrained) count += words(model, kind).size();
  std::vector<std::uint64_t> checkpoint(count);
  const std::size_t bytes = count * sizeof(std::uint64_t);
  if (::pread(file, checkpoint.data(), bytes, 0) != static_cast<ssize_t>(bytes))
    return error(Code::CORRUPT, "load: not a checkpoint of such a model");
  auto next = checkpoint.begin();
  model.step = *next++;
  for (const SegmentKind kind : kTrained) {
    const FakeWords all = words(model, kind);
    for (std::uint64_t i = 0; i < all.size(); ++i) all.at(i) = *next++;
  }
  const FakeWords gradients = words(model, SegmentKind::Gradients);
  for (std::uint64_t i = 0; i < gradients.size(); ++i) gradients.at(i) = 0;
  model.gradients_pending = false;
  wire::LoadResultT result;
  result.step = model.step;
  return value_of(std::move(result));
}

}  // namespace plexrl::engine
