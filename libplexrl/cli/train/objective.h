// SPDX-License-Identifier: Apache-2.0
// What a policy gradient step optimises besides the advantages of --algo: the loss and its clip
// bounds, which groups are drawn again, what is taken off for length. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "cli/train/service.h"
#include "cli/train/train_options.h"

namespace plexrl::cli {

// The names of --loss.
inline constexpr const char* kLossNames[] = {"ppo", "importance_sampling", "cispo", "dro"};
[[nodiscard]] std::optional<Loss> loss_named(std::string_view name);

// Fills in what the options leave to --algo. INVALID_ARGUMENT for combinations that mean nothing,
// with a sentence that names both options.
[[nodiscard]] Status choose_objective(TrainOptions& options);

// Of options that choose_objective has filled in.
[[nodiscard]] LossRequest loss_request(const TrainOptions& options);

// What is taken off the reward of an answer of `tokens` tokens, of which it may have at most
// `limit`: nothing up to limit - buffer, then linearly more, --length-penalty at the limit. DAPO
// (Yu et al., arXiv 2503.14476), section 3.4, calls it soft overlong punishment. A buffer of 0 is
// the whole limit.
[[nodiscard]] double length_penalty(const TrainOptions& options, std::uint32_t limit,
                                    std::size_t tokens);

}  // namespace plexrl::cli
