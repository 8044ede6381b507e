// SPDX-License-Identifier: Apache-2.0
// OpLog: the durable side of the training streams. "ops" holds accepted training ops that are not
// in a manifest yet (replayed after an engine's death), "results" the first result of each number
// (given again to a retried one). Both are wire messages, request_id = the op's number. Bounded:
// the newest kKeptResults results of a model, and kMaxLoggedOps / kMaxLoggedBytes of ops since its
// last commit. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "runtime/op.h"

namespace plexrl::store {
class StateStore;
}

namespace plexrl::runtime {

class OpLog {
 public:
  static constexpr std::uint64_t kKeptResults = 256;
  // A model that cannot commit stops taking ops here: replaying more would take minutes.
  static constexpr std::size_t kMaxLoggedOps = 4096;
  static constexpr std::uint64_t kMaxLoggedBytes = 256ULL << 20;
  // Beyond both, for the ops that lead to a commit: otherwise a full log could never be emptied.
  static constexpr std::size_t kReservedOps = 64;

  explicit OpLog(store::StateStore& store) : store_(store) {}
  // Reads both tables; CORRUPT names the row.
  [[nodiscard]] Status load();

  // BUSY when the model's log is full until its next commit (optim_step and load use the reserve),
  // or while the store takes no results.
  [[nodiscard]] Status room(ModelId model, core::OpKind kind) const;
  [[nodiscard]] Status append(const Op& op);
  // Numbers with a logged op, in order.
  [[nodiscard]] std::vector<std::uint64_t> logged(ModelId model) const;
  // The op as it was accepted, without fd, tenant and waiters.
  [[nodiscard]] Result<Op> read(ModelId model, std::uint64_t seq) const;
  // The model's manifest holds everything up to `seq`.
  [[nodiscard]] Status committed(ModelId model, std::uint64_t seq);

  // When it fails (a full disk) the outcome is kept in memory, where a replay finds it, until
  // store_results() has stored it; nobody may hear of it before. Meanwhile the model has no room.
  [[nodiscard]] Status put_result(ModelId model, std::uint64_t seq, const OpOutcome& outcome);
  [[nodiscard]] Status store_results();
  [[nodiscard]] bool stored(ModelId model, std::uint64_t seq) const;  // of a number with a result
  [[nodiscard]] Result<OpOutcome> result(ModelId model, std::uint64_t seq) const;  // NOT_FOUND
  [[nodiscard]] bool has_result(ModelId model, std::uint64_t seq) const;
  // The highest number with a result; 0 when there is none.
  [[nodiscard]] std::uint64_t last_result(ModelId model) const;
  [[nodiscard]] Status forget(ModelId model);  // model removed

 private:
  struct Index {
    std::map<std::uint64_t, std::size_t> ops;  // seq -> bytes
    std::uint64_t op_bytes = 0;
    std::set<std::uint64_t> results;
    std::map<std::uint64_t, std::string> unstored;  // results that the store did not take
  };

  [[nodiscard]] Status trim_results(ModelId model, Index& index);
  [[nodiscard]] Result<std::string> result_bytes(ModelId model, std::uint64_t seq) const;
  store::StateStore& store_;
  std::map<ModelId, Index> models_;
};

}  // namespace plexrl::runtime
