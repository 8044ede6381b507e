// SPDX-License-Identifier: Apache-2.0
// The second part of a resume: what the first op of a model does not need is filled while that op
// runs. Everything that may fail without the device was done in the first part, so there is nothing
// to roll back here.
#include <utility>

#include "device/segment_copy.h"
#include "engine_torch/memory_command.h"

namespace plexrl::worker {
namespace {

class FillCommand final : public MemoryCommand {
 public:
  FillCommand(ModelTable& table, HeldModel& model, std::vector<LateSegment> segments)
      : table_(table), model_(model), segments_(std::move(segments)) {}

  [[nodiscard]] bool must_run() const override { return true; }
  [[nodiscard]] bool refusable() const override { return false; }
  [[nodiscard]] bool must_succeed() const override { return true; }

  Status prepare() override { return {}; }

  Status work() override {
    for (const LateSegment& late : segments_) {
      PLEXRL_TRY(fill(late).within("model " + std::to_string(model_.id)));
      PLEXRL_TRY(zero_tail(table_, *late.segment));
      table_.device().settle(*late.segment->place);
    }
    segments_.clear();
    return {};
  }

  wire::EngineBodyUnion finish(const Status& outcome) override {
    if (!outcome.ok()) return failure_body(outcome);
    model_.filling = false;
    model_.filled = system_clock().now();
    wire::EngineBodyUnion body;
    body.Set(wire::EngineDoneT());
    return body;
  }

 private:
  Status fill(const LateSegment& late) {
    device::Reservation& place = *late.segment->place;
    if (late.copy) return table_.device().copy_in(place.data(), late.copy->data(), place.bytes());
    if (!late.host.empty())
      return device::copy_from_host(table_.device(), table_.host(), place, late.host,
                                    table_.mapped());
    return table_.device().zero(place.data(), place.bytes());
  }

  ModelTable& table_;
  HeldModel& model_;
  std::vector<LateSegment> segments_;
};

class AwaitFillCommand final : public MemoryCommand {
 public:
  [[nodiscard]] bool refusable() const override { return false; }
  Status prepare() override { return {}; }
  Status work() override { return {}; }
  wire::EngineBodyUnion finish(const Status& /*outcome*/) override {
    wire::EngineBodyUnion body;
    body.Set(wire::EngineDoneT());
    return body;
  }
};

}  // namespace

std::unique_ptr<MemoryCommand> make_fill(ModelTable& table, HeldModel& model,
                                         std::vector<LateSegment> segments) {
  return std::make_unique<FillCommand>(table, model, std::move(segments));
}

std::unique_ptr<MemoryCommand> make_await_fill() { return std::make_unique<AwaitFillCommand>(); }

}  // namespace plexrl::worker
