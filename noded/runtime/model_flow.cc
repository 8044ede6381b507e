// SPDX-License-Identifier: Apache-2.0
#include "runtime/model_flow.h"

#include <algorithm>

namespace plexrl::runtime {

OpId ModelFlow::next_to_feed() {
  if (waits_for_engine_ || recovering() || ready_.empty()) return {};
  const bool wall = std::any_of(fed_.begin(), fed_.end(),
                                [](const auto& entry) { return entry.second == Gate::kLoad; });
  if (wall) return {};
  const Entry next = ready_.front();
  if (next.gate != Gate::kNone && !fed_.empty()) return {};
  if (next.gate == Gate::kPublish) {
    replacing_ = true;
    if (readers_ > 0) return {};
  }
  ready_.pop_front();
  fed_.emplace(next.op, next.gate);
  return next.op;
}

void ModelFlow::training_ended(OpId op) {
  const auto found = fed_.find(op);
  if (found == fed_.end()) return training_cancelled(op);
  if (found->second == Gate::kPublish) replacing_ = false;
  fed_.erase(found);
}

void ModelFlow::training_cancelled(OpId op) {
  const auto found = std::find_if(ready_.begin(), ready_.end(),
                                  [&](const Entry& entry) { return entry.op == op; });
  if (found == ready_.end()) return;
  if (found == ready_.begin() && found->gate == Gate::kPublish) replacing_ = false;
  ready_.erase(found);
}

void ModelFlow::begin_recovery() {
  ready_.clear();
  fed_.clear();
  replays_.clear();
  replacing_ = false;
  waits_for_engine_ = false;
}

bool ModelFlow::replay_ended(OpId op) { return replays_.erase(op) != 0 && replays_.empty(); }

}  // namespace plexrl::runtime
