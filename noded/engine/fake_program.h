// SPDX-License-Identifier: Apache-2.0
// FakeProgram: what the fake engine's "process" holds: pools, models, ops that have yielded. It
// lives from start to death, and over a detach. Memory commands are carried out at once; time and
// faults are the FakeEngine's.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "engine/fake_engine.h"
#include "engine/fake_model.h"

namespace plexrl::engine {

class FakeProgram {
 public:
  FakeProgram(const EngineSpec& spec, const FakeEngineOptions& options)
      : spec_(spec), options_(options) {}

  // Replies to everything but ops, yields and pings.
  [[nodiscard]] Result<wire::EngineBodyUnion> handle(const wire::EngineBodyUnion& request,
                                                     const std::vector<int>& fds);
  [[nodiscard]] Status begin(const wire::EngineRunOpT& op);  // checks it and maps its KV
  // `file`: of a save or load, else -1.
  [[nodiscard]] Result<wire::OpValueUnion> run(const wire::EngineRunOpT& op, int file);
  void unmap_kv(std::uint64_t model);
  // A forward_backward keeps what it has added, until it goes on or is dropped. Its undoing waits
  // until the model is resident.
  void yielded(const wire::EngineRunOpT& op);
  void dropped(std::uint64_t model, std::uint64_t op);
  [[nodiscard]] wire::EngineHelloT hello() const;
  [[nodiscard]] std::vector<UniqueFd> pool_fds() const;  // duplicates
  [[nodiscard]] std::uint64_t resident_bytes() const;

 private:
  using Body = Result<wire::EngineBodyUnion>;
  Body attach(const wire::EngineAttachPoolsT& request, const std::vector<int>& fds);
  Body resume(const wire::EngineResumeT& request);
  Body suspend(const wire::EngineSuspendT& request);
  Body commit(const wire::EngineCommitT& request);
  [[nodiscard]] Status check(const wire::EngineResumeT& request) const;
  [[nodiscard]] Result<FakeModel*> resident(std::uint64_t model);
  [[nodiscard]] Status copy_out(const FakeModel& model, const wire::SegmentPlaceT& place) const;

  const EngineSpec& spec_;
  const FakeEngineOptions& options_;
  std::optional<FakePool> device_;
  std::optional<FakePool> host_;
  std::map<std::uint64_t, FakeModel> models_;  // the resident ones
  // Of suspended models, by number: what the engine remembers of them besides their segments.
  std::map<std::uint64_t, FakeModel> parked_;
  std::uint32_t failed_resumes_ = 0;
  std::uint32_t failed_suspends_ = 0;
};

}  // namespace plexrl::engine
