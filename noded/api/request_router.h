// SPDX-License-Identifier: Apache-2.0
// RequestRouter: what each request needs (a token, root, nothing) and what it does. Every request
// gets one reply, here or later by session and request number. Loop thread only.
#pragma once

#include <functional>
#include <string>

#include "api/documents.h"
#include "api/server.h"
#include "runtime/node_runtime.h"

namespace plexrl::api {

class RequestRouter final : public RequestHandler {
 public:
  // `reload`: what SIGHUP does. `socket_path`: what AttachTask tells the job.
  RequestRouter(runtime::NodeRuntime& node, std::string socket_path, std::function<Status()> reload)
      : node_(node), socket_path_(std::move(socket_path)), reload_(std::move(reload)) {}
  // Before the first request; they know each other.
  void connect(Server& server) { server_ = &server; }
  // Of HTTP by TCP, for the tasks of jobs whose grant has an env; empty: there is none.
  void set_base_url(std::string url) { base_url_ = std::move(url); }
  // What the answer to a query for metrics has besides; families in Prometheus' text format.
  void set_more_metrics(std::function<std::string()> more) { more_metrics_ = std::move(more); }

  void handle(Connection& connection, wire::MessageT request, std::vector<UniqueFd> fds) override;
  void closed(SessionId session) override;

 private:
  [[nodiscard]] Status admit(const Connection& connection, wire::Body kind) const;
  void hello(Connection& connection, std::uint64_t id, const wire::HelloT& request);
  void create_model(Connection& connection, std::uint64_t id, wire::CreateModelT request);
  void submit(Connection& connection, std::uint64_t id, wire::SubmitOpT request,
              std::vector<UniqueFd> fds);
  void explain_op(Connection& connection, std::uint64_t id, std::uint64_t target);
  void cancel(Connection& connection, std::uint64_t id, std::uint64_t target);
  template <class Body>
  [[nodiscard]] std::function<void(Result<Body>)> answer(const Connection& connection,
                                                         std::uint64_t id);
  void lease_call(Connection& connection, std::uint64_t id, wire::BodyUnion& body);
  void region_call(Connection& connection, std::uint64_t id, wire::BodyUnion& body,
                   std::vector<UniqueFd> fds);
  void open_job(Connection& connection, std::uint64_t id, const wire::OpenJobT& request);
  void attach_task(Connection& connection, std::uint64_t id, const wire::AttachTaskT& request);
  void query(Connection& connection, std::uint64_t id, const wire::QueryT& request);
  void admin(Connection& connection, std::uint64_t id, const wire::AdminT& request);
  static void done_or_fail(Connection& connection, std::uint64_t id, const Status& status);
  // For replies that come later, when the connection may be gone.
  void later(SessionId session, std::uint64_t id, const Status& status);

  runtime::NodeRuntime& node_;
  std::string socket_path_;
  std::string base_url_;
  std::function<Status()> reload_;
  std::function<std::string()> more_metrics_;
  Server* server_ = nullptr;
};

// root, plexrld's own user, or a member of one of the groups.
[[nodiscard]] bool is_admin(const wire::PeerCredentials& peer,
                            const std::vector<std::string>& groups);

}  // namespace plexrl::api
