// SPDX-License-Identifier: Apache-2.0
// Data of the supervised warm start: cross entropy on the answers of fresh training problems.
#pragma once

#include <functional>
#include <vector>

#include "cli/train/environment.h"
#include "cli/train/service.h"

namespace plexrl::cli {

// The tokens that a problem is asked in.
using EncodeProblem = std::function<Result<Tokens>(const Problem&)>;

// `batch` data of step `step`; depends on (seed, step) only. Weights are 1 / (answer tokens of the
// batch) on answer positions, so that the loss, a sum, is the mean over answer tokens. `stop`: the
// token that ends an answer.
[[nodiscard]] Result<std::vector<Datum>> sft_batch(Environment& environment,
                                                   const TextTokenizer& tokenizer,
                                                   const EncodeProblem& prompt_of,
                                                   std::int32_t stop, std::uint32_t batch,
                                                   std::uint64_t seed, std::uint64_t step);

}  // namespace plexrl::cli
