// SPDX-License-Identifier: Apache-2.0
// FakeModel: one model of the fake engine and the arithmetic on its segments. Everything that the
// next op depends on lies in chunks or in `position`, so a wrong byte after a move shows in later
// results.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "engine/fake_memory.h"
#include "engine_generated.h"

namespace plexrl::engine {

struct FakeSegment {
  std::uint64_t bytes = 0;
  FakeChunks device;
};

struct FakeModel {
  wire::TrainMode mode = wire::TrainMode::None;
  std::uint32_t lora_rank = 0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t version = 0;
  std::uint64_t applied_seq = 0;
  std::uint64_t committed_seq = 0;  // the last after which no gradients were pending
  std::uint64_t started_seq = 0;    // the highest training op that was ever begun
  bool gradients_pending = false;
  // Committed segments that ops wrote since they were last copied out or filled.
  std::set<wire::SegmentKind> written;
  // A forward_backward that has yielded: the first half of its gradients is added. 0: none.
  std::uint64_t partial_op = 0;
  std::vector<std::uint64_t> earlier;                 // the gradients without it
  bool undo_partial = false;                          // it was dropped while the model was parked
  std::map<wire::SegmentKind, FakeSegment> segments;  // KV of a yielded generate too
};

class FakeMaths {
 public:
  FakeMaths(const FakePool& device, std::uint32_t vocab_size)
      : device_(device), vocab_size_(vocab_size) {}

  // What a segment holds that is not copied in.
  void initialise(const FakeModel& model, wire::SegmentKind kind) const;
  // Applies a training op, or computes a sampling one. Failures have changed nothing. `file`: of a
  // save or load, else -1.
  [[nodiscard]] Result<wire::OpValueUnion> run(FakeModel& model, const wire::EngineRunOpT& op,
                                               int file = -1) const;
  // What a forward_backward leaves when it yields, once; and its undoing.
  void add_partial(FakeModel& model, const wire::EngineRunOpT& op) const;
  void undo_partial(FakeModel& model) const;
  // KV holds marks of the op in every kilobyte: written when it begins, compared when it ends.
  void fill_kv(const FakeModel& model, std::uint64_t op) const;
  [[nodiscard]] Status check_kv(const FakeModel& model, std::uint64_t op) const;

 private:
  [[nodiscard]] FakeWords words(const FakeModel& model, wire::SegmentKind kind) const;
  [[nodiscard]] std::uint64_t digest(const FakeModel& model, wire::SegmentKind kind) const;
  [[nodiscard]] Result<wire::OpValueUnion> apply(FakeModel& model, const wire::EngineRunOpT& op,
                                                 int file) const;
  [[nodiscard]] Result<std::uint64_t> sampled_state(const FakeModel& model,
                                                    std::uint64_t version) const;
  [[nodiscard]] Result<wire::OpValueUnion> generate(const FakeModel& model,
                                                    const wire::GenerateArgsT& args) const;
  // Row `row` of the request with this seed.
  [[nodiscard]] wire::SequenceT sequence(const wire::GenerateArgsT& args, std::uint64_t seed,
                                         std::uint64_t row) const;
  [[nodiscard]] Result<wire::OpValueUnion> logprobs(const FakeModel& model,
                                                    const wire::LogprobsArgsT& args) const;
  [[nodiscard]] Result<wire::OpValueUnion> forward_backward(FakeModel& model,
                                                            const wire::EngineRunOpT& op) const;
  void add_gradients(const FakeModel& model, std::uint64_t input, std::uint64_t first,
                     std::uint64_t end) const;
  [[nodiscard]] Result<wire::OpValueUnion> optim_step(FakeModel& model, std::uint64_t input) const;
  [[nodiscard]] Result<wire::OpValueUnion> publish(FakeModel& model, std::uint64_t version) const;

  [[nodiscard]] Result<wire::OpValueUnion> save(const FakeModel& model, int file) const;
  [[nodiscard]] Result<wire::OpValueUnion> load(FakeModel& model, int file) const;

  const FakePool& device_;
  std::uint32_t vocab_size_;
};

}  // namespace plexrl::engine
