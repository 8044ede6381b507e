// SPDX-License-Identifier: Apache-2.0
// TrainingStream: the ordered training ops of one run, written so that a run that was cut anywhere
// goes on without applying an op twice. The controller is deterministic: it issues the same ops
// under the same numbers again, and the stream drops those that the service had accepted before.
// Ops are pipelined: they are submitted at once and their results are taken by finish(). One
// thread.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "cli/train/op_meter.h"
#include "cli/train/service.h"

namespace plexrl::cli {

// Over the positions of a step that count, those whose weight or advantage is not 0.
struct TokenMeans {
  double ratio = 0.0;
  double clip_fraction = 0.0;
  double entropy = 0.0;
  double logprob_drop = 0.0;
};

// What finish() learnt of a step's ops; of those that an earlier process issued nothing is known.
struct UpdateResult {
  double loss_sum = 0.0;
  double grad_norm = 0.0;           // of the last optim_step
  std::optional<TokenMeans> means;  // nothing when no position counts
};

class TrainingStream {
 public:
  // `next` is the number of the next op that this run issues, `accepted_end` the service's
  // next_seq: ops with numbers in [next, accepted_end) are dropped.
  TrainingStream(Service& service, OpMeter& meter, std::uint64_t next, std::uint64_t accepted_end)
      : service_(service), meter_(meter), next_(next), accepted_end_(accepted_end) {}

  [[nodiscard]] std::uint64_t next() const { return next_; }
  [[nodiscard]] Status forward_backward(const LossRequest& loss, const std::vector<Datum>& data);
  [[nodiscard]] Status optim_step(const OptimRequest& request);
  // Waits; the new version. After a cut: the version that the earlier process published.
  [[nodiscard]] Result<std::uint64_t> publish();
  // Save and load are waited for. They may be issued again: a save changes nothing, a load starts
  // anew.
  [[nodiscard]] Result<SaveResult> save_fd(int fd, SaveFormat format);
  [[nodiscard]] Result<SaveResult> load_fd(int fd);
  // Waits for all outstanding ops; their results go to the next finish().
  [[nodiscard]] Status settle();
  // The same; what was learnt of the ops since the last finish().
  [[nodiscard]] Result<UpdateResult> finish();

 private:
  // True when the op with the next number was accepted earlier; counts it.
  [[nodiscard]] bool skip();
  [[nodiscard]] Result<SaveResult> waited(Result<FuturePtr<SaveResult>> submitted);
  [[nodiscard]] Status wait_for_version(std::uint64_t version);

  struct OutstandingLoss {
    FuturePtr<LossResult> future;
    double positions = 0.0;  // that count
  };

  Service& service_;
  OpMeter& meter_;
  std::uint64_t next_;
  std::uint64_t accepted_end_;
  std::deque<std::variant<OutstandingLoss, FuturePtr<OptimResult>>> outstanding_;
  std::vector<std::pair<LossResult, double>> losses_;  // with the positions that count
  double grad_norm_ = 0.0;
};

}  // namespace plexrl::cli
