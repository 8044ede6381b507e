// SPDX-License-Identifier: Apache-2.0
// EngineResume: all segments are mapped first, then those filled that an op may begin with; any
// failure unmaps all. The others come late, by a FillCommand: their copies are mapped here already.
#include <utility>

#include "base/log.h"
#include "engine_torch/memory_command.h"

namespace plexrl::worker {
namespace {

class ResumeCommand final : public MemoryCommand {
 public:
  ResumeCommand(ModelTable& table, wire::EngineResumeT request)
      : table_(table), request_(std::move(request)) {}

  Status prepare() override {
    PLEXRL_ASSIGN(model_, table_.open(request_));
    if (model_->residency != Residency::kParked)
      return error(Code::INVALID_ARGUMENT, "model %llu is not parked",
                   static_cast<unsigned long long>(request_.model));
    if (request_.step > 0 && !names_host(wire::SegmentKind::Weights))
      return error(Code::INVALID_ARGUMENT, "a resume at step %llu must bring the weights",
                   static_cast<unsigned long long>(request_.step));
    if (request_.version > 0 && !names_host(wire::SegmentKind::SamplerWeights))
      return error(Code::INVALID_ARGUMENT,
                   "a resume of version %llu must bring the sampler weights",
                   static_cast<unsigned long long>(request_.version));
    model_->residency = Residency::kMoving;
    return {};
  }

  Status work() override {
    Status status = map_all();
    if (status.ok()) status = fill_all();
    if (status.ok()) status = undo_dropped_ops();
    if (status.ok()) return status;
    late_.clear();
    copied_.clear();
    unmapped_ = unmap_model(table_, *model_);
    return status;
  }

  // The model's segments are this thread's to map and unmap, KV is not.
  void settle() override {
    for (device::Reservation* const place : copied_) table_.device().settle(*place);
  }

  wire::EngineBodyUnion finish(const Status& outcome) override {
    if (!unmapped_.ok()) {
      PLEXRL_LOG(kError, "model %llu cannot be unmapped after a failed resume: %s",
                 static_cast<unsigned long long>(model_->id), unmapped_.to_string().c_str());
      model_->residency = Residency::kPoisoned;
      return failure_body(outcome);
    }
    model_->residency = outcome.ok() ? Residency::kResident : Residency::kParked;
    if (!outcome.ok()) return failure_body(outcome);
    model_->written.clear();
    model_->filling = !late_.empty();
    take_position();
    return moved();
  }

  std::unique_ptr<MemoryCommand> next() override {
    if (model_ == nullptr || late_.empty()) return nullptr;
    return make_fill(table_, *model_, std::move(late_));
  }

 private:
  // Moments are the larger half of what is copied in, and only optimizer steps and files need them.
  static bool comes_late(const wire::SegmentPlaceT& place) {
    if (place.kind == wire::SegmentKind::SamplerWeights) return place.host.empty();
    return place.kind == wire::SegmentKind::AdamM || place.kind == wire::SegmentKind::AdamV;
  }

  [[nodiscard]] bool names_host(wire::SegmentKind kind) const {
    for (const auto& place : request_.segments)
      if (place && place->kind == kind) return !place->host.empty();
    return model_->find(kind) == nullptr;
  }

  // A fresh KV place of an op that has not begun is mapped by the op itself.
  Status map_all() {
    for (const auto& place : request_.segments) {
      HeldSegment* const segment = model_->find(place->kind);
      if (segment == nullptr) continue;
      const bool copied = !place->host.empty() && place->kind != wire::SegmentKind::Kv;
      PLEXRL_TRY((copied ? map_segment_to_copy(table_, *segment, place->device)
                         : map_segment(table_, *segment, place->device))
                     .within(wire::EnumNameSegmentKind(place->kind)));
      if (copied && !comes_late(*place)) copied_.push_back(segment->place.get());
    }
    return {};
  }

  Status fill_all() {
    for (const auto& place : request_.segments) {
      HeldSegment* const segment = model_->find(place->kind);
      if (segment == nullptr) continue;
      PLEXRL_TRY((comes_late(*place) ? postpone(*segment, *place) : fill(*segment, *place))
                     .within(wire::EnumNameSegmentKind(place->kind)));
    }
    return {};
  }

  Status postpone(HeldSegment& segment, const wire::SegmentPlaceT& place) {
    LateSegment late{&segment, place.host, std::nullopt};
    const device::MappedPool* const mapped = table_.mapped();
    if (!place.host.empty() && (mapped == nullptr || !mapped->holds(place.host))) {
      PLEXRL_ASSIGN(late.copy, table_.host().map(place.host, device::AddressRange::Access::kRead));
    }
    late_.push_back(std::move(late));
    return {};
  }

  Status fill(const HeldSegment& segment, const wire::SegmentPlaceT& place) {
    PLEXRL_TRY(fill_bytes(segment, place));
    return zero_tail(table_, segment);
  }

  Status fill_bytes(const HeldSegment& segment, const wire::SegmentPlaceT& place) {
    if (!place.host.empty()) return copy_from_host(table_, segment, place, totals_);
    if (place.kind == wire::SegmentKind::Base) return load_base(segment);
    if (place.kind != wire::SegmentKind::Weights)
      return table_.device().zero(segment.place->data(), segment.place->bytes());
    if (model_->mode == wire::TrainMode::Full) return table_.code().load_base(segment.floats());
    return table_.code().initialise(*model_->layout, model_->seed, segment.floats());
  }

  Status load_base(const HeldSegment& segment) {
    if (model_->layout->type == model::WeightType::kFloat32)
      return table_.code().load_base(segment.floats());
    return table_.code().load_base16(segment.halves(model_->layout->full.elements));
  }

  // Gradients that are not brought back hold nothing of a dropped op: its undoing would put those
  // of a state that is gone in their place.
  Status undo_dropped_ops() {
    if (names_host(wire::SegmentKind::Gradients))
      for (const auto& run : model_->abandoned) run->abandon();
    model_->abandoned.clear();
    return {};
  }

  void take_position() {
    model::ModelState& state = model_->state;
    state.step = request_.step;
    state.sampler_version = request_.version;
    state.gradients_pending = request_.gradients_pending;
    model_->position.step = request_.step;
    model_->position.version = request_.version;
    model_->position.gradients_pending = request_.gradients_pending;
    // A model that was parked here knows more: it may have gone past the commit (gradients
    // pending).
    if (request_.seq == model_->position.committed_seq) return;
    model_->position.applied_seq = model_->position.committed_seq = request_.seq;
  }

  [[nodiscard]] wire::EngineBodyUnion moved() const {
    wire::EngineMovedT reply;
    reply.bytes_in = totals_.bytes_in;
    reply.copy_ns = totals_.copy_ns;
    reply.step = model_->position.step;
    reply.version = model_->position.version;
    reply.gradients_pending = model_->position.gradients_pending;
    wire::EngineBodyUnion body;
    body.Set(reply);
    return body;
  }

  ModelTable& table_;
  wire::EngineResumeT request_;
  HeldModel* model_ = nullptr;
  CopyTotals totals_;
  std::vector<LateSegment> late_;
  std::vector<device::Reservation*> copied_;
  Status unmapped_;
};

}  // namespace

std::unique_ptr<MemoryCommand> make_resume(ModelTable& table, wire::EngineResumeT request) {
  return std::make_unique<ResumeCommand>(table, std::move(request));
}

}  // namespace plexrl::worker
