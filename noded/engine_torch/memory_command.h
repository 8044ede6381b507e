// SPDX-License-Identifier: Apache-2.0
// MemoryCommand: something that changes or copies the memory of one model. Commands are executed
// one at a time in the order of arrival: blocked() and prepare() on the protocol thread, work() on
// the memory thread, finish() on the protocol thread again.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine_torch/model_table.h"

namespace plexrl::worker {

class MemoryCommand {
 public:
  virtual ~MemoryCommand() = default;
  // True while an op that runs must end first. Ops never wait for a command that is blocked.
  [[nodiscard]] virtual bool blocked() const { return false; }
  // False: forgotten when the plexrld that asked goes away before it is begun.
  [[nodiscard]] virtual bool must_run() const { return false; }
  // False: it frees something that plexrld counts as free once it has asked, so it is not refused
  // for want of room in the queue.
  [[nodiscard]] virtual bool refusable() const { return true; }
  // What has to be done at once after finish(), before all that waits; null: nothing.
  [[nodiscard]] virtual std::unique_ptr<MemoryCommand> next() { return nullptr; }
  // True: after a work() that failed nobody knows what the model's memory holds; the engine ends
  // and its models go on from their manifests.
  [[nodiscard]] virtual bool must_succeed() const { return false; }
  // True when it undoes a dropped op of the model: ops of that model wait for it.
  [[nodiscard]] virtual bool undoes_op_of(std::uint64_t /*model*/) const { return false; }
  // Checks the request and marks the model. After an error the other two are not called.
  [[nodiscard]] virtual Status prepare() = 0;
  [[nodiscard]] virtual Status work() = 0;
  // On the memory thread, when the outcome of work() is on its way to finish() and next(), which
  // may run at the same time: what nobody has to wait for.
  virtual void settle() {}
  // Unmarks the model and makes the reply; `outcome` is that of work().
  [[nodiscard]] virtual wire::EngineBodyUnion finish(const Status& outcome) = 0;
};

// What a commit must know of the ops. Protocol thread.
class CommitGate {
 public:
  virtual ~CommitGate() = default;
  // An op that writes committed segments of the model runs.
  [[nodiscard]] virtual bool writes_now(std::uint64_t model) const = 0;
  // One has begun to write them and has yielded.
  [[nodiscard]] virtual bool has_begun_to_write(std::uint64_t model) const = 0;
};

// Who must let go of a model that is being forgotten. Protocol thread.
class OpOwner {
 public:
  virtual ~OpOwner() = default;
  virtual void forget_model(std::uint64_t model) = 0;
};

[[nodiscard]] std::unique_ptr<MemoryCommand> make_resume(ModelTable& table,
                                                         wire::EngineResumeT request);
// A segment of a resident model that is mapped and not filled yet. `host`: the chunks to copy into
// it; none: it is zeroed. `copy`: those chunks, where they are not mapped anyway.
struct LateSegment {
  HeldSegment* segment = nullptr;
  std::vector<device::ChunkIndex> host;
  std::optional<device::AddressRange> copy;
};
// Fills them while ops run that do not need them. `model` is marked as filling.
[[nodiscard]] std::unique_ptr<MemoryCommand> make_fill(ModelTable& table, HeldModel& model,
                                                       std::vector<LateSegment> segments);
// Does nothing, behind what waits.
[[nodiscard]] std::unique_ptr<MemoryCommand> make_await_fill();
[[nodiscard]] std::unique_ptr<MemoryCommand> make_suspend(ModelTable& table,
                                                          wire::EngineSuspendT request);
[[nodiscard]] std::unique_ptr<MemoryCommand> make_commit(ModelTable& table, const CommitGate& gate,
                                                         wire::EngineCommitT request);
[[nodiscard]] std::unique_ptr<MemoryCommand> make_forget(ModelTable& table, OpOwner& ops,
                                                         const wire::EngineForgetT& request);
// Undoes a dropped op that had yielded: at once when its model is resident, else when it is
// resumed. Its KV memory is given back. `run` may be null (the op had not begun).
[[nodiscard]] std::unique_ptr<MemoryCommand> make_abandon(ModelTable& table, std::uint64_t model,
                                                          std::uint64_t op,
                                                          std::unique_ptr<model::OpRun> run);

// What the commands share.
[[nodiscard]] wire::EngineBodyUnion failure_body(const Status& status);
struct CopyTotals {
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t copy_ns = 0;
};
// The segment's first `bytes` to the place's host chunks; the rest of the last chunk is zeroed, so
// that nothing of the chunk's former owner stays there.
[[nodiscard]] Status copy_to_host(ModelTable& table, const HeldSegment& segment,
                                  const wire::SegmentPlaceT& place, CopyTotals& totals);
[[nodiscard]] Status copy_from_host(ModelTable& table, const HeldSegment& segment,
                                    const wire::SegmentPlaceT& place, CopyTotals& totals);
// Zeroes what lies behind the segment's bytes in its last device chunk.
[[nodiscard]] Status zero_tail(ModelTable& table, const HeldSegment& segment);
[[nodiscard]] Status map_segment(ModelTable& table, HeldSegment& segment,
                                 const std::vector<std::uint32_t>& chunks);
// For a segment that is copied in next, and settled then.
[[nodiscard]] Status map_segment_to_copy(ModelTable& table, HeldSegment& segment,
                                         const std::vector<std::uint32_t>& chunks);
// Ok for one that is not mapped.
[[nodiscard]] Status unmap_segment(ModelTable& table, HeldSegment& segment);
// Unmaps everything of the model; goes on after an error and returns the first.
[[nodiscard]] Status unmap_model(ModelTable& table, HeldModel& model);

}  // namespace plexrl::worker
