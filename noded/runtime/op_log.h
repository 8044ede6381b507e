// SPDX-License-Identifier: Apache-2.0
// OpLog: the durable side of the training streams. "ops" holds accepted training ops that are not
// in a manifest yet (replayed after an engine's death), "results" the first result of each number
// (given again to a retried one). Both are wire messages, request_id = the op's number. "losses"
// holds what is left of a state that could not be rebuilt: up to which number, and whether the
// client still has to be told. Bounded:
// the newest kKeptResults results of a model, and kMaxLoggedOps / kMaxLoggedBytes of ops since its
// last commit.
//
// Nothing here waits for the disk: what was given is there at once for every call of this class,
// and reaches the store in the order of the calls, per model. `kept` tells when. What the store
// does not take (a full disk) stays in memory until retry() has brought it there. Loop thread only.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>

#include "runtime/op.h"
#include "store/async_store.h"

namespace plexrl::runtime {

class OpLog {
 public:
  static constexpr std::uint64_t kKeptResults = 256;
  // A model that cannot commit stops taking ops here: replaying more would take minutes.
  static constexpr std::size_t kMaxLoggedOps = 4096;
  static constexpr std::uint64_t kMaxLoggedBytes = 256ULL << 20;
  // Beyond both, for the ops that lead to a commit: otherwise a full log could never be emptied.
  static constexpr std::size_t kReservedOps = 64;

  // Called once, from the loop.
  using Kept = std::function<void()>;

  explicit OpLog(store::AsyncStore& store) : store_(store) {}
  // Reads both tables; CORRUPT names the row.
  [[nodiscard]] Status load();

  // When the model's log is full: BUSY if a commit is to come that empties it; NO_CAPACITY, for
  // good, if no op in it leads to one: only the client's next optim_step does (optim_step and load
  // use the reserve). BUSY too while the store takes no rows.
  [[nodiscard]] Status room(ModelId model, core::OpKind kind) const;
  void append(const Op& op);
  [[nodiscard]] bool has_op(ModelId model, std::uint64_t seq) const;
  // Numbers with a logged op, in order.
  [[nodiscard]] std::vector<std::uint64_t> logged(ModelId model) const;
  // The op as it was accepted, without fd, tenant and waiters.
  [[nodiscard]] Result<Op> read(ModelId model, std::uint64_t seq) const;
  // The model's manifest holds everything up to `seq`.
  void committed(ModelId model, std::uint64_t seq);

  // What the ops up to last_result() made is gone, beside what the manifest holds: no recovery
  // looks at them again. `why` is for the client, who does not know it yet. `batch`: is on disk
  // with it.
  void lost(ModelId model, const Status& why, store::Batch batch = {});
  // Up to this number there is nothing to replay; 0 when nothing was lost.
  [[nodiscard]] std::uint64_t gone_up_to(ModelId model) const;
  // The manifest holds an op whose result is not kept: were it gone, nothing else would show it.
  void only_in_manifest(ModelId model, std::uint64_t seq);
  [[nodiscard]] std::uint64_t only_in_manifest(ModelId model) const;
  // Not ok until loss_told().
  [[nodiscard]] Status loss(ModelId model) const;
  // Written behind the result that tells it: a kill in between tells it again. Nothing when there
  // is another loss by now.
  void loss_told(ModelId model, const Status& told);
  // The newest logged publish that ended well; 0 when there is none.
  [[nodiscard]] std::uint64_t last_published(ModelId model) const;

  // `kept`: the result is durable, and all that was given of the model before it. Nobody may hear
  // of the result earlier. Also called when the model is forgotten first.
  void put_result(ModelId model, std::uint64_t seq, const OpOutcome& outcome, Kept kept);
  [[nodiscard]] Result<OpOutcome> result(ModelId model, std::uint64_t seq) const;  // NOT_FOUND
  [[nodiscard]] bool has_result(ModelId model, std::uint64_t seq) const;
  // The highest number with an op or a result; 0 when there is none.
  [[nodiscard]] std::uint64_t last_known(ModelId model) const;
  // The highest number with a result; 0 when there is none.
  [[nodiscard]] std::uint64_t last_result(ModelId model) const;
  void forget(ModelId model);  // model removed

  // Called when all that was given of the model is durable, which may be at once.
  void when_kept(ModelId model, Kept kept);

  // What the store did not take is offered to it again.
  void retry();
  // All rows of the model that the store does not have are on their way to it: what is written next
  // is there only if they are, too.
  void push(ModelId model);
  // Why the store does not take rows; empty while it does.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 private:
  // Changes on their way to the store.
  struct Row {
    std::uint64_t ticket = 0;
    store::BatchPtr batch;
    bool under_way = false;
    Kept kept;
  };
  struct Logged {
    std::size_t bytes = 0;
    bool commits = false;  // the model is committed after it
    bool publishes = false;
  };
  struct Index {
    std::map<std::uint64_t, Logged> ops;
    std::uint64_t op_bytes = 0;
    std::set<std::uint64_t> results;
    // The newest one of an op that ended well. It is kept however old: were the manifest gone, it
    // would be the only trace of a state that is lost.
    std::uint64_t last_good = 0;
    std::uint64_t trim_at = 2 * kKeptResults;  // results are erased many at a time
    std::deque<Row> rows;                      // in order
    bool refused = false;                      // the store did not take the first one
    std::uint64_t gone_up_to = 0;
    std::uint64_t only_in_manifest = 0;
    Status loss;  // untold
  };

  [[nodiscard]] static Status full(const Index& index);
  static void decode_loss(const std::string& row, Index& index);
  static void put_loss(ModelId model, const Index& index, store::Batch& batch);
  static void erase_ops(ModelId model, Index& index, std::uint64_t seq, store::Batch& batch);
  void add_row(ModelId model, store::Batch batch, Kept kept = {});
  void offer(ModelId model, Row& row);
  void offer_all(ModelId model, Index& index);
  void answered(ModelId model, std::uint64_t ticket, const Status& status);
  void refused(Index& index, const Status& why);
  void taken(ModelId model, Index& index);
  void trouble_may_be_over();
  void trim_results(ModelId model, Index& index, store::Batch& batch);
  [[nodiscard]] Result<std::string> bytes_of(std::string_view table, ModelId model,
                                             std::uint64_t seq) const;
  store::AsyncStore& store_;
  std::map<ModelId, Index> models_;
  std::uint64_t last_ticket_ = 0;
  std::string trouble_;
};

}  // namespace plexrl::runtime
