// SPDX-License-Identifier: Apache-2.0
// The session's own thread: replies, repetition, reconnection.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <exception>

#include "base/check.h"
#include "client/session.h"
#include "wire/blocking.h"

namespace plexrl::client {
namespace {

constexpr Duration kShortestRetry{10 * kMillisecond.ns};
constexpr Duration kBetweenAttempts{100 * kMillisecond.ns};
// One attempt to connect and say Hello; a session that is closed meanwhile waits for it.
constexpr Duration kOneAttempt{5 * kSecond.ns};
constexpr Duration kDrain{1 * kSecond.ns};

// A refused request was not taken, so it may be sent again. UNAVAILABLE is a restart of the
// service, which nobody should notice.
bool is_repeated(const Exchange& exchange, Code code) {
  if (code == Code::UNAVAILABLE) return true;
  return exchange.is_training() && (code == Code::BUSY || code == Code::ENGINE_DOWN);
}

// The two enums list arguments and results in the same order.
bool answers(const wire::OpReplyT& reply, const wire::SubmitOpT& submit) {
  return reply.value.value != nullptr &&
         static_cast<int>(reply.value.type) == static_cast<int>(submit.args.type);
}

}  // namespace

void Session::run() noexcept {
  try {
    Lock lock(mutex_);
    while (!closing_) {
      if (link_ == Link::kLost)
        reconnect(lock);
      else
        serve(lock);
    }
    drain(lock);
    give_up(Link::kRefused, error(Code::UNAVAILABLE, "the session has ended"));
    channel_.reset();
  } catch (const std::exception& e) {
    // Out of memory. Waiters must not hang.
    const Lock lock(mutex_);
    give_up(Link::kRefused, error(Code::BUSY, "the session's thread ended: %s", e.what()));
  }
}

// ---- connected ----

void Session::serve(Lock& lock) {
  if (link_ == Link::kUp && !channel_->failure().ok()) {
    connection_lost(channel_->failure());
    return;
  }
  if (!wait_for_event(lock) || link_ != Link::kUp) return;
  static_cast<void>(channel_->flush());  // errors are seen as failure() on the next round
  read_replies(lock);
  resubmit_due(system_clock().now());
}

// False when it was only a wake-up of a session that is not connected.
bool Session::wait_for_event(Lock& lock) {
  std::array<pollfd, 2> fds{};
  fds[0] = {wake_fd_.get(), POLLIN, 0};
  nfds_t count = 1;
  if (link_ == Link::kUp) {
    const int events =
        (channel_->wants_read() ? POLLIN : 0) | (channel_->wants_write() ? POLLOUT : 0);
    fds[count++] = {channel_->fd(), static_cast<short>(events), 0};
  }
  int timeout = -1;
  if (const auto retry = next_retry())
    timeout = wire::poll_timeout_ms(*retry, system_clock().now());
  lock.unlock();
  ::poll(fds.data(), count, timeout);
  eventfd_t ignored = 0;
  ::eventfd_read(wake_fd_.get(), &ignored);
  lock.lock();
  if (link_ == Link::kDown && !outstanding_.empty()) {
    link_ = Link::kLost;
    lost_at_ = system_clock().now();
  }
  return count == 2;
}

void Session::read_replies(Lock& lock) {
  static_cast<void>(channel_->receive());
  std::vector<wire::Frame> frames;
  while (auto frame = channel_->next()) frames.push_back(std::move(*frame));
  for (const wire::Frame& frame : frames) {
    lock.unlock();
    Result<wire::MessageT> message = wire::decode_message(frame.payload);
    lock.lock();
    if (!message) {
      connection_lost(message.error());
      return;
    }
    dispatch(std::move(*message));
  }
}

void Session::dispatch(wire::MessageT message) {
  const auto it = outstanding_.find(message.request_id);
  // Answers to a CancelOp, and to calls whose deadline has passed, have no entry.
  if (it == outstanding_.end()) return;
  const ExchangePtr exchange = it->second;
  if (const auto* failure = wire::body_as<wire::FailureT>(message.body))
    refused(exchange, *failure);
  else
    settle(exchange, std::move(message.body));
}

void Session::settle(const ExchangePtr& exchange, wire::BodyUnion reply) {
  if (const wire::SubmitOpT* submit = exchange->submit()) {
    const wire::OpReplyT* op = reply.AsOpReply();
    if (op == nullptr || !answers(*op, *submit)) {
      finish(exchange, error(Code::PROTOCOL, "the service answered with a result of another kind"));
      return;
    }
  }
  exchange->reply = std::move(reply);
  finish(exchange, {});
}

void Session::refused(const ExchangePtr& exchange, const wire::FailureT& failure) {
  Status status = wire::from_failure(failure);
  const TimePoint now = system_clock().now();
  if (status.code() != Code::UNAVAILABLE) exchange->refused_at.reset();
  if (!is_repeated(*exchange, status.code())) {
    finish(exchange, std::move(status), failure.retry_after_ms);
    return;
  }
  if (status.code() == Code::UNAVAILABLE && !exchange->refused_at) exchange->refused_at = now;
  if (exchange->refused_at && now - *exchange->refused_at >= options_.timeout) {
    if (exchange->is_training()) exchange->model->synced = false;
    finish(exchange, std::move(status), failure.retry_after_ms);
    return;
  }
  const Duration stated{static_cast<std::int64_t>(failure.retry_after_ms) * kMillisecond.ns};
  exchange->retry_at = now + std::max(stated, kShortestRetry);
}

void Session::finish(const ExchangePtr& exchange, Status status, std::uint32_t retry_after_ms) {
  outstanding_.erase(exchange->id());
  exchange->status = std::move(status);
  exchange->retry_after_ms = retry_after_ms;
  exchange->request.body.Reset();
  exchange->fd.reset();
  exchange->done = true;
  exchange->ended.notify_all();
}

std::optional<TimePoint> Session::next_retry() const {
  std::optional<TimePoint> first;
  if (link_ != Link::kUp) return first;
  for (const auto& [id, exchange] : outstanding_)
    if (exchange->retry_at && (!first || *exchange->retry_at < *first)) first = exchange->retry_at;
  return first;
}

void Session::resubmit_due(TimePoint now) {
  std::vector<ExchangePtr> due;
  for (const auto& [id, exchange] : outstanding_)
    if (exchange->retry_at && *exchange->retry_at <= now) due.push_back(exchange);
  for (const ExchangePtr& exchange : due)
    if (link_ == Link::kUp) resubmit(exchange, now);
}

void Session::resubmit(const ExchangePtr& exchange, TimePoint now) {
  const Status status = send(*exchange);
  if (status.code() == Code::BUSY) {  // our own queue is full: later
    exchange->retry_at = now + kShortestRetry;
    return;
  }
  exchange->retry_at.reset();
  if (!status.ok()) {
    if (exchange->is_training()) exchange->model->synced = false;
    finish(exchange, status);
  } else if (exchange->cancel_wanted) {
    send_cancel(*exchange);
  }
}

// ---- lost and found ----

void Session::connection_lost(const Status& why) {
  link_ = Link::kLost;
  link_error_ = why;
  lost_at_ = system_clock().now();
  channel_.reset();
  for (const auto& [id, exchange] : outstanding_) exchange->sent = false;
}

void Session::reconnect(Lock& lock) {
  std::vector<ModelPtr> models;
  for (const auto& [name, model] : models_) models.push_back(model);
  std::vector<wire::ModelInfoT> infos;
  lock.unlock();
  Result<RpcClient> connection = new_connection(models, &infos);
  lock.lock();
  if (connection) {
    adopt(std::move(*connection), models, infos);
    return;
  }
  link_error_ = connection.error();
  if (link_error_.code() == Code::AUTH || link_error_.code() == Code::PERMISSION) {
    give_up(Link::kRefused, link_error_);
  } else if (system_clock().now() - lost_at_ >= options_.timeout) {
    give_up(Link::kDown,
            error(Code::UNAVAILABLE,
                  "the connection is lost and did not come back within %lld s (%s); the "
                  "operation may or may not have been taken",
                  static_cast<long long>(options_.timeout.ns / kSecond.ns),
                  link_error_.text().c_str()));
  } else {
    sleep_or_wake(lock, kBetweenAttempts);
  }
}

// Without the lock: models' create requests never change.
Result<RpcClient> Session::new_connection(const std::vector<ModelPtr>& models,
                                          std::vector<wire::ModelInfoT>* infos) {
  const TimePoint deadline = system_clock().now() + std::min(kOneAttempt, options_.timeout);
  PLEXRL_ASSIGN(RpcClient connection, RpcClient::connect(options_.target, deadline));
  for (const ModelPtr& model : models) {
    PLEXRL_ASSIGN(wire::ModelInfoT info,
                  connection.call<wire::ModelInfoT>(model->create, deadline));
    infos->push_back(std::move(info));
  }
  return connection;
}

void Session::adopt(RpcClient connection, const std::vector<ModelPtr>& models,
                    const std::vector<wire::ModelInfoT>& infos) {
  hello_ = connection.hello();
  channel_.emplace(std::move(connection).release_channel());
  link_ = Link::kUp;
  for (std::size_t i = 0; i < models.size(); ++i) check_continuity(models[i], infos[i]);
  const TimePoint now = system_clock().now();
  for (const auto& [id, exchange] : outstanding_) exchange->retry_at = now;
  resubmit_due(now);
}

// The service may have come back without what it had taken, for instance with an empty state
// directory. Going on with old numbers would then wait for ever, or train another model.
void Session::check_continuity(const ModelPtr& model, const wire::ModelInfoT& now) {
  std::uint64_t needed = model->next_seq;
  std::vector<ExchangePtr> training;
  for (const auto& [id, exchange] : outstanding_)
    if (exchange->model == model && exchange->is_training()) training.push_back(exchange);
  for (const ExchangePtr& exchange : training) needed = std::min(needed, exchange->submit()->seq);
  const bool same = now.model == model->info.model && (!model->synced || now.next_seq >= needed);
  model->info = now;
  if (same) return;
  for (const ExchangePtr& exchange : training)
    finish(exchange, error(Code::LOST,
                           "model '%s': the service has lost its state (next number %llu, expected "
                           "%llu): load a checkpoint",
                           now.name.c_str(), static_cast<unsigned long long>(now.next_seq),
                           static_cast<unsigned long long>(needed)));
  model->next_seq = now.next_seq;
}

void Session::give_up(Link state, const Status& why) {
  link_ = state;
  link_error_ = why;
  while (!outstanding_.empty()) {
    const ExchangePtr exchange = outstanding_.begin()->second;
    if (exchange->is_training()) exchange->model->synced = false;
    finish(exchange, why);
  }
}

// What callers have submitted is written before the connection ends, unless the service does not
// read.
void Session::drain(Lock& lock) {
  if (link_ != Link::kUp) return;
  for (const auto& [id, exchange] : outstanding_)
    if (exchange->is_sampling()) send_cancel(*exchange);
  const TimePoint deadline = system_clock().now() + kDrain;
  while (channel_->wants_write() && system_clock().now() < deadline) {
    pollfd p{channel_->fd(), POLLOUT, 0};
    lock.unlock();
    ::poll(&p, 1, wire::poll_timeout_ms(deadline, system_clock().now()));
    lock.lock();
    static_cast<void>(channel_->flush());
  }
}

void Session::sleep_or_wake(Lock& lock, Duration d) {
  pollfd p{wake_fd_.get(), POLLIN, 0};
  lock.unlock();
  ::poll(&p, 1, static_cast<int>(d.ns / kMillisecond.ns));
  eventfd_t ignored = 0;
  ::eventfd_read(wake_fd_.get(), &ignored);
  lock.lock();
}

}  // namespace plexrl::client
