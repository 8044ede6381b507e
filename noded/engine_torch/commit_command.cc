// SPDX-License-Identifier: Apache-2.0
// EngineCommit: copies the named segments to shadow chunks while other ops run. An op that would
// write them is held back from prepare() to finish(); a commit waits for one that runs already.
// The chunks of the last committed epoch are not touched, so whatever dies, that epoch is whole.
// plexrld names the segments before it knows of ops that end meanwhile: a commit that would take
// the position of such an op without what it wrote is refused, and asked for again with all.
#include <algorithm>
#include <set>
#include <utility>

#include "engine_torch/memory_command.h"

namespace plexrl::worker {
namespace {

class CommitCommand final : public MemoryCommand {
 public:
  CommitCommand(ModelTable& table, const CommitGate& gate, wire::EngineCommitT request)
      : table_(table), gate_(gate), request_(std::move(request)) {}

  [[nodiscard]] bool blocked() const override { return gate_.writes_now(request_.model); }

  Status prepare() override {
    model_ = table_.find(request_.model);
    if (model_ == nullptr || model_->residency != Residency::kResident)
      return error(Code::INVALID_ARGUMENT, "model %llu is not resident",
                   static_cast<unsigned long long>(request_.model));
    if (gate_.has_begun_to_write(request_.model))
      return error(Code::BUSY, "a yielded op of model %llu has begun to write its state",
                   static_cast<unsigned long long>(request_.model));
    for (const auto& place : request_.segments) PLEXRL_TRY(check(place.get()));
    PLEXRL_TRY(check_complete());
    stall_ns_ = static_cast<std::uint64_t>((system_clock().now() - arrived_).ns);
    position_ = model_->position;
    ++model_->commits;
    written_ = std::exchange(model_->written, {});
    return {};
  }

  Status work() override {
    for (const auto& place : request_.segments)
      PLEXRL_TRY(copy_to_host(table_, *model_->find(place->kind), *place, totals_)
                     .within(wire::EnumNameSegmentKind(place->kind)));
    return {};
  }

  wire::EngineBodyUnion finish(const Status& outcome) override {
    --model_->commits;
    if (!outcome.ok()) model_->written.merge(written_);
    return outcome.ok() ? committed() : failure_body(outcome);
  }

 private:
  [[nodiscard]] Status check_complete() const {
    for (const wire::SegmentKind kind : model_->written) {
      const bool named = std::any_of(request_.segments.begin(), request_.segments.end(),
                                     [&](const auto& place) { return place->kind == kind; });
      if (!named)
        return error(Code::BUSY,
                     "segment %s of model %llu was written since the commit was planned",
                     wire::EnumNameSegmentKind(kind), static_cast<unsigned long long>(model_->id));
    }
    return {};
  }

  Status check(const wire::SegmentPlaceT* place) {
    const HeldSegment* const segment = place == nullptr ? nullptr : model_->find(place->kind);
    if (segment == nullptr || place->kind == wire::SegmentKind::Kv ||
        place->kind == wire::SegmentKind::Base)
      return error(Code::INVALID_ARGUMENT, "model %llu has no such segment to commit",
                   static_cast<unsigned long long>(model_->id));
    if (place->kind == wire::SegmentKind::Gradients)
      return error(Code::INVALID_ARGUMENT,
                   "gradients are not committed: they follow from the logged ops");
    if (place->host.empty())
      return error(Code::INVALID_ARGUMENT, "segment %s: a commit needs host chunks",
                   wire::EnumNameSegmentKind(place->kind));
    return table_.check_place(*place, segment->place->bytes());
  }

  [[nodiscard]] wire::EngineBodyUnion committed() const {
    wire::EngineCommittedT reply;
    reply.model = request_.model;
    reply.epoch = request_.epoch;
    reply.step = position_.step;
    reply.version = position_.version;
    reply.seq = position_.committed_seq;
    reply.bytes = totals_.bytes_out;
    reply.copy_ns = totals_.copy_ns;
    reply.stall_ns = stall_ns_;
    wire::EngineBodyUnion body;
    body.Set(reply);
    return body;
  }

  ModelTable& table_;
  const CommitGate& gate_;
  wire::EngineCommitT request_;
  TimePoint arrived_ = system_clock().now();
  std::uint64_t stall_ns_ = 0;
  HeldModel* model_ = nullptr;
  TrainPosition position_;
  std::set<wire::SegmentKind> written_;  // what the copy under way holds
  CopyTotals totals_;
};

}  // namespace

std::unique_ptr<MemoryCommand> make_commit(ModelTable& table, const CommitGate& gate,
                                           wire::EngineCommitT request) {
  return std::make_unique<CommitCommand>(table, gate, std::move(request));
}

}  // namespace plexrl::worker
