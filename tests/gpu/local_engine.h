// SPDX-License-Identifier: Apache-2.0
// LocalEngine: what plexrl-engine does with its models, without a connection: the same table of
// models, memory commands and ops, called one after the other. It plays plexrld's part too: device
// chunks 0.. are those of the one model that is resident, a slot is a set of host chunks for one
// parked or committed state.
//
// One thread, but for the copy of a commit, which runs beside ops.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "engine_torch/base_model.h"
#include "engine_torch/held_op.h"
#include "engine_torch/memory_command.h"

namespace plexrl::gpu {

struct EngineSetup {
  model::ModelDevice device;
  int driver = -1;      // device whose memory the driver manages; -1: the cpu backend
  std::string library;  // the driver
  std::string base_dir;
  std::size_t chunk_bytes = 0;
  std::size_t kv_bytes = 0;  // the most that an op needs
  std::size_t slots = 0;
};

struct MoveCost {
  double seconds = 0;  // from the request to the reply
  std::uint64_t bytes_in = 0, bytes_out = 0;
};

class LocalEngine final : private worker::CommitGate, private worker::OpOwner {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LocalEngine>> open(const EngineSetup& setup);

  // A new model: weights of the base, nothing else.
  [[nodiscard]] Result<MoveCost> create(std::uint64_t model);
  // To and from a slot. The model's position is remembered here, as plexrld does.
  [[nodiscard]] Result<MoveCost> suspend(std::uint64_t model, std::size_t slot);
  [[nodiscard]] Result<MoveCost> resume(std::uint64_t model, std::size_t slot);
  [[nodiscard]] Status forget(std::uint64_t model);
  // A model of another number whose parked state is that of `from`, for a later resume.
  void branch(std::uint64_t from, std::uint64_t to) { parked_[to] = parked_.at(from); }

  // Begins to copy what is committed to the slot; end_commit waits for it. An op that would write
  // it ends it first and counts the wait.
  [[nodiscard]] Status begin_commit(std::uint64_t model, std::size_t slot);
  [[nodiscard]] Status end_commit();
  struct CommitCost {
    std::uint64_t count = 0, bytes = 0;
    double copy_s = 0, stall_s = 0;
  };
  [[nodiscard]] const CommitCost& commits() const noexcept { return commits_; }

  // To its end. `version_out` for a publish.
  [[nodiscard]] Result<wire::OpValueUnion> run(std::uint64_t model, wire::OpArgsUnion args,
                                               std::uint64_t version_out = 0);

  // Of all bytes in the slot: equal for equal states.
  [[nodiscard]] Result<std::uint64_t> hash(std::size_t slot) const;
  [[nodiscard]] const std::string& tokenizer() const noexcept { return tokenizer_; }
  [[nodiscard]] std::uint64_t parameters() const noexcept { return parameters_; }
  // Of the segments that a suspend copies.
  [[nodiscard]] std::uint64_t state_bytes() const noexcept { return state_bytes_; }

 private:
  explicit LocalEngine(const EngineSetup& setup);
  [[nodiscard]] Status describe();
  [[nodiscard]] Status attach();
  [[nodiscard]] Result<MoveCost> move_in(wire::EngineResumeT request);
  [[nodiscard]] static Result<wire::EngineBodyUnion> execute(worker::MemoryCommand& command);
  enum class Host : bool { kNone, kSlot };
  void add_places(std::vector<std::unique_ptr<wire::SegmentPlaceT>>& places, Host host,
                  std::size_t slot, bool with_device) const;
  [[nodiscard]] std::size_t chunks_of(std::uint64_t bytes) const;

  // No op runs while a command is prepared.
  [[nodiscard]] bool writes_now(std::uint64_t /*model*/) const override { return false; }
  [[nodiscard]] bool has_begun_to_write(std::uint64_t /*model*/) const override { return false; }
  void forget_model(std::uint64_t /*model*/) override {}

  EngineSetup setup_;
  worker::BaseModel base_;
  worker::ModelTable table_;
  std::vector<model::SegmentBytes> segments_;
  std::string tokenizer_;
  std::uint64_t parameters_ = 0, state_bytes_ = 0;
  std::size_t slot_chunks_ = 0, model_chunks_ = 0;
  std::map<std::uint64_t, wire::EngineMovedT> parked_;
  std::uint64_t last_op_ = 0, last_model_ = 0;

  std::unique_ptr<worker::MemoryCommand> commit_;  // under way
  std::future<Status> copying_;
  CommitCost commits_;
};

// A sealed memfd as plexrld makes it, touched by all processors.
[[nodiscard]] Result<UniqueFd> touched_pool(std::size_t bytes);

}  // namespace plexrl::gpu
