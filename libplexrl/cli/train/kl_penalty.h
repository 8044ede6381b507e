// SPDX-License-Identifier: Apache-2.0
// KlPenalty: keeps the policy near the base, which is the reference. For a sampled token q is its
// log-probability when it was sampled and b that under the base; the mean of q - b over the answer
// tokens estimates KL(policy || base). The advantage of a token gains
//   coefficient * (mean(q - b) - (q - b)),
// the penalty -coefficient * (q - b) less its mean over the step, so that the penalty alone moves
// no token when all are equally far away. One thread.
#pragma once

#include <vector>

#include "cli/train/op_meter.h"
#include "cli/train/rollout.h"
#include "cli/train/service.h"

namespace plexrl::cli {

class KlPenalty {
 public:
  // Asks the service for the base's log-probabilities, in `parts` ops of about as many rows, and
  // waits. `samples` rows have one prompt.
  [[nodiscard]] static Result<KlPenalty> measure(Service& service, OpMeter& meter,
                                                 const RolloutBatch& batch, std::uint32_t samples,
                                                 std::uint32_t parts, double coefficient);

  [[nodiscard]] double mean() const { return mean_; }  // nats per token
  // Adds `scale` times the penalty to the advantages of the datum of row `row`.
  void add_to(Datum& datum, std::size_t row, double scale) const;

 private:
  struct Row {
    std::size_t first = 0;            // position of the first answer token in the datum
    std::vector<double> differences;  // q - b of the answer's tokens
    std::vector<bool> own;            // as in Sequence: others count nowhere
    [[nodiscard]] bool is_own(std::size_t i) const { return own.empty() || own[i]; }
  };
  double coefficient_ = 0.0;
  double mean_ = 0.0;
  std::vector<Row> rows_;
};

}  // namespace plexrl::cli
