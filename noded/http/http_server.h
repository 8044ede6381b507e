// SPDX-License-Identifier: Apache-2.0
// HttpServer: HTTP/1.1 on an AF_UNIX socket, and on a TCP one if it is given that, by libmicrohttpd
// inside the event loop, without threads.
//
// Bounds: connections in all and of each uid (half of them); the head (kHeadBytes, answered 431 or
// 414); the body (413); bytes of bodies that are held, in all and of each uid (429); the time from
// the accept, or the last answer, to a complete head; the time for the body; the time in which a
// client takes its answer. One connection has one request under way; what is sent behind it waits
// in the socket. Of complete requests one is begun per turn of the loop, the users in turn, so that
// nobody's many or large ones keep the ops of others waiting for longer than one of them takes.
// A request that waits costs its connection's buffer and no time. Loop thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "api/acceptor.h"
#include "http/exchange.h"

struct MHD_Daemon;
struct MHD_Connection;

namespace plexrl::http {

struct HttpLimits {
  std::size_t connections = 4096;
  std::size_t body_bytes = std::size_t{256} << 20;  // held at once; each uid may have half
  // A kept-alive connection may be silent that long; a head that dribbles in has no more.
  Duration head_time{75 * kSecond.ns};
  Duration body_time{60 * kSecond.ns};
  Duration answer_time{60 * kSecond.ns};
};

struct HttpCounts {
  std::size_t connections = 0;
  std::size_t under_way = 0;  // requests without an answer
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;             // connections over a bound
  std::uint64_t unknown_peers = 0;       // TCP connections of nobody knows whom, closed
  std::uint64_t late = 0;                // connections ended because something took too long
  std::map<int, std::uint64_t> answers;  // by status
};

class HttpServer {
 public:
  // Tells whose a connection by TCP is; an error: it is closed.
  using Identify = std::function<Result<wire::PeerCredentials>(int connection)>;

  // Of a connection: request line, headers and what libmicrohttpd needs beside them.
  static constexpr std::size_t kHeadBytes = std::size_t{16} << 10;
  static constexpr std::size_t kMostConnections = 65536;

  // `app` outlives the server.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> create(loop::EventLoop& loop,
                                                                  UniqueFd listener,
                                                                  Application& app,
                                                                  HttpLimits limits);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  // Before start(): accepts from this one, too. By TCP a client that has closed its writing side
  // is taken for one that is gone: there is no telling.
  void add_tcp(UniqueFd listener, Identify identify);
  [[nodiscard]] Status start();  // begins to accept
  // Connections from now on; those there are stay. At most kMostConnections.
  void set_connections(std::size_t most) { limits_.connections = most; }
  // No new connections, idle ones end, and every answer ends its connection.
  void drain();
  // Answers what still waits.
  void refuse_waiting(const Status& why);
  // No request is here whose answer has not been written.
  [[nodiscard]] bool idle() const { return sessions_.empty(); }

  // The request, unless it has ended meanwhile.
  [[nodiscard]] Exchange* find(SessionId id);
  [[nodiscard]] std::set<TenantId> connected() const;
  // The job has ended: its connections go, and with them what runs for them.
  void close_tenant(TenantId tenant);
  [[nodiscard]] HttpCounts counts() const;
  [[nodiscard]] loop::EventLoop& loop() { return loop_; }

 private:
  struct Connection;
  struct Callbacks;  // of libmicrohttpd

  HttpServer(loop::EventLoop& loop, UniqueFd listener, Application& app, HttpLimits limits);
  [[nodiscard]] Status open();
  void take_unix(UniqueFd socket);
  void take_tcp(UniqueFd socket);
  void take(UniqueFd socket, const wire::PeerCredentials& peer, bool by_tcp);
  [[nodiscard]] bool admit(const wire::PeerCredentials& peer);
  void run();
  void wake();
  // These say whether the connection goes on.
  [[nodiscard]] bool begin_request(Connection& connection, const char* path, const char* method);
  [[nodiscard]] Response too_large(const Connection& connection) const;
  [[nodiscard]] bool take_body(Connection& connection, const char* data, std::size_t bytes);
  [[nodiscard]] bool request_complete(Connection& connection);
  [[nodiscard]] bool send_answer(Connection& connection);
  void suspend(Connection& connection);
  void resume(Connection& connection);
  void answered(int fd);
  void client_gone(Connection& connection);
  void begin_next();
  [[nodiscard]] SessionId next_waiting();
  void exchange_over(Connection& connection);
  void connection_over(int fd);
  void end_connection(Connection& connection);
  void set_deadline(Connection& connection, Duration time);
  void clear_deadline(Connection& connection);
  void close_late();

  loop::EventLoop& loop_;
  Application& app_;
  HttpLimits limits_;
  api::Acceptor acceptor_;
  std::unique_ptr<api::Acceptor> tcp_acceptor_;
  Identify identify_;
  MHD_Daemon* daemon_ = nullptr;
  loop::IoWatch watch_;
  loop::Timer run_timer_, begin_timer_, deadline_timer_;

  std::map<int, std::unique_ptr<Connection>> connections_;  // by descriptor
  std::map<SessionId, int> sessions_;
  std::map<uid_t, std::size_t> per_uid_;
  std::map<uid_t, std::size_t> body_of_uid_;
  std::size_t body_bytes_ = 0;
  std::map<uid_t, std::deque<SessionId>> waiting_;  // complete, not begun
  uid_t last_begun_ = 0;
  std::set<std::pair<std::int64_t, int>> deadlines_;  // nanoseconds, descriptor
  std::uint64_t next_session_;
  HttpCounts counts_;
};

}  // namespace plexrl::http
