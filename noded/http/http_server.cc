// SPDX-License-Identifier: Apache-2.0
#include "http/http_server.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/log.h"

namespace plexrl::http {
namespace {

// Beside those of the frame protocol (api/server.h), which count from 1.
constexpr std::uint64_t kFirstSession = std::uint64_t{1} << 63;

std::string header(MHD_Connection* connection, const char* name) {
  const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

std::string token_of(MHD_Connection* connection) {
  if (std::string key = header(connection, "X-API-Key"); !key.empty()) return key;
  constexpr std::string_view kBearer = "bearer ";
  std::string value = header(connection, "Authorization");
  const bool bearer = value.size() > kBearer.size() &&
                      ::strncasecmp(value.c_str(), kBearer.data(), kBearer.size()) == 0;
  return bearer ? value.substr(kBearer.size()) : "";
}

// libmicrohttpd has refused what is no number; a body in chunks has none.
std::uint64_t announced_bytes(MHD_Connection* connection) {
  const std::string text = header(connection, "Content-Length");
  std::uint64_t bytes = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return failure == std::errc::result_out_of_range ? UINT64_MAX : bytes;
}

std::map<std::string, std::string> query_of(MHD_Connection* connection) {
  std::map<std::string, std::string> query;
  const auto add = [](void* into, MHD_ValueKind, const char* name, const char* value) {
    auto& values = *static_cast<std::map<std::string, std::string>*>(into);
    std::string& known = values.try_emplace(name).first->second;
    if (!known.empty()) known += ',';
    known += value == nullptr ? "" : value;
    return MHD_YES;
  };
  (void)MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, add, &query);
  return query;
}

void add_header(MHD_Response* response, const char* name, const std::string& value) {
  if (!value.empty()) (void)MHD_add_response_header(response, name, value.c_str());
}

}  // namespace

struct HttpServer::Connection {
  int fd = -1;
  wire::PeerCredentials peer;
  bool by_tcp = false;
  MHD_Connection* mhd = nullptr;
  std::unique_ptr<Exchange> exchange;
  TenantId tenant;
  loop::IoWatch gone;  // while it is suspended libmicrohttpd does not look at it
  std::int64_t deadline_ns = 0;
  std::size_t body_limit = 0;
  std::size_t body_held = 0;
  std::size_t body_dropped = 0;
  int refused = 0;        // the status that its body earned
  bool complete = false;  // the request is there
  bool suspended = false;
  bool closed = false;  // the client is gone, or has to go
  bool last = false;    // it ends with the answer under way
};

struct HttpServer::Callbacks {
  static Connection* connection_of(MHD_Connection* mhd) {
    const auto* info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == nullptr ? nullptr : static_cast<Connection*>(info->socket_context);
  }

  static MHD_Result request(void* user, MHD_Connection* mhd, const char* path, const char* method,
                            const char*, const char* data, std::size_t* bytes,
                            void** context) noexcept {
    HttpServer& server = *static_cast<HttpServer*>(user);
    Connection* const connection = connection_of(mhd);
    if (connection == nullptr) return MHD_NO;
    bool good = true;
    if (*context == nullptr) {
      *context = connection;
      good = server.begin_request(*connection, path, method);
    } else if (*bytes > 0) {
      good = server.take_body(*connection, data, *bytes);
      *bytes = 0;
    } else {
      good = server.request_complete(*connection);
    }
    return good ? MHD_YES : MHD_NO;
  }

  static void completed(void* user, MHD_Connection* mhd, void**,
                        MHD_RequestTerminationCode) noexcept {
    Connection* const connection = connection_of(mhd);
    if (connection != nullptr) static_cast<HttpServer*>(user)->exchange_over(*connection);
  }

  static void notify(void* user, MHD_Connection* mhd, void** context,
                     MHD_ConnectionNotificationCode code) noexcept {
    HttpServer& server = *static_cast<HttpServer*>(user);
    const auto* info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    const auto found = server.connections_.find(info == nullptr ? -1 : info->connect_fd);
    if (found == server.connections_.end()) return;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      *context = found->second.get();
      found->second->mhd = mhd;
    } else {
      *context = nullptr;
      server.connection_over(found->first);
    }
  }

  // Paths are looked up as they were sent.
  static std::size_t keep_escapes(void*, MHD_Connection*, char* text) noexcept {
    return std::strlen(text);
  }
};

HttpServer::HttpServer(loop::EventLoop& loop, UniqueFd listener, Application& app,
                       HttpLimits limits)
    : loop_(loop),
      app_(app),
      limits_(limits),
      acceptor_(loop, std::move(listener),
                [this](UniqueFd socket) { take_unix(std::move(socket)); }),
      next_session_(kFirstSession) {}

Result<std::unique_ptr<HttpServer>> HttpServer::create(loop::EventLoop& loop, UniqueFd listener,
                                                       Application& app, HttpLimits limits) {
  std::unique_ptr<HttpServer> server(new HttpServer(loop, std::move(listener), app, limits));
  PLEXRL_TRY(server->open());
  return server;
}

Status HttpServer::open() {
  PLEXRL_ASSIGN(run_timer_, loop_.make_timer([this] { run(); }));
  PLEXRL_ASSIGN(begin_timer_, loop_.make_timer([this] { begin_next(); }));
  PLEXRL_ASSIGN(deadline_timer_, loop_.make_timer([this] { close_late(); }));
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0, nullptr, nullptr,
      &Callbacks::request, this, MHD_OPTION_NOTIFY_COMPLETED, &Callbacks::completed, this,
      MHD_OPTION_NOTIFY_CONNECTION, &Callbacks::notify, this, MHD_OPTION_UNESCAPE_CALLBACK,
      &Callbacks::keep_escapes, nullptr, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kHeadBytes,
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(kMostConnections + 1),
      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
  if (daemon_ == nullptr) return error(Code::IO, "http: libmicrohttpd does not start");
  const auto* info = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD);
  if (info == nullptr) return error(Code::IO, "http: libmicrohttpd has no epoll descriptor");
  PLEXRL_ASSIGN(watch_, loop_.watch_io(info->epoll_fd, EPOLLIN, [this](std::uint32_t) { run(); }));
  return {};
}

HttpServer::~HttpServer() {
  acceptor_.stop();
  tcp_acceptor_.reset();
  watch_.reset();
  // libmicrohttpd does not stop with suspended connections.
  for (auto& [fd, connection] : connections_) {
    connection->closed = true;
    if (connection->suspended) resume(*connection);
  }
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
}

void HttpServer::add_tcp(UniqueFd listener, Identify identify) {
  identify_ = std::move(identify);
  tcp_acceptor_ = std::make_unique<api::Acceptor>(
      loop_, std::move(listener), [this](UniqueFd socket) { take_tcp(std::move(socket)); });
}

Status HttpServer::start() {
  PLEXRL_TRY(acceptor_.start());
  return tcp_acceptor_ ? tcp_acceptor_->start() : Status();
}

// ---- connections ----

bool HttpServer::admit(const wire::PeerCredentials& peer) {
  const auto found = per_uid_.find(peer.uid);
  const std::size_t of_uid = found == per_uid_.end() ? 0 : found->second;
  const bool room = connections_.size() < limits_.connections &&
                    of_uid < std::max<std::size_t>(limits_.connections / 2, 1);
  if (!room) ++counts_.refused;
  return room;
}

void HttpServer::take_unix(UniqueFd socket) {
  const auto peer = wire::peer_credentials(socket.get());
  if (peer) take(std::move(socket), *peer, false);
}

void HttpServer::take_tcp(UniqueFd socket) {
  const auto peer = identify_(socket.get());
  if (!peer) {
    ++counts_.unknown_peers;
    PLEXRL_LOG(kDebug, "http by TCP: %s", peer.error().to_string().c_str());
    return;
  }
  const int on = 1;
  (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  take(std::move(socket), *peer, true);
}

void HttpServer::take(UniqueFd socket, const wire::PeerCredentials& peer, bool by_tcp) {
  if (!admit(peer)) return;
  const int fd = socket.release();
  auto connection = std::make_unique<Connection>();
  connection->fd = fd;
  connection->peer = peer;
  connection->by_tcp = by_tcp;
  Connection& added = *connections_.emplace(fd, std::move(connection)).first->second;
  ++per_uid_[peer.uid];
  ++counts_.accepted;
  set_deadline(added, limits_.head_time);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(fd, generic, &size) != 0) size = sizeof(sa_family_t);
  if (size <= sizeof(sa_family_t)) address.ss_family = by_tcp ? AF_INET : AF_UNIX;
  const auto taken = MHD_add_connection(daemon_, fd, generic, size);
  // Then it has closed the descriptor, and may or may not have said so.
  if (taken != MHD_YES) connection_over(fd);
  wake();
}

void HttpServer::connection_over(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  if (connection.exchange) exchange_over(connection);
  clear_deadline(connection);
  const auto count = per_uid_.find(connection.peer.uid);
  if (--count->second == 0) per_uid_.erase(count);
  connections_.erase(found);
}

void HttpServer::run() {
  (void)MHD_run(daemon_);
  MHD_UNSIGNED_LONG_LONG wait_ms = 0;
  if (MHD_get_timeout(daemon_, &wait_ms) != MHD_YES) return;
  const Duration wait{static_cast<std::int64_t>(std::min<MHD_UNSIGNED_LONG_LONG>(wait_ms, 60000)) *
                      kMillisecond.ns};
  run_timer_.arm(system_clock().now() + wait);
}

void HttpServer::wake() { run_timer_.arm(system_clock().now()); }

void HttpServer::set_deadline(Connection& connection, Duration time) {
  clear_deadline(connection);
  connection.deadline_ns = (system_clock().now() + time).ns;
  const auto at = deadlines_.emplace(connection.deadline_ns, connection.fd).first;
  if (at == deadlines_.begin()) deadline_timer_.arm(TimePoint{connection.deadline_ns});
}

void HttpServer::clear_deadline(Connection& connection) {
  if (connection.deadline_ns != 0) deadlines_.erase({connection.deadline_ns, connection.fd});
  connection.deadline_ns = 0;
}

// libmicrohttpd finds the end of the stream and closes it.
void HttpServer::close_late() {
  const std::int64_t now = system_clock().now().ns;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Connection& connection = *connections_.at(deadlines_.begin()->second);
    clear_deadline(connection);
    ++counts_.late;
    (void)::shutdown(connection.fd, SHUT_RDWR);
  }
  if (!deadlines_.empty()) deadline_timer_.arm(TimePoint{deadlines_.begin()->first});
}

// ---- requests ----

bool HttpServer::begin_request(Connection& connection, const char* path, const char* method) {
  const SessionId id{next_session_++};
  const int fd = connection.fd;
  connection.exchange = std::make_unique<Exchange>(id, [this, fd] { answered(fd); });
  connection.body_held = connection.body_dropped = 0;
  connection.refused = 0;
  connection.complete = false;
  sessions_.emplace(id, fd);
  Request& request = connection.exchange->request();
  request.method = method;
  request.path = path;
  request.token = token_of(connection.mhd);
  request.content_type = header(connection.mhd, "Content-Type");
  request.accept = header(connection.mhd, "Accept");
  request.query = query_of(connection.mhd);
  request.peer = connection.peer;
  request.by_tcp = connection.by_tcp;
  connection.body_limit = app_.body_limit(request);
  set_deadline(connection, limits_.body_time);
  if (announced_bytes(connection.mhd) <= connection.body_limit) return true;
  connection.refused = 413;
  connection.exchange->answer(too_large(connection));
  return send_answer(connection);
}

Response HttpServer::too_large(const Connection& connection) const {
  return app_.refusal(413, "the body is larger than the " + std::to_string(connection.body_limit) +
                               " bytes that this path takes");
}

bool HttpServer::take_body(Connection& connection, const char* data, std::size_t bytes) {
  std::size_t& of_uid = body_of_uid_[connection.peer.uid];
  if (connection.refused == 0 && connection.body_held + bytes > connection.body_limit)
    connection.refused = 413;
  const bool room =
      body_bytes_ + bytes <= limits_.body_bytes && of_uid + bytes <= limits_.body_bytes / 2;
  if (connection.refused == 0 && !room) connection.refused = 429;
  if (connection.refused != 0) {
    // It hears why when its body has ended, if that is soon.
    connection.body_dropped += bytes;
    return connection.body_dropped <= connection.body_limit;
  }
  connection.exchange->request().body.append(data, bytes);
  connection.body_held += bytes;
  body_bytes_ += bytes;
  of_uid += bytes;
  return true;
}

bool HttpServer::request_complete(Connection& connection) {
  Exchange& exchange = *connection.exchange;
  if (exchange.is_answered()) return send_answer(connection);
  if (connection.closed) return false;
  if (!connection.complete) {
    connection.complete = true;
    clear_deadline(connection);
    if (connection.refused != 0) {
      exchange.answer(connection.refused == 413
                          ? too_large(connection)
                          : app_.refusal(429, "too many bytes of requests are held; retry"));
      return send_answer(connection);
    }
    waiting_[connection.peer.uid].push_back(exchange.id());
    begin_timer_.arm(system_clock().now());
  }
  suspend(connection);
  return true;
}

void HttpServer::suspend(Connection& connection) {
  MHD_suspend_connection(connection.mhd);
  connection.suspended = true;
  // Only a client that has closed its socket is gone: one that has closed its writing side waits.
  // TCP has the same segment for both.
  const std::uint32_t events = connection.by_tcp ? std::uint32_t{EPOLLRDHUP} : 0;
  auto watch = loop_.watch_io(connection.fd, events, [this, fd = connection.fd](std::uint32_t) {
    client_gone(*connections_.at(fd));
  });
  if (watch) {
    connection.gone = *std::move(watch);
  } else {
    PLEXRL_LOG(kWarning, "http: %s", watch.error().to_string().c_str());
  }
}

void HttpServer::resume(Connection& connection) {
  connection.gone.reset();
  connection.suspended = false;
  MHD_resume_connection(connection.mhd);
  wake();
}

void HttpServer::client_gone(Connection& connection) {
  connection.closed = true;
  connection.exchange->set_handler(nullptr);
  resume(connection);
}

void HttpServer::answered(int fd) {
  Connection& connection = *connections_.at(fd);
  if (connection.suspended) resume(connection);
}

bool HttpServer::send_answer(Connection& connection) {
  Exchange& exchange = *connection.exchange;
  const Response& answer = exchange.response();
  MHD_Response* const response = MHD_create_response_from_buffer(
      answer.body.size(), const_cast<char*>(answer.body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return false;
  add_header(response, "Content-Type", answer.content_type);
  add_header(response, "Allow", answer.allow);
  if (answer.retry_after_ms > 0) {
    add_header(response, "Retry-After", std::to_string((answer.retry_after_ms + 999) / 1000));
    add_header(response, "Retry-After-Ms", std::to_string(answer.retry_after_ms));
  }
  if (connection.refused != 0) connection.last = true;
  if (connection.last) add_header(response, "Connection", "close");
  const auto queued =
      MHD_queue_response(connection.mhd, static_cast<unsigned>(answer.status), response);
  MHD_destroy_response(response);
  ++counts_.answers[answer.status];
  exchange.set_handler(nullptr);
  set_deadline(connection, limits_.answer_time);
  return queued == MHD_YES;
}

void HttpServer::exchange_over(Connection& connection) {
  if (!connection.exchange) return;
  sessions_.erase(connection.exchange->id());
  if (connection.exchange->tenant()) connection.tenant = connection.exchange->tenant();
  connection.exchange.reset();
  body_bytes_ -= connection.body_held;
  const auto of_uid = body_of_uid_.find(connection.peer.uid);
  if (of_uid != body_of_uid_.end() && (of_uid->second -= connection.body_held) == 0)
    body_of_uid_.erase(of_uid);
  connection.body_held = 0;
  set_deadline(connection, limits_.head_time);
  if (connection.last) (void)::shutdown(connection.fd, SHUT_RDWR);
}

SessionId HttpServer::next_waiting() {
  if (waiting_.empty()) return {};
  auto of_uid = waiting_.upper_bound(last_begun_);
  if (of_uid == waiting_.end()) of_uid = waiting_.begin();
  last_begun_ = of_uid->first;
  const SessionId id = of_uid->second.front();
  of_uid->second.pop_front();
  if (of_uid->second.empty()) waiting_.erase(of_uid);
  return id;
}

void HttpServer::begin_next() {
  const SessionId id = next_waiting();
  if (!waiting_.empty()) begin_timer_.arm(system_clock().now());
  Exchange* const exchange = find(id);
  if (exchange != nullptr && !exchange->is_answered()) app_.handle(*exchange);
}

Exchange* HttpServer::find(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  Connection& connection = *connections_.at(found->second);
  return connection.closed ? nullptr : connection.exchange.get();
}

// ---- ends ----

void HttpServer::drain() {
  acceptor_.stop();
  if (tcp_acceptor_) tcp_acceptor_->stop();
  for (const auto& [fd, connection] : connections_) end_connection(*connection);
}

// After its answer, if one is under way: it may be written already without being over.
void HttpServer::end_connection(Connection& connection) {
  connection.last = true;
  if (!connection.exchange) (void)::shutdown(connection.fd, SHUT_RDWR);
}

void HttpServer::refuse_waiting(const Status& why) {
  for (const auto& [fd, connection] : connections_)
    if (connection->suspended) connection->exchange->answer(app_.refusal(503, why.text()));
}

std::set<TenantId> HttpServer::connected() const {
  std::set<TenantId> tenants;
  for (const auto& [fd, connection] : connections_) {
    if (connection->tenant) tenants.insert(connection->tenant);
    if (connection->exchange && connection->exchange->tenant())
      tenants.insert(connection->exchange->tenant());
  }
  return tenants;
}

void HttpServer::close_tenant(TenantId tenant) {
  for (const auto& [fd, connection] : connections_) {
    const bool waits = connection->exchange && connection->exchange->tenant() == tenant;
    if (!waits && connection->tenant != tenant) continue;
    end_connection(*connection);
    if (waits) connection->exchange->answer(app_.refusal(401, "the job has ended"));
  }
  app_.tenant_closed(tenant);
}

HttpCounts HttpServer::counts() const {
  HttpCounts counts = counts_;
  counts.connections = connections_.size();
  counts.under_way = static_cast<std::size_t>(
      std::count_if(connections_.begin(), connections_.end(),
                    [](const auto& entry) { return entry.second->exchange != nullptr; }));
  return counts;
}

}  // namespace plexrl::http
