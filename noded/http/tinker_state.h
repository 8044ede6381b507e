// SPDX-License-Identifier: Apache-2.0
// TinkerState: what the Tinker API keeps besides its requests: which polls end when, and samples.
// Loop thread only.
#pragma once

#include <set>
#include <string>

#include "http/body_fields.h"
#include "http/model_call.h"
#include "http/tinker_samples.h"
#include "loop/event_loop.h"

namespace plexrl::http {

// A poll that waits; ends by itself at the latest when it is told that its time is over.
class TinkerPoll : public Handler {
 public:
  virtual void time_over() = 0;
  virtual void sample_over() {}  // the sample that it waits for has a result, or is gone
};

class TinkerState {
 public:
  // The client gives up after 45 s, and comes again after a pause then.
  static constexpr Duration kPollTime{30 * kSecond.ns};
  // Before a call is tried again that the node refused for now.
  static constexpr Duration kRetryTime{kSecond.ns};

  explicit TinkerState(HttpContext& context) : context_(context), samples_(context) {}
  TinkerState(const TinkerState&) = delete;
  TinkerState& operator=(const TinkerState&) = delete;
  // Before the first request.
  [[nodiscard]] Status connect(loop::EventLoop& loop);

  // The exchange's handler, a TinkerPoll, is told when the time is over, unless it is gone by then.
  void hold(SessionId exchange, Duration time);
  // Who waits for the job's ops that no request waits for.
  [[nodiscard]] static SessionId owner(TenantId tenant);
  [[nodiscard]] std::uint64_t next_request() { return ++last_request_; }
  [[nodiscard]] TinkerSamples& samples() { return samples_; }
  void tenant_closed(TenantId tenant);

 private:
  void end_polls();

  HttpContext& context_;
  TinkerSamples samples_;
  loop::Timer timer_;
  std::set<std::pair<std::int64_t, SessionId>> polls_;  // nanoseconds
  std::uint64_t last_request_ = 0;
};

// ---- answers ----

void answer_json(Exchange& exchange, const Json& document);
// {"detail": ..}: a refusal of the request itself.
void answer_refusal(Exchange& exchange, const Status& why, std::uint32_t retry_after_ms = 0,
                    const std::string& field = "");
// 404 in the same words, whether there is no such thing or it is another job's.
void answer_unknown(Exchange& exchange, const char* what, const std::string& id);

}  // namespace plexrl::http
