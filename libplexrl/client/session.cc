// SPDX-License-Identifier: Apache-2.0
#include "client/session.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <cerrno>
#include <chrono>
#include <system_error>

namespace plexrl::client {
namespace {

std::chrono::steady_clock::time_point to_chrono(TimePoint t) {
  // On Linux steady_clock is CLOCK_MONOTONIC, as ours.
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(t.ns));
}

Result<std::uint64_t> random_id() {
  std::uint64_t id = 0;
  while (id == 0)
    if (::getrandom(&id, sizeof id, 0) != sizeof id && errno != EINTR)
      return errno_error(Code::IO, errno, "getrandom");
  return id;
}

bool is_training(const wire::OpArgsUnion& args) {
  return args.type != wire::OpArgs::GenerateArgs && args.type != wire::OpArgs::LogprobsArgs;
}

// The thread of the library must not run the program's signal handlers.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

// ---- life ----

Session::Session(SessionOptions options) : options_(std::move(options)) {}

Session::~Session() { close(); }

Result<std::shared_ptr<Session>> Session::connect(SessionOptions options) {
  const TimePoint deadline = system_clock().now() + options.timeout;
  PLEXRL_ASSIGN(RpcClient connection, RpcClient::connect_when_up(options.target, deadline));
  const std::shared_ptr<Session> session(new Session(std::move(options)));
  PLEXRL_TRY(session->start(std::move(connection)));
  return session;
}

Status Session::start(RpcClient connection) {
  wake_fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd_) return errno_error(Code::IO, errno, "eventfd");
  PLEXRL_ASSIGN(sampling_client_, random_id());
  adopt(std::move(connection), {}, {});
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    return error(Code::IO, "start the session's thread: %s", e.what());
  }
  return {};
}

void Session::close() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  if (!thread_.joinable()) return;
  wake();
  thread_.join();
}

wire::HelloReplyT Session::hello() const {
  const Lock lock(mutex_);
  return hello_;
}

void Session::wake() const noexcept { ::eventfd_write(wake_fd_.get(), 1); }

TimePoint Session::default_deadline() const noexcept {
  return system_clock().now() + options_.timeout;
}

// ---- requests ----

Result<ExchangePtr> Session::begin(Lock&, wire::MessageT request, UniqueFd fd, ModelPtr model) {
  if (link_ == Link::kRefused || closing_)
    return closing_ ? error(Code::UNAVAILABLE, "the session has ended") : link_error_;
  if (outstanding_.size() >= kMaxOutstanding)
    return error(Code::BUSY, "%zu operations of this session are under way: wait for some",
                 outstanding_.size());
  auto exchange = std::make_shared<Exchange>();
  exchange->request = std::move(request);
  exchange->request.request_id = ++last_id_;
  exchange->fd = std::move(fd);
  exchange->model = std::move(model);
  if (link_ == Link::kUp) PLEXRL_TRY(send(*exchange));
  outstanding_.emplace(exchange->id(), exchange);
  if (link_ != Link::kUp || channel_->wants_write() || !channel_->failure().ok()) wake();
  return exchange;
}

// BUSY and TOO_LARGE leave everything as it was. A connection that breaks here is no failure of the
// request: the session's thread sees it and submits the request again.
Status Session::send(Exchange& exchange) {
  flatbuffers::DetachedBuffer payload = wire::encode(exchange.request);
  if (hello_.max_frame_bytes != 0 && payload.size() > hello_.max_frame_bytes)
    return error(Code::TOO_LARGE, "request of %zu bytes, the service takes %u: use smaller batches",
                 payload.size(), hello_.max_frame_bytes);
  std::vector<UniqueFd> fds;
  if (exchange.fd) {
    fds.emplace_back(::fcntl(exchange.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!fds[0]) return errno_error(Code::IO, errno, "duplicate the file's descriptor");
  }
  Status status = channel_->send(std::move(payload), std::move(fds));
  if (status.code() == Code::BUSY || status.code() == Code::TOO_LARGE) return status;
  exchange.sent = status.ok();
  return {};
}

void Session::send_cancel(const Exchange& exchange) {
  wire::CancelOpT cancel;
  cancel.target = exchange.id();
  // The answer has an id that nobody waits for. Cancelling is best effort, so is its sending.
  static_cast<void>(channel_->send(wire::encode(wire::message(++last_id_, cancel))));
}

Result<wire::BodyUnion> Session::call(wire::MessageT request, std::optional<TimePoint> deadline) {
  ExchangePtr exchange;
  {
    Lock lock(mutex_);
    PLEXRL_ASSIGN(exchange, begin(lock, std::move(request), {}, nullptr));
  }
  const Status status = wait(exchange, deadline);
  const Lock lock(mutex_);
  if (!exchange->done) outstanding_.erase(exchange->id());
  if (!status.ok()) return status;
  return std::move(exchange->reply);
}

template <class ReplyT, class RequestT>
Result<ReplyT> Session::call(RequestT request, std::optional<TimePoint> deadline) {
  PLEXRL_ASSIGN(wire::BodyUnion reply, call(wire::message(0, std::move(request)), deadline));
  if (ReplyT* body = wire::body_as<ReplyT>(reply)) return std::move(*body);
  return error(Code::PROTOCOL, "the service answered with another type of message (%d)",
               static_cast<int>(reply.type));
}

Status Session::wait(const ExchangePtr& op, std::optional<TimePoint> deadline) {
  Lock lock(mutex_);
  const auto done = [&] { return op->done; };
  if (!deadline) {
    op->ended.wait(lock, done);
  } else if (!op->ended.wait_until(lock, to_chrono(*deadline), done)) {
    return error(Code::TIMEOUT, "not finished within the deadline; it goes on");
  }
  return op->status;
}

bool Session::done(const ExchangePtr& op) const {
  const Lock lock(mutex_);
  return op->done;
}

// ---- models ----

Result<ModelPtr> Session::open_model(wire::CreateModelT request) {
  const wire::CreateModelT again = request;
  PLEXRL_ASSIGN(wire::ModelInfoT info, call<wire::ModelInfoT>(std::move(request), std::nullopt));
  const Lock lock(mutex_);
  ModelPtr& model = models_[info.name];
  if (model && model->info.model == info.model) return model;
  model = std::make_shared<ModelState>();
  model->create = again;
  model->next_seq = info.next_seq;
  model->info = std::move(info);
  return model;
}

Result<wire::ModelInfoT> Session::model_info(const ModelPtr& model) {
  wire::CreateModelT request;
  {
    const Lock lock(mutex_);
    request = model->create;
  }
  PLEXRL_ASSIGN(wire::ModelInfoT info,
                call<wire::ModelInfoT>(std::move(request), default_deadline()));
  const Lock lock(mutex_);
  if (info.model != model->info.model)
    return error(Code::LOST, "model '%s' was deleted and made anew: create its handle again",
                 info.name.c_str());
  model->info = info;
  return info;
}

Status Session::delete_model(const ModelPtr& model) {
  wire::DeleteModelT request;
  {
    const Lock lock(mutex_);
    request.model = model->info.model;
  }
  PLEXRL_TRY(call<wire::DoneT>(request, default_deadline()).status());
  const Lock lock(mutex_);
  const auto it = models_.find(model->info.name);
  if (it != models_.end() && it->second == model) models_.erase(it);
  return {};
}

Status Session::sync_model(const ModelPtr& model) {
  {
    const Lock lock(mutex_);
    if (model->synced) return {};
  }
  PLEXRL_ASSIGN(const wire::ModelInfoT info, model_info(model));
  const Lock lock(mutex_);
  if (!model->synced) model->next_seq = info.next_seq;
  model->synced = true;
  return {};
}

// ---- operations ----

Result<ExchangePtr> Session::submit(const ModelPtr& model, wire::OpArgsUnion args, UniqueFd fd) {
  const bool training = is_training(args);
  if (training) PLEXRL_TRY(sync_model(model));
  wire::SubmitOpT request;
  request.args = std::move(args);
  Lock lock(mutex_);
  request.model = model->info.model;
  if (training) {
    request.seq = model->next_seq;
  } else {
    request.sampling_client = sampling_client_;
    request.number = ++last_number_;
  }
  PLEXRL_ASSIGN(ExchangePtr op,
                begin(lock, wire::message(0, std::move(request)), std::move(fd), model));
  if (training) ++model->next_seq;
  return op;
}

void Session::cancel(const ExchangePtr& op) {
  const Lock lock(mutex_);
  if (op->done) return;
  op->cancel_wanted = true;
  if (op->sent && link_ == Link::kUp) {
    send_cancel(*op);
    if (channel_->wants_write()) wake();
  } else if (op->is_sampling()) {
    // Nobody else knows of it, or repeats it.
    finish(op, error(Code::CANCELLED, "cancelled before it was submitted"));
  }
}

Result<std::string> Session::explain(const ExchangePtr& op) {
  wire::ExplainOpT request;
  {
    const Lock lock(mutex_);
    if (op->done) return std::string("It has ended.");
    if (link_ != Link::kUp)
      return "The connection to the service is lost and being re-established: " +
             link_error_.text();
    if (op->retry_at)
      return std::string("The service refused it for now; it is submitted again soon.");
    request.target = op->id();
  }
  Result<wire::TextT> text = call<wire::TextT>(request, default_deadline());
  if (text) return std::move(text->text);
  // It may have ended meanwhile.
  if (text.error().code() == Code::NOT_FOUND && done(op)) return std::string("It has ended.");
  return text.error();
}

Result<std::string> Session::query(wire::QueryKind kind, std::uint32_t job_id) {
  wire::QueryT request;
  request.kind = kind;
  request.job_id = job_id;
  PLEXRL_ASSIGN(wire::JsonT reply, call<wire::JsonT>(request, default_deadline()));
  return std::move(reply.text);
}

}  // namespace plexrl::client
