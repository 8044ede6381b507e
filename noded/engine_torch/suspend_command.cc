// SPDX-License-Identifier: Apache-2.0
// EngineSuspend: copies out what names host chunks, then gives the device memory back. A failed
// copy leaves the model resident and unchanged.
#include <utility>

#include "base/log.h"
#include "engine_torch/memory_command.h"

namespace plexrl::worker {
namespace {

class SuspendCommand final : public MemoryCommand {
 public:
  SuspendCommand(ModelTable& table, wire::EngineSuspendT request)
      : table_(table), request_(std::move(request)) {}

  Status prepare() override {
    model_ = table_.find(request_.model);
    if (model_ == nullptr || model_->residency != Residency::kResident)
      return error(Code::INVALID_ARGUMENT, "model %llu is not resident",
                   static_cast<unsigned long long>(request_.model));
    if (model_->running_op != 0)
      return error(Code::INVALID_ARGUMENT, "op %llu of model %llu runs; it must yield first",
                   static_cast<unsigned long long>(model_->running_op),
                   static_cast<unsigned long long>(request_.model));
    if (model_->is_base()) PLEXRL_TRY(check_unused());
    for (const auto& place : request_.segments) PLEXRL_TRY(check(place.get()));
    if (model_->kv && !names_host(wire::SegmentKind::Kv))
      return error(Code::INVALID_ARGUMENT, "the KV of op %llu needs host chunks, or drop the op",
                   static_cast<unsigned long long>(model_->kv_op));
    model_->residency = Residency::kMoving;
    return {};
  }

  Status work() override {
    for (const auto& place : request_.segments)
      if (!place->host.empty())
        PLEXRL_TRY(copy_to_host(table_, *model_->find(place->kind), *place, totals_)
                       .within(wire::EnumNameSegmentKind(place->kind)));
    unmapped_ = unmap_model(table_, *model_);
    return unmapped_;
  }

  wire::EngineBodyUnion finish(const Status& outcome) override {
    if (!unmapped_.ok()) {
      PLEXRL_LOG(kError, "model %llu cannot be unmapped: %s",
                 static_cast<unsigned long long>(model_->id), unmapped_.to_string().c_str());
      model_->residency = Residency::kPoisoned;
      return failure_body(outcome);
    }
    model_->residency = outcome.ok() ? Residency::kParked : Residency::kResident;
    if (outcome.ok()) model_->written.clear();
    return outcome.ok() ? moved() : failure_body(outcome);
  }

 private:
  [[nodiscard]] Status check_unused() const {
    for (const auto& [id, model] : table_.all())
      if (model->running_op != 0 && model->mode != wire::TrainMode::Full)
        return error(Code::INVALID_ARGUMENT, "op %llu runs on the base; it must yield first",
                     static_cast<unsigned long long>(model->running_op));
    return {};
  }

  Status check(const wire::SegmentPlaceT* place) const {
    const HeldSegment* const segment = place == nullptr ? nullptr : model_->find(place->kind);
    if (segment == nullptr)
      return error(Code::INVALID_ARGUMENT, "model %llu has no such segment",
                   static_cast<unsigned long long>(model_->id));
    return table_.check_place(*place, segment->place->bytes());
  }

  [[nodiscard]] bool names_host(wire::SegmentKind kind) const {
    for (const auto& place : request_.segments)
      if (place->kind == kind) return !place->host.empty();
    return false;
  }

  [[nodiscard]] wire::EngineBodyUnion moved() const {
    wire::EngineMovedT reply;
    reply.bytes_out = totals_.bytes_out;
    reply.copy_ns = totals_.copy_ns;
    reply.step = model_->position.step;
    reply.version = model_->position.version;
    reply.gradients_pending = model_->position.gradients_pending;
    reply.seq = model_->position.committed_seq;
    wire::EngineBodyUnion body;
    body.Set(reply);
    return body;
  }

  ModelTable& table_;
  wire::EngineSuspendT request_;
  HeldModel* model_ = nullptr;
  CopyTotals totals_;
  Status unmapped_;
};

}  // namespace

std::unique_ptr<MemoryCommand> make_suspend(ModelTable& table, wire::EngineSuspendT request) {
  return std::make_unique<SuspendCommand>(table, std::move(request));
}

}  // namespace plexrl::worker
