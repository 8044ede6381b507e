// SPDX-License-Identifier: Apache-2.0
#include "engine/fake_program.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "wire/frame.h"

namespace plexrl::engine {
namespace {

using wire::SegmentKind;

constexpr std::uint32_t kMaxPositions = 64;
constexpr std::uint64_t kKvBytesPerPosition = 64;

template <class Message>
wire::EngineBodyUnion body_of(Message message) {
  wire::EngineBodyUnion body;
  body.Set(std::move(message));
  return body;
}

wire::EngineBodyUnion done() { return body_of(wire::EngineDoneT()); }

Status refuse(std::uint64_t model, const char* why) {
  return error(Code::INVALID_ARGUMENT, "model %llu %s", static_cast<unsigned long long>(model),
               why);
}

std::unique_ptr<wire::SegmentPlaceT> place_of(SegmentKind kind, const FakeSegment& segment) {
  auto place = std::make_unique<wire::SegmentPlaceT>();
  place->kind = kind;
  place->bytes = segment.bytes;
  place->device = segment.device;
  return place;
}

wire::EngineMovedT moved(const FakeModel& model) {
  wire::EngineMovedT reply;
  reply.step = model.step;
  reply.version = model.version;
  reply.gradients_pending = model.gradients_pending;
  reply.seq = model.committed_seq;
  return reply;
}

// plexrld names the segments before it knows of ops that end meanwhile: the position of such an op
// must not be committed without what it wrote.
Status check_complete(const FakeModel& model, const wire::EngineCommitT& request) {
  for (const SegmentKind kind : model.written) {
    const bool named = std::any_of(request.segments.begin(), request.segments.end(),
                                   [&](const auto& place) { return place->kind == kind; });
    if (!named)
      return error(Code::BUSY, "segment %s of model %llu was written since the commit was planned",
                   wire::EnumNameSegmentKind(kind), static_cast<unsigned long long>(request.model));
  }
  return {};
}

}  // namespace

wire::EngineDescriptionT fake_description(const FakeEngineOptions& options, wire::TrainMode mode) {
  wire::EngineDescriptionT description;
  const auto add = [&](SegmentKind kind, bool committed) {
    auto size = std::make_unique<wire::SegmentSizeT>();
    size->kind = kind;
    size->bytes = options.segment_bytes;
    size->committed = committed;
    description.segments.push_back(std::move(size));
  };
  if (mode == wire::TrainMode::None) {
    add(SegmentKind::Base, false);
  } else {
    for (const SegmentKind kind : {SegmentKind::Weights, SegmentKind::AdamM, SegmentKind::AdamV,
                                   SegmentKind::SamplerWeights})
      add(kind, true);
    add(SegmentKind::Gradients, false);
  }
  description.vocab_size = options.vocab_size;
  description.max_positions = kMaxPositions;
  description.parameters = options.segment_bytes / sizeof(float);
  description.trainable_parameters = mode == wire::TrainMode::None ? 0 : description.parameters;
  description.tokenizer = R"({"type":"char","alphabet":"0123456789+=>;ab?","vocab_size":)" +
                          std::to_string(options.vocab_size) + "}";
  description.kv_bytes_per_position = kKvBytesPerPosition;
  return description;
}

FakeProgram::Body FakeProgram::handle(const wire::EngineBodyUnion& request,
                                      const std::vector<int>& fds) {
  if (const auto* attach_pools = request.AsEngineAttachPools()) return attach(*attach_pools, fds);
  if (const auto* describe = request.AsEngineDescribe())
    return body_of(fake_description(options_, describe->mode));
  if (const auto* in = request.AsEngineResume()) return resume(*in);
  if (const auto* out = request.AsEngineSuspend()) return suspend(*out);
  if (const auto* copy = request.AsEngineCommit()) return commit(*copy);
  if (const auto* forget = request.AsEngineForget()) {
    models_.erase(forget->model);
    parked_.erase(forget->model);
    return done();
  }
  if (request.AsEngineAwaitFill() != nullptr || request.AsEngineQuit() != nullptr) return done();
  return error(Code::UNSUPPORTED, "the engine does not know request %d",
               static_cast<int>(request.type));
}

FakeProgram::Body FakeProgram::attach(const wire::EngineAttachPoolsT& request,
                                      const std::vector<int>& fds) {
  if (fds.size() != 2 || device_)
    return error(Code::INVALID_ARGUMENT, "attach: two pools, once; %zu came", fds.size());
  UniqueFd device(::fcntl(fds[0], F_DUPFD_CLOEXEC, 0));
  UniqueFd host(::fcntl(fds[1], F_DUPFD_CLOEXEC, 0));
  if (!device || !host) return errno_error(Code::IO, errno, "attach: dup");
  PLEXRL_ASSIGN(auto device_pool,
                FakePool::open(std::move(device), request.chunk_bytes, request.device_chunks));
  PLEXRL_ASSIGN(auto host_pool,
                FakePool::open(std::move(host), request.chunk_bytes, request.host_chunks));
  device_.emplace(std::move(device_pool));
  host_.emplace(std::move(host_pool));
  return done();
}

Status FakeProgram::check(const wire::EngineResumeT& request) const {
  if (!device_) return refuse(request.model, "cannot be resumed before the pools are attached");
  if (models_.contains(request.model)) return refuse(request.model, "is resident");
  for (const auto& place : request.segments) {
    PLEXRL_TRY(device_->check(place->device, place->bytes));
    if (!place->host.empty()) PLEXRL_TRY(host_->check(place->host, place->bytes));
  }
  return {};
}

FakeProgram::Body FakeProgram::resume(const wire::EngineResumeT& request) {
  PLEXRL_TRY(check(request));
  if (failed_resumes_ < options_.fail_resumes) {
    ++failed_resumes_;
    return error(Code::NO_CAPACITY, "resume: a fault on demand");
  }
  FakeModel model;
  if (const auto parked = parked_.find(request.model); parked != parked_.end()) {
    model.applied_seq = parked->second.applied_seq;
    model.started_seq = parked->second.started_seq;
    model.partial_op = parked->second.partial_op;
    model.earlier = std::move(parked->second.earlier);
    model.undo_partial = parked->second.undo_partial;
  }
  model.mode = request.mode;
  model.lora_rank = request.lora_rank;
  model.seed = request.seed;
  model.step = request.step;
  model.version = request.version;
  model.gradients_pending = request.gradients_pending;
  model.committed_seq = request.seq;
  // With pending gradients the ops after the commit are in them; only the engine that ran them
  // knows.
  if (!request.gradients_pending) model.applied_seq = request.seq;
  const FakeMaths maths(*device_, options_.vocab_size);
  for (const auto& place : request.segments) {
    model.segments[place->kind] = {place->bytes, place->device};
    if (place->host.empty()) maths.initialise(model, place->kind);
    if (!place->host.empty()) copy_chunks(*host_, place->host, *device_, place->device);
  }
  // Gradients that are not brought back hold nothing of a dropped op.
  if (model.undo_partial && request.gradients_pending) maths.undo_partial(model);
  parked_.erase(request.model);
  auto reply = moved(model);
  models_.emplace(request.model, std::move(model));
  return body_of(std::move(reply));
}

Result<FakeModel*> FakeProgram::resident(std::uint64_t model) {
  const auto found = models_.find(model);
  if (found == models_.end()) return refuse(model, "is not resident");
  return &found->second;
}

Status FakeProgram::copy_out(const FakeModel& model, const wire::SegmentPlaceT& place) const {
  const auto segment = model.segments.find(place.kind);
  if (segment == model.segments.end())
    return error(Code::INVALID_ARGUMENT, "the model has no segment %s",
                 wire::EnumNameSegmentKind(place.kind));
  if (place.host.empty()) return {};
  PLEXRL_TRY(host_->check(place.host, segment->second.bytes));
  copy_chunks(*device_, segment->second.device, *host_, place.host);
  return {};
}

FakeProgram::Body FakeProgram::suspend(const wire::EngineSuspendT& request) {
  PLEXRL_ASSIGN(FakeModel* const model, resident(request.model));
  if (failed_suspends_ < options_.fail_suspends) {
    ++failed_suspends_;
    return error(Code::IO, "suspend: a fault on demand");
  }
  bool keeps_kv = !model->segments.contains(SegmentKind::Kv);
  for (const auto& place : request.segments) {
    keeps_kv = keeps_kv || (place->kind == SegmentKind::Kv && !place->host.empty());
    PLEXRL_TRY(copy_out(*model, *place));
  }
  if (!keeps_kv) return refuse(request.model, "has KV that needs host chunks, or drop the op");
  auto reply = moved(*model);
  parked_[request.model] = std::move(*model);
  models_.erase(request.model);
  return body_of(std::move(reply));
}

FakeProgram::Body FakeProgram::commit(const wire::EngineCommitT& request) {
  PLEXRL_ASSIGN(FakeModel* const model, resident(request.model));
  PLEXRL_TRY(check_complete(*model, request));
  for (const auto& place : request.segments) {
    if (place->kind == SegmentKind::Gradients || place->host.empty())
      return refuse(request.model, "was to be committed with gradients or without host chunks");
    PLEXRL_TRY(copy_out(*model, *place));
    if (options_.corrupt_commits) host_->chunk(place->host[0])[0] ^= std::byte{1};
  }
  model->written.clear();
  wire::EngineCommittedT reply;
  reply.model = request.model;
  reply.epoch = request.epoch;
  reply.step = model->step;
  reply.version = model->version;
  reply.seq = model->committed_seq;
  return body_of(std::move(reply));
}

Status FakeProgram::begin(const wire::EngineRunOpT& op) {
  PLEXRL_ASSIGN(FakeModel* const model, resident(op.model));
  model->started_seq = std::max(model->started_seq, op.seq);
  if (!op.kv || model->segments.contains(SegmentKind::Kv)) return {};
  PLEXRL_TRY(device_->check(op.kv->device, op.kv->bytes));
  model->segments[SegmentKind::Kv] = {op.kv->bytes, op.kv->device};
  FakeMaths(*device_, options_.vocab_size).fill_kv(*model, op.op);
  return {};
}

Result<wire::OpValueUnion> FakeProgram::run(const wire::EngineRunOpT& op, int file) {
  PLEXRL_ASSIGN(FakeModel* const model, resident(op.model));
  const FakeMaths maths(*device_, options_.vocab_size);
  if (op.args.AsGenerateArgs() != nullptr) PLEXRL_TRY(maths.check_kv(*model, op.op));
  return maths.run(*model, op, file);
}

void FakeProgram::unmap_kv(std::uint64_t model) {
  for (auto* models : {&models_, &parked_})
    if (const auto found = models->find(model); found != models->end())
      found->second.segments.erase(SegmentKind::Kv);
}

void FakeProgram::yielded(const wire::EngineRunOpT& op) {
  if (const auto found = models_.find(op.model); found != models_.end())
    FakeMaths(*device_, options_.vocab_size).add_partial(found->second, op);
}

void FakeProgram::dropped(std::uint64_t model, std::uint64_t op) {
  unmap_kv(model);
  if (const auto found = models_.find(model);
      found != models_.end() && found->second.partial_op == op)
    FakeMaths(*device_, options_.vocab_size).undo_partial(found->second);
  if (const auto found = parked_.find(model);
      found != parked_.end() && found->second.partial_op == op)
    found->second.undo_partial = true;
}

wire::EngineHelloT FakeProgram::hello() const {
  wire::EngineHelloT hello;
  hello.protocol = wire::kEngineProtocolVersion;
  hello.engine = spec_.id.value;
  hello.base = spec_.base_name;
  hello.mode = spec_.mode;
  hello.pid = ::getpid();
  if (device_) {
    hello.chunk_bytes = device_->chunk_bytes();
    hello.device_chunks = static_cast<std::uint32_t>(device_->chunks());
    hello.host_chunks = static_cast<std::uint32_t>(host_->chunks());
  }
  for (const auto& [id, model] : models_) {
    auto held = std::make_unique<wire::ModelHeldT>();
    held->model = id;
    held->mode = model.mode;
    held->lora_rank = model.lora_rank;
    held->seed = model.seed;
    held->step = model.step;
    held->version = model.version;
    held->applied_seq = model.applied_seq;
    held->committed_seq = model.committed_seq;
    held->started_seq = model.started_seq;
    held->gradients_pending = model.gradients_pending;
    for (const auto& [kind, segment] : model.segments)
      held->segments.push_back(place_of(kind, segment));
    hello.models.push_back(std::move(held));
  }
  return hello;
}

std::vector<UniqueFd> FakeProgram::pool_fds() const {
  std::vector<UniqueFd> fds;
  if (!device_) return fds;
  fds.emplace_back(::fcntl(device_->fd(), F_DUPFD_CLOEXEC, 0));
  fds.emplace_back(::fcntl(host_->fd(), F_DUPFD_CLOEXEC, 0));
  return fds;
}

std::uint64_t FakeProgram::resident_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, model] : models_)
    for (const auto& [kind, segment] : model.segments) bytes += segment.bytes;
  return bytes;
}

}  // namespace plexrl::engine
