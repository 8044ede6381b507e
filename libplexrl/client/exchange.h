// SPDX-License-Identifier: Apache-2.0
// Exchange: one request of a session and its reply; an operation is an exchange whose request is a
// SubmitOp. Guarded by the session's mutex until `done`; constant afterwards.
#pragma once

#include <condition_variable>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "plexrl_generated.h"

namespace plexrl::client {

// A model of the session. One per name, however many handles there are, so that all of them number
// their training operations from one counter.
struct ModelState {
  wire::CreateModelT create;  // as it is repeated on a new connection
  wire::ModelInfoT info;      // as of the last answer
  std::uint64_t next_seq = 1;
  // False when operations ended without our knowing whether the service took them; the next
  // training operation asks first.
  bool synced = true;
};
using ModelPtr = std::shared_ptr<ModelState>;

struct Exchange {
  wire::MessageT request;  // kept to be submitted again; emptied when done
  UniqueFd fd;             // goes with the request
  ModelPtr model;          // of operations
  bool sent = false;       // on the present connection
  bool cancel_wanted = false;
  std::optional<TimePoint> retry_at;    // refused for now: submitted again then
  std::optional<TimePoint> refused_at;  // first UNAVAILABLE in a row

  bool done = false;
  Status status;
  std::uint32_t retry_after_ms = 0;
  wire::BodyUnion reply;
  std::condition_variable ended;

  [[nodiscard]] std::uint64_t id() const noexcept { return request.request_id; }
  [[nodiscard]] const wire::SubmitOpT* submit() const noexcept { return request.body.AsSubmitOp(); }
  [[nodiscard]] bool is_training() const noexcept {
    return submit() != nullptr && submit()->seq != 0;
  }
  [[nodiscard]] bool is_sampling() const noexcept {
    return submit() != nullptr && submit()->seq == 0;
  }
};
using ExchangePtr = std::shared_ptr<Exchange>;

}  // namespace plexrl::client
