// SPDX-License-Identifier: Apache-2.0
// Session: what a plexrl_session is. Requests are written by the calling thread; one thread of the
// session reads replies, submits again what the service refused for now, and re-establishes a lost
// connection. All state is guarded by one mutex, which is never held while waiting or decoding.
//
// Exactly once: a training operation keeps its sequence number over every repetition, sampling
// keeps (sampling client, number). A refusal by BUSY, UNAVAILABLE or ENGINE_DOWN does not use a
// training number up, so the session submits the operation again after the stated time; only when
// UNAVAILABLE lasts longer than the session's timeout does the operation end. Sampling is submitted
// again after UNAVAILABLE (the service restarts); after BUSY the caller decides.
//
// Any thread. Not usable in a forked child.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "client/exchange.h"
#include "client/rpc_client.h"

namespace plexrl::client {

struct SessionOptions {
  ConnectTarget target;
  Duration timeout{30 * kSecond.ns};  // of the connection and of each attempt to get it back
};

// Operations that a session may have under way; more are BUSY.
inline constexpr std::size_t kMaxOutstanding = 4096;

class Session {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Session>> connect(SessionOptions options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // Cancels sampling, gives queued requests a second to be written, ends the connection; whatever
  // is under way ends as UNAVAILABLE. Idempotent.
  void close();

  [[nodiscard]] wire::HelloReplyT hello() const;
  [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }

  [[nodiscard]] Result<ModelPtr> open_model(wire::CreateModelT request);
  // As the service has it now.
  [[nodiscard]] Result<wire::ModelInfoT> model_info(const ModelPtr& model);
  [[nodiscard]] Status delete_model(const ModelPtr& model);

  [[nodiscard]] Result<ExchangePtr> submit(const ModelPtr& model, wire::OpArgsUnion args,
                                           UniqueFd fd);
  // TIMEOUT leaves it under way; no deadline: waits for good.
  [[nodiscard]] Status wait(const ExchangePtr& op, std::optional<TimePoint> deadline);
  [[nodiscard]] bool done(const ExchangePtr& op) const;
  void cancel(const ExchangePtr& op);
  [[nodiscard]] Result<std::string> explain(const ExchangePtr& op);

  [[nodiscard]] Result<std::string> query(wire::QueryKind kind, std::uint32_t job_id);

 private:
  enum class Link : std::uint8_t {
    kUp,
    kLost,    // being re-established
    kDown,    // given up; the next request starts a new attempt
    kRefused  // for good: token no longer accepted, or closed
  };
  using Lock = std::unique_lock<std::mutex>;
  struct Received {
    std::vector<wire::Frame> frames;
    Status failure;
  };

  explicit Session(SessionOptions options);
  [[nodiscard]] Status start(RpcClient connection);

  // session.cc: the caller's side. Lock held unless it takes one.
  [[nodiscard]] Result<ExchangePtr> begin(Lock& lock, wire::MessageT request, UniqueFd fd,
                                          ModelPtr model);
  [[nodiscard]] Result<wire::BodyUnion> call(wire::MessageT request,
                                             std::optional<TimePoint> deadline);
  template <class ReplyT, class RequestT>
  [[nodiscard]] Result<ReplyT> call(RequestT request, std::optional<TimePoint> deadline);
  [[nodiscard]] Status send(Exchange& exchange);
  void send_cancel(const Exchange& exchange);
  [[nodiscard]] Status sync_model(const ModelPtr& model);
  void wake() const noexcept;
  [[nodiscard]] TimePoint default_deadline() const noexcept;

  // session_io.cc: the session's thread.
  void run() noexcept;
  void serve(Lock& lock);
  [[nodiscard]] bool wait_for_event(Lock& lock);
  void read_replies(Lock& lock);
  void dispatch(wire::MessageT message);
  void settle(const ExchangePtr& exchange, wire::BodyUnion reply);
  void refused(const ExchangePtr& exchange, const wire::FailureT& failure);
  void finish(const ExchangePtr& exchange, Status status, std::uint32_t retry_after_ms = 0);
  void resubmit_due(TimePoint now);
  void resubmit(const ExchangePtr& exchange, TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_retry() const;
  void connection_lost(const Status& why);
  void reconnect(Lock& lock);
  [[nodiscard]] Result<RpcClient> new_connection(const std::vector<ModelPtr>& models,
                                                 std::vector<wire::ModelInfoT>* infos);
  void adopt(RpcClient connection, const std::vector<ModelPtr>& models,
             const std::vector<wire::ModelInfoT>& infos);
  void check_continuity(const ModelPtr& model, const wire::ModelInfoT& now);
  void give_up(Link state, const Status& why);
  void drain(Lock& lock);
  void sleep_or_wake(Lock& lock, Duration d);

  const SessionOptions options_;
  UniqueFd wake_fd_;
  mutable std::mutex mutex_;
  // Everything below is guarded by mutex_.
  Link link_ = Link::kLost;
  Status link_error_;  // why it is not up
  TimePoint lost_at_;
  bool closing_ = false;
  wire::HelloReplyT hello_;
  std::optional<wire::Channel> channel_;
  std::map<std::uint64_t, ExchangePtr> outstanding_;  // by request id = in order of submission
  std::map<std::string, ModelPtr> models_;
  std::uint64_t last_id_ = 0;
  std::uint64_t sampling_client_ = 0;
  std::uint64_t last_number_ = 0;
  std::thread thread_;
};

}  // namespace plexrl::client
