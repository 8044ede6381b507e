// SPDX-License-Identifier: Apache-2.0
#include "cli/train/training_stream.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace plexrl::cli {
namespace {

// A publish that an earlier process got accepted is applied when the ops before it are; 10 minutes
// cover a recovery of the engine with a replay.
constexpr int kVersionPolls = 6000;
constexpr std::chrono::milliseconds kVersionPollInterval{100};

// As the engine counts: its means are over these positions.
double positions_that_count(const std::vector<Datum>& data) {
  double count = 0.0;
  for (const Datum& datum : data)
    for (const auto* values : {&datum.weights, &datum.advantages})
      count += static_cast<double>(
          std::count_if(values->begin(), values->end(), [](float value) { return value != 0.0F; }));
  return count;
}

void add(const LossResult& loss, double share, TokenMeans& means) {
  means.ratio += share * loss.ratio_mean;
  means.clip_fraction += share * loss.clip_fraction;
  means.entropy += share * loss.entropy_mean;
  means.logprob_drop += share * loss.logprob_drop_mean;
}

}  // namespace

bool TrainingStream::skip() { return next_++ < accepted_end_; }

Status TrainingStream::forward_backward(const LossRequest& loss, const std::vector<Datum>& data) {
  if (skip()) return {};
  PLEXRL_ASSIGN(auto future, service_.forward_backward(loss, data));
  outstanding_.emplace_back(OutstandingLoss{std::move(future), positions_that_count(data)});
  return {};
}

Status TrainingStream::optim_step(const OptimRequest& request) {
  if (skip()) return {};
  PLEXRL_ASSIGN(auto future, service_.optim_step(request));
  outstanding_.emplace_back(std::move(future));
  return {};
}

Result<SaveResult> TrainingStream::waited(Result<FuturePtr<SaveResult>> submitted) {
  if (!submitted.has_value()) return submitted.error();
  return meter_.wait(**submitted);
}

Status TrainingStream::wait_for_version(std::uint64_t version) {
  for (int i = 0; i < kVersionPolls; ++i) {
    PLEXRL_ASSIGN(const ModelFacts facts, service_.model());
    if (facts.latest_version >= version) return {};
    std::this_thread::sleep_for(kVersionPollInterval);
  }
  return error(Code::TIMEOUT,
               "version %llu was accepted before this process started but never came",
               static_cast<unsigned long long>(version));
}

Result<std::uint64_t> TrainingStream::publish() {
  const std::uint64_t number = next_;
  if (skip()) {
    PLEXRL_TRY(wait_for_version(number));
    return number;
  }
  PLEXRL_ASSIGN(const SaveResult result, waited(service_.publish()));
  return result.version;
}

Result<SaveResult> TrainingStream::save_fd(int fd, SaveFormat format) {
  next_ = std::max(next_, accepted_end_) + 1;
  return waited(service_.save_fd(fd, format));
}

Result<SaveResult> TrainingStream::load_fd(int fd) {
  next_ = std::max(next_, accepted_end_) + 1;
  return waited(service_.load_fd(fd));
}

Status TrainingStream::settle() {
  for (; !outstanding_.empty(); outstanding_.pop_front()) {
    if (auto* loss = std::get_if<OutstandingLoss>(&outstanding_.front())) {
      PLEXRL_ASSIGN(const LossResult result, meter_.wait(*loss->future));
      losses_.emplace_back(result, loss->positions);
    } else {
      PLEXRL_ASSIGN(const OptimResult result,
                    meter_.wait(*std::get<FuturePtr<OptimResult>>(outstanding_.front())));
      grad_norm_ = result.grad_norm;
    }
  }
  return {};
}

Result<UpdateResult> TrainingStream::finish() {
  PLEXRL_TRY(settle());
  const auto losses = std::exchange(losses_, {});
  UpdateResult sum;
  sum.grad_norm = std::exchange(grad_norm_, 0.0);
  double positions = 0.0;
  for (const auto& [loss, count] : losses) {
    sum.loss_sum += loss.loss_sum;
    positions += count;
  }
  if (positions == 0.0) return sum;
  sum.means.emplace();
  for (const auto& [loss, count] : losses) add(loss, count / positions, *sum.means);
  return sum;
}

}  // namespace plexrl::cli
