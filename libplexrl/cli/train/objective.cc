// SPDX-License-Identifier: Apache-2.0
#include "cli/train/objective.h"

#include <algorithm>
#include <iterator>

#include "cli/train/grpo.h"

namespace plexrl::cli {
namespace {

// DAPO, section 3.1: the bound above is wider, so that unlikely tokens can gain.
constexpr double kDapoClipHigh = 1.28;
// Each round costs a rollout of the groups that are missing; with half of the groups without a
// signal three rounds leave one in sixteen.
constexpr std::uint32_t kDapoRounds = 3;

// MiniMax-M1 (arXiv 2506.13585), section 3.1, bounds the ratio from above only.
constexpr double kCispoClipLow = 0.0;
constexpr double kCispoClipHigh = 4.0;
constexpr double kDroBeta = 0.01;

bool is_clipped(Loss loss) { return loss == Loss::kPpo || loss == Loss::kCispo; }

// Bounds of the ratio, where the options give none.
void choose_clip(TrainOptions& options, Algorithm algorithm, Loss loss) {
  const bool cispo = loss == Loss::kCispo;
  if (!options.clip_low) options.clip_low = cispo ? kCispoClipLow : kClipLow;
  if (!options.clip_high)
    options.clip_high = cispo                           ? kCispoClipHigh
                        : algorithm == Algorithm::kDapo ? kDapoClipHigh
                                                        : kClipHigh;
}

Status choose_loss(TrainOptions& options, Algorithm algorithm) {
  if (options.loss.empty())
    options.loss = loss_of(algorithm) == Loss::kPpo ? "ppo" : "importance_sampling";
  const auto loss = loss_named(options.loss);
  if (!loss) return error(Code::INVALID_ARGUMENT, "--loss '%s': not known", options.loss.c_str());
  if (options.dro_beta && *loss != Loss::kDro)
    return error(Code::INVALID_ARGUMENT,
                 "--dro-beta: the loss is %s; leave it out or choose --loss dro",
                 options.loss.c_str());
  if (*loss == Loss::kDro && !options.dro_beta) options.dro_beta = kDroBeta;
  if (!is_clipped(*loss)) {
    if (options.clip_low || options.clip_high)
      return error(Code::INVALID_ARGUMENT,
                   "--clip-low and --clip-high: the loss %s of --algo %s does not clip; leave them "
                   "out or choose --loss ppo or cispo",
                   options.loss.c_str(), options.algorithm.c_str());
    return {};
  }
  choose_clip(options, algorithm, *loss);
  if (*options.clip_low > 1.0 || *options.clip_high < 1.0)
    return error(Code::INVALID_ARGUMENT,
                 "--clip-low and --clip-high: the ratio 1 must lie between them");
  return {};
}

Status choose_groups(TrainOptions& options, Algorithm algorithm) {
  if (!options.resample_rounds)
    options.resample_rounds = algorithm == Algorithm::kDapo ? kDapoRounds : 0;
  if (*options.resample_rounds == 0) return {};
  if (algorithm == Algorithm::kReinforcePlusPlus)
    return error(Code::INVALID_ARGUMENT,
                 "--dynamic-sampling: reinforce++ compares all samples of a step, so equal rewards "
                 "within a group are a signal too; leave it out or choose another --algo");
  if (options.samples == 1)
    return error(Code::INVALID_ARGUMENT,
                 "--dynamic-sampling: with --samples 1 no group ever has a signal; ask for more "
                 "samples or give --dynamic-sampling 0");
  return {};
}

Status choose_length_penalty(TrainOptions& options) {
  if (options.length_penalty) {
    if (*options.length_penalty == 0.0 && options.overlong_buffer > 0)
      return error(Code::INVALID_ARGUMENT,
                   "--overlong-buffer: a --length-penalty of 0 takes nothing off");
    return {};
  }
  options.length_penalty = options.overlong_buffer > 0 ? 1.0 : 0.0;
  return {};
}

}  // namespace

std::optional<Loss> loss_named(std::string_view name) {
  constexpr Loss kLosses[] = {Loss::kPpo, Loss::kImportanceSampling, Loss::kCispo, Loss::kDro};
  static_assert(std::size(kLosses) == std::size(kLossNames));
  const auto found = std::find(std::begin(kLossNames), std::end(kLossNames), name);
  if (found == std::end(kLossNames)) return std::nullopt;
  return kLosses[found - std::begin(kLossNames)];
}

Status choose_objective(TrainOptions& options) {
  const auto algorithm = algorithm_of(options.algorithm);
  if (!algorithm)
    return error(Code::INVALID_ARGUMENT, "--algo '%s': not known", options.algorithm.c_str());
  PLEXRL_TRY(choose_loss(options, *algorithm));
  PLEXRL_TRY(choose_groups(options, *algorithm));
  return choose_length_penalty(options);
}

LossRequest loss_request(const TrainOptions& options) {
  LossRequest request(*loss_named(options.loss));
  request.clip_low = options.clip_low.value_or(request.clip_low);
  request.clip_high = options.clip_high.value_or(request.clip_high);
  request.beta = options.dro_beta.value_or(request.beta);
  return request;
}

double length_penalty(const TrainOptions& options, std::uint32_t limit, std::size_t tokens) {
  const double most = options.length_penalty.value_or(0.0);
  if (most == 0.0 || limit == 0) return 0.0;
  const double buffer = options.overlong_buffer > 0 ? options.overlong_buffer : limit;
  const double over = static_cast<double>(tokens) - (limit - buffer);
  return most * std::clamp(over / buffer, 0.0, 1.0);
}

}  // namespace plexrl::cli
