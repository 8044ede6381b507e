// SPDX-License-Identifier: Apache-2.0
#include "cli/train/training_stream.h"

#include <chrono>
#include <thread>

namespace plexrl::cli {
namespace {

// A publish that an earlier process got accepted is applied when the ops before it are; 10 minutes
// cover a recovery of the engine with a replay.
constexpr int kVersionPolls = 6000;
constexpr std::chrono::milliseconds kVersionPollInterval{100};

void add(const LossResult& loss, UpdateResult& sum) {
  sum.loss_sum += loss.loss_sum;
  sum.ratio_mean += loss.ratio_mean;
  sum.clip_fraction += loss.clip_fraction;
  sum.logprob_drop += loss.logprob_drop_mean;
  sum.entropy += loss.entropy_mean;
}

}  // namespace

bool TrainingStream::skip() { return next_++ < accepted_end_; }

Status TrainingStream::forward_backward(const LossRequest& loss, const std::vector<Datum>& data) {
  if (skip()) return {};
  PLEXRL_ASSIGN(auto future, service_.forward_backward(loss, data));
  outstanding_.emplace_back(std::move(future));
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

Result<UpdateResult> TrainingStream::finish() {
  UpdateResult sum;
  sum.ratio_mean = 0.0;
  double losses = 0.0;
  for (; !outstanding_.empty(); outstanding_.pop_front()) {
    if (auto* loss = std::get_if<FuturePtr<LossResult>>(&outstanding_.front())) {
      PLEXRL_ASSIGN(const LossResult result, meter_.wait(**loss));
      add(result, sum);
      losses += 1.0;
    } else {
      PLEXRL_ASSIGN(const OptimResult result,
                    meter_.wait(*std::get<FuturePtr<OptimResult>>(outstanding_.front())));
      sum.grad_norm = result.grad_norm;
    }
  }
  if (losses == 0.0) return UpdateResult{};
  sum.ratio_mean /= losses;
  sum.clip_fraction /= losses;
  sum.logprob_drop /= losses;
  sum.entropy /= losses;
  return sum;
}

}  // namespace plexrl::cli
