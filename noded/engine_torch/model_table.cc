// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/model_table.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"

namespace plexrl::worker {
namespace {

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return errno_error(Code::IO, errno, "duplicate descriptor %d", fd);
  return copy;
}

const char* kind_name(wire::SegmentKind kind) { return wire::EnumNameSegmentKind(kind); }

const wire::SegmentPlaceT* find_place(const wire::EngineResumeT& request, wire::SegmentKind kind) {
  for (const auto& place : request.segments)
    if (place && place->kind == kind) return place.get();
  return nullptr;
}

// A model that samples only owns nothing: its weights are the base's.
bool owns(const HeldModel& model, wire::SegmentKind kind) {
  return model.is_base() == (kind == wire::SegmentKind::Base);
}

}  // namespace

Status ModelTable::attach(const wire::EngineAttachPoolsT& pools, std::vector<UniqueFd> fds) {
  if (attached()) return error(Code::EXISTS, "this engine has its pools already");
  if (fds.empty() || fds.size() > 2)
    return error(Code::INVALID_ARGUMENT,
                 "attach needs the host pool and before it the device pool, if there is one; got "
                 "%zu fds",
                 fds.size());
  if (fds.size() == 1) fds.insert(fds.begin(), UniqueFd());
  UniqueFd for_device;
  if (fds[0]) {
    PLEXRL_ASSIGN(for_device, duplicate(fds[0].get()));
  }
  PLEXRL_ASSIGN(auto backend,
                open_device_(std::move(for_device), pools.chunk_bytes, pools.device_chunks));
  PLEXRL_ASSIGN(auto host,
                device::HostPool::open(std::move(fds[1]), pools.chunk_bytes, pools.host_chunks));
  device_ = std::move(backend);
  device_fd_ = std::move(fds[0]);
  host_ = std::move(host);
  begin_mapping();
  return {};
}

// Without it everything works, slower.
void ModelTable::begin_mapping() {
  if (!device::MappedPool::pays(*device_, *host_)) return;
  auto mapped = device::MappedPool::start(*device_, *host_);
  if (mapped)
    mapped_ = std::move(*mapped);
  else
    PLEXRL_LOG(kWarning, "host memory is not mapped for good, copies are slow: %s",
               mapped.error().to_string().c_str());
}

Result<std::vector<UniqueFd>> ModelTable::pool_fds() const {
  std::vector<UniqueFd> fds;
  if (!attached()) return fds;
  for (const int fd : {device_fd_.get(), host_->fd()}) {
    if (fd < 0) continue;  // a device whose memory is no pool
    PLEXRL_ASSIGN(auto copy, duplicate(fd));
    fds.push_back(std::move(copy));
  }
  return fds;
}

HeldModel* ModelTable::find(std::uint64_t id) noexcept {
  const auto found = models_.find(id);
  return found == models_.end() ? nullptr : found->second.get();
}

Result<HeldModel*> ModelTable::open(const wire::EngineResumeT& request) {
  if (!attached()) return error(Code::INVALID_ARGUMENT, "resume before the pools were attached");
  if (HeldModel* const known = find(request.model); known != nullptr) {
    if (known->mode != request.mode || known->lora_rank != request.lora_rank)
      return error(Code::INVALID_ARGUMENT, "model %llu is known with another mode or rank",
                   static_cast<unsigned long long>(request.model));
    PLEXRL_TRY(check_places(*known, request));
    return known;
  }
  PLEXRL_ASSIGN(auto created, create(request));
  PLEXRL_TRY(check_places(*created, request));
  HeldModel* const model = created.get();
  models_.emplace(model->id, std::move(created));
  return model;
}

Result<std::unique_ptr<HeldModel>> ModelTable::create(const wire::EngineResumeT& request) {
  auto model = std::make_unique<HeldModel>();
  model->id = request.model;
  model->mode = request.mode;
  model->lora_rank = request.lora_rank;
  model->seed = request.seed;
  if (model->is_base() && request.mode != wire::TrainMode::None)
    return error(Code::INVALID_ARGUMENT, "model 0 is the base; its mode is None");
  PLEXRL_ASSIGN(model->layout, code_.layout(request.mode, request.lora_rank));
  PLEXRL_TRY(reserve_segments(*model));
  PLEXRL_TRY(bind_memory(*model));
  return model;
}

Status ModelTable::reserve_segments(HeldModel& model) {
  for (const model::SegmentBytes& size : code_.segments(*model.layout)) {
    if (!owns(model, size.kind)) continue;
    PLEXRL_ASSIGN(auto place, device_->reserve(size.bytes));
    model.segments[size.kind].place = std::move(place);
  }
  return {};
}

Status ModelTable::bind_memory(HeldModel& model) {
  const auto floats = [&](wire::SegmentKind kind) {
    const HeldSegment* const segment = model.find(kind);
    return segment == nullptr ? std::span<float>() : segment->floats();
  };
  model.state.layout = model.layout.get();
  model.state.memory.weights = floats(wire::SegmentKind::Weights);
  model.state.memory.adam_m = floats(wire::SegmentKind::AdamM);
  model.state.memory.adam_v = floats(wire::SegmentKind::AdamV);
  model.state.memory.gradients = floats(wire::SegmentKind::Gradients);
  const bool half = model.layout->type == model::WeightType::kBFloat16;
  if (half && model.mode == wire::TrainMode::Full)
    model.state.memory.sampler16 =
        model.find(wire::SegmentKind::SamplerWeights)->halves(model.layout->trainable.elements);
  else
    model.state.memory.sampler = floats(wire::SegmentKind::SamplerWeights);
  if (model.is_base() || model.mode == wire::TrainMode::Full) return {};
  HeldModel* const base = find(0);
  if (base == nullptr)
    return error(Code::INVALID_ARGUMENT, "resume the base (model 0) before model %llu",
                 static_cast<unsigned long long>(model.id));
  const HeldSegment& weights = *base->find(wire::SegmentKind::Base);
  if (half)
    model.state.memory.base16 = weights.halves(model.layout->full.elements);
  else
    model.state.memory.base = weights.floats();
  return {};
}

Status ModelTable::check_place(const wire::SegmentPlaceT& place, std::uint64_t bytes) const {
  if (!attached()) return error(Code::INVALID_ARGUMENT, "no pools are attached");
  const std::uint64_t chunks = (bytes + host_->chunk_bytes() - 1) / host_->chunk_bytes();
  if (place.bytes != bytes)
    return error(Code::INVALID_ARGUMENT, "segment %s has %llu bytes, not %llu",
                 kind_name(place.kind), static_cast<unsigned long long>(bytes),
                 static_cast<unsigned long long>(place.bytes));
  if ((!place.device.empty() && place.device.size() != chunks) ||
      (!place.host.empty() && place.host.size() != chunks))
    return error(Code::INVALID_ARGUMENT,
                 "segment %s needs %llu chunks; the request names %zu device and %zu host chunks",
                 kind_name(place.kind), static_cast<unsigned long long>(chunks),
                 place.device.size(), place.host.size());
  return {};
}

Status ModelTable::check_places(const HeldModel& model, const wire::EngineResumeT& request) const {
  const auto check = [&](wire::SegmentKind kind, const HeldSegment& segment) -> Status {
    const wire::SegmentPlaceT* const place = find_place(request, kind);
    if (place == nullptr || place->device.empty())
      return error(Code::INVALID_ARGUMENT, "segment %s gets no device memory", kind_name(kind));
    return check_place(*place, segment.place->bytes());
  };
  for (const auto& [kind, segment] : model.segments) PLEXRL_TRY(check(kind, segment));
  if (model.kv) PLEXRL_TRY(check(wire::SegmentKind::Kv, *model.kv));
  for (const auto& place : request.segments)
    if (!place || !(place->kind == wire::SegmentKind::Kv ? model.kv || place->host.empty()
                                                         : model.segments.contains(place->kind)))
      return error(Code::INVALID_ARGUMENT, "the model has no segment %s",
                   place ? kind_name(place->kind) : "(null)");
  return {};
}

std::uint64_t ModelTable::resident_bytes() const noexcept {
  std::uint64_t chunks = 0;
  for (const auto& [id, model] : models_) {
    if (model->residency == Residency::kMoving) continue;  // lent to the memory thread
    for (const auto& [kind, segment] : model->segments) chunks += segment.device.size();
    if (model->running_op == 0 && model->kv) chunks += model->kv->device.size();
  }
  return chunks * chunk_bytes();
}

}  // namespace plexrl::worker
