// SPDX-License-Identifier: Apache-2.0
#include "client/lease.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "wire/blocking.h"

namespace plexrl::client {
namespace {

// How long wait() sleeps at most between looks: another thread may have read the answer.
constexpr Duration kLookAgain{50 * kMillisecond.ns};
// Between attempts to get a lost connection back, and how long one may take where nobody waits.
constexpr Duration kTryAgain{200 * kMillisecond.ns};

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return errno_error(Code::IO, errno, "duplicate a descriptor");
  return copy;
}

bool lost(const Status& status) { return status.code() == Code::UNAVAILABLE; }

}  // namespace

Result<std::unique_ptr<Lease>> Lease::acquire(ConnectTarget target, wire::LeaseAcquireT request,
                                              Duration timeout) {
  std::unique_ptr<Lease> lease(new Lease(std::move(target), std::move(request), timeout));
  const Lock lock(lease->mutex_);
  PLEXRL_TRY(lease->connect(lease->deadline()));
  return lease;
}

Lease::~Lease() {
  (void)release();
  regions_.clear();
}

// ---- the connection ----

Status Lease::connect(TimePoint deadline) {
  PLEXRL_ASSIGN(RpcClient client, RpcClient::connect_when_up(target_, deadline));
  channel_.emplace(std::move(client).release_channel());
  charged_again_.clear();
  for (const auto& region : regions_) region->set_id(0);
  watch_id_ = 0;
  // Above what the hello has used.
  last_id_ = std::max<std::uint64_t>(last_id_, 16);
  return ask(deadline);
}

// Yielded while the connection was away: plexrld still takes us for the holder.
Status Lease::give_back(TimePoint deadline) {
  wire::LeaseAcquireT back = request_;
  back.resume = grant_.lease;
  PLEXRL_TRY(send(wire::message(++last_id_, std::move(back)), {}, deadline));
  wire::LeaseReleaseT release;
  release.lease = std::exchange(grant_.lease, 0);
  return send(wire::message(++last_id_, release), {}, deadline);
}

Status Lease::ask(TimePoint deadline) {
  if (state_ == State::kQueued && grant_.lease != 0) PLEXRL_TRY(give_back(deadline));
  wire::LeaseAcquireT request = request_;
  if (state_ == State::kHeld) request.resume = grant_.lease;
  grant_id_ = ++last_id_;
  return send(wire::message(grant_id_, std::move(request)), {}, deadline);
}

// A lost connection is got back, when it is time for another attempt.
Status Lease::connected(TimePoint deadline) {
  if (state_ == State::kOver) return over_;
  if (channel_) return {};
  const TimePoint now = system_clock().now();
  if (now < try_again_) return error(Code::UNAVAILABLE, "the connection to plexrld is lost");
  try_again_ = now + kTryAgain;
  return connect(deadline);
}

Status Lease::send(wire::MessageT message, std::vector<UniqueFd> fds, TimePoint deadline) {
  if (!channel_) return error(Code::UNAVAILABLE, "the connection to plexrld is lost");
  Status status = wire::send_until(*channel_, wire::encode(message), std::move(fds), deadline);
  if (!status.ok()) channel_.reset();
  return status;
}

Status Lease::pump() {
  if (!channel_) return error(Code::UNAVAILABLE, "the connection to plexrld is lost");
  pollfd entry{channel_->fd(), POLLIN, 0};
  if (::poll(&entry, 1, 0) > 0) (void)channel_->receive();
  while (auto frame = channel_->next()) {
    auto message = wire::decode_message(frame->payload);
    if (!message) {
      channel_.reset();
      return message.error();
    }
    take(*std::move(message), std::move(frame->fds));
    if (!channel_) return error(Code::UNAVAILABLE, "the connection to plexrld is lost");
  }
  const Status failure = channel_->failure();
  if (!failure.ok()) channel_.reset();
  return failure;
}

void Lease::take(wire::MessageT message, std::vector<UniqueFd> fds) {
  const std::uint64_t id = message.request_id;
  if (id == grant_id_) {
    grant_id_ = 0;
    take_grant(message);
  } else if (id == watch_id_) {
    watch_id_ = 0;
    const auto* const asked = wire::body_as<wire::LeaseAskedT>(message.body);
    if (asked == nullptr) return;
    asked_ = true;
    const auto most = static_cast<std::uint64_t>(24 * 3600 * 1000);
    yield_until_ =
        system_clock().now() +
        Duration{static_cast<std::int64_t>(std::min(asked->yield_in_ms, most)) * kMillisecond.ns};
  } else if (const auto region = charged_again_.find(id); region != charged_again_.end()) {
    if (const auto* info = wire::body_as<wire::RegionInfoT>(message.body))
      region->second->set_id(info->region);
    charged_again_.erase(region);
  } else if (id == call_id_) {
    answer_ = Answer{std::move(message), std::move(fds)};
  }
}

void Lease::take_grant(wire::MessageT& message) {
  const auto* const grant = wire::body_as<wire::LeaseGrantT>(message.body);
  const auto* const failure = wire::body_as<wire::FailureT>(message.body);
  Status status = error(Code::PROTOCOL, "a lease was answered with something else");
  if (grant != nullptr) status = granted(*grant);
  if (failure != nullptr) status = wire::from_failure(*failure);
  if (status.ok()) return;
  // The service goes down for a restart: asked again on the next connection.
  if (lost(status)) return channel_.reset();
  suspend_regions();
  state_ = State::kOver;
  over_ = status;
}

void Lease::suspend_regions() {
  for (const auto& region : regions_) (void)region->suspend();
}

// Held: regions come back and the service is asked to say when to make way.
Status Lease::granted(const wire::LeaseGrantT& grant) {
  const bool held_before = state_ == State::kHeld;
  grant_ = grant;
  PLEXRL_TRY(restore_regions(deadline()));
  if (!held_before) {
    asked_ = false;
    for (const auto& region : regions_) PLEXRL_TRY(region->resume());
  }
  state_ = State::kHeld;
  watch_id_ = ++last_id_;
  wire::LeaseWatchT watch;
  watch.lease = grant_.lease;
  return send(wire::message(watch_id_, watch), {}, deadline());
}

// A plexrld that does not know them (a new connection) charges them again.
Status Lease::restore_regions(TimePoint deadline) {
  for (const auto& region : regions_) {
    if (region->id() != 0) continue;
    wire::RegionCreateT request;
    request.bytes = region->bytes();
    std::vector<UniqueFd> fds;
    PLEXRL_ASSIGN(UniqueFd copy, duplicate(region->fd()));
    fds.push_back(std::move(copy));
    const std::uint64_t id = ++last_id_;
    charged_again_[id] = region.get();
    PLEXRL_TRY(send(wire::message(id, request), std::move(fds), deadline));
  }
  return {};
}

Result<Lease::Answer> Lease::call(wire::MessageT request, std::vector<UniqueFd> fds) {
  const TimePoint until = deadline();
  call_id_ = request.request_id;
  answer_.reset();
  PLEXRL_TRY(send(std::move(request), std::move(fds), until));
  while (!answer_) {
    PLEXRL_TRY(pump());
    if (answer_) break;
    pollfd entry{channel_->fd(), POLLIN, 0};
    (void)::poll(&entry, 1, wire::poll_timeout_ms(until, system_clock().now()));
    if (system_clock().now() >= until)
      return error(Code::TIMEOUT, "no answer from the service within the deadline");
  }
  Answer answer = *std::exchange(answer_, std::nullopt);
  if (const auto* failure = wire::body_as<wire::FailureT>(answer.message.body))
    return wire::from_failure(*failure);
  return answer;
}

// ---- what the caller does ----

Status Lease::wait(std::optional<TimePoint> until) {
  for (;;) {
    int fd = -1;
    {
      const Lock lock(mutex_);
      Status status = connected(until ? std::min(*until, deadline()) : deadline());
      if (status.ok()) status = pump();
      if (state_ == State::kOver) return over_;
      if (state_ == State::kHeld && channel_) return {};
      if (!status.ok() && !lost(status) && status.code() != Code::TIMEOUT) return status;
      fd = channel_ ? channel_->fd() : -1;
    }
    const TimePoint now = system_clock().now();
    if (until && now >= *until) return error(Code::TIMEOUT, "the lease is still queued");
    TimePoint wake = now + kLookAgain;
    if (until) wake = std::min(wake, *until);
    pollfd entry{fd, POLLIN, 0};
    (void)::poll(&entry, 1, wire::poll_timeout_ms(wake, now));
  }
}

Result<bool> Lease::should_yield(TimePoint* until) {
  const Lock lock(mutex_);
  if (state_ == State::kOver) return over_;
  if (state_ != State::kHeld) return error(Code::UNAVAILABLE, "the lease is not held");
  // A restart of the service is no reason to stop: it finds the holder by its processes.
  if (connected(system_clock().now() + kTryAgain).ok()) (void)pump();
  if (state_ == State::kOver) return over_;
  *until = yield_until_;
  return asked_;
}

Status Lease::yield() {
  const Lock lock(mutex_);
  if (state_ == State::kOver) return over_;
  if (state_ != State::kHeld) return error(Code::UNAVAILABLE, "the lease is not held");
  // Before anybody else may get the device.
  for (const auto& region : regions_) PLEXRL_TRY(region->suspend());
  state_ = State::kQueued;
  asked_ = false;
  wire::LeaseYieldT request;
  request.lease = grant_.lease;
  grant_id_ = ++last_id_;
  const Status sent = send(wire::message(grant_id_, request), {}, deadline());
  // On a lost connection it is given back and asked for anew once there is another.
  return lost(sent) ? Status() : sent;
}

Status Lease::release() {
  const Lock lock(mutex_);
  if (state_ == State::kOver) return {};
  suspend_regions();
  const bool held = state_ == State::kHeld;
  state_ = State::kOver;
  over_ = error(Code::CANCELLED, "the lease was released");
  if (!channel_) return {};
  Status status;
  // Waiting ends with the connection.
  if (held) {
    wire::LeaseReleaseT request;
    request.lease = grant_.lease;
    const auto answer = call(wire::message(++last_id_, request), {});
    if (!answer) status = answer.error();
  }
  channel_.reset();
  return status;
}

Result<std::string> Lease::explain() {
  const Lock lock(mutex_);
  PLEXRL_TRY(connected(deadline()));
  PLEXRL_TRY(pump());
  if (state_ == State::kHeld) return std::string("lease: held");
  wire::ExplainOpT request;
  request.target = grant_id_;
  PLEXRL_ASSIGN(Answer answer, call(wire::message(++last_id_, request), {}));
  auto* const text = wire::body_as<wire::TextT>(answer.message.body);
  if (text == nullptr) return error(Code::PROTOCOL, "explain was answered with something else");
  return std::move(text->text);
}

Lease::State Lease::state() {
  const Lock lock(mutex_);
  return state_;
}

wire::LeaseGrantT Lease::grant() {
  const Lock lock(mutex_);
  return grant_;
}

int Lease::fd() {
  const Lock lock(mutex_);
  return channel_ ? channel_->fd() : -1;
}

// ---- regions ----

Result<Region*> Lease::create_region(std::uint64_t bytes, const RegionMemoryFactory& memory) {
  const Lock lock(mutex_);
  if (state_ != State::kHeld) return error(Code::UNAVAILABLE, "the lease is not held");
  wire::RegionCreateT request;
  request.bytes = bytes;
  PLEXRL_ASSIGN(Answer answer, call(wire::message(++last_id_, request), {}));
  const auto* const info = wire::body_as<wire::RegionInfoT>(answer.message.body);
  if (info == nullptr || answer.fds.size() != 1)
    return error(Code::PROTOCOL, "a region was answered with something else");
  auto region = Region::make(info->region, std::move(answer.fds.front()), info->bytes, memory);
  const Status status = region ? (*region)->resume() : region.error();
  if (!status.ok()) {
    wire::RegionDestroyT undo;
    undo.region = info->region;
    (void)call(wire::message(++last_id_, undo), {});
    return status;
  }
  regions_.push_back(*std::move(region));
  return regions_.back().get();
}

Status Lease::destroy_region(Region* region) {
  const Lock lock(mutex_);
  const auto found = std::find_if(regions_.begin(), regions_.end(),
                                  [&](const auto& one) { return one.get() == region; });
  if (found == regions_.end()) return error(Code::NOT_FOUND, "the lease has no such region");
  wire::RegionDestroyT request;
  request.region = region->id();
  std::erase_if(charged_again_, [&](const auto& one) { return one.second == region; });
  regions_.erase(found);
  if (!channel_) return {};  // the charge has ended with the connection
  return call(wire::message(++last_id_, request), {}).status();
}

}  // namespace plexrl::client
