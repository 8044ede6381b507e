// SPDX-License-Identifier: Apache-2.0
#include "api/request_router.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "api/explain.h"
#include "base/log.h"
#include "base/name_buffer.h"
#include "config.h"

namespace plexrl::api {
namespace {

constexpr std::uint32_t kRetryAfterMs = 200;

bool is_lease_call(wire::Body kind) {
  return kind == wire::Body::LeaseAcquire || kind == wire::Body::LeaseWatch ||
         kind == wire::Body::LeaseYield || kind == wire::Body::LeaseRelease;
}

bool is_region_call(wire::Body kind) {
  return kind == wire::Body::RegionCreate || kind == wire::Body::RegionDestroy;
}

bool needs_token(wire::Body kind) {
  return kind == wire::Body::CreateModel || kind == wire::Body::DeleteModel ||
         kind == wire::Body::SubmitOp || kind == wire::Body::CancelOp ||
         kind == wire::Body::ExplainOp || is_lease_call(kind) || is_region_call(kind);
}

bool needs_root(wire::Body kind) {
  return kind == wire::Body::OpenJob || kind == wire::Body::AttachTask ||
         kind == wire::Body::CloseJob;
}

bool in_group(const passwd& user, gid_t primary, const std::string& group) {
  ::group entry{};
  ::group* found = nullptr;
  std::vector<char> buffer;
  const int failure = with_growing_buffer(&buffer, [&](char* data, std::size_t size) {
    return ::getgrnam_r(group.c_str(), &entry, data, size, &found);
  });
  if (failure != 0 || found == nullptr) return false;
  if (entry.gr_gid == primary) return true;
  for (char** member = entry.gr_mem; *member != nullptr; ++member)
    if (std::string_view(*member) == user.pw_name) return true;
  return false;
}

}  // namespace

bool is_admin(const wire::PeerCredentials& peer, const std::vector<std::string>& groups) {
  if (peer.uid == 0 || peer.uid == ::geteuid()) return true;
  passwd user{};
  passwd* found = nullptr;
  std::vector<char> buffer;
  const int failure = with_growing_buffer(&buffer, [&](char* data, std::size_t size) {
    return ::getpwuid_r(peer.uid, &user, data, size, &found);
  });
  if (failure != 0 || found == nullptr) return false;
  return std::any_of(groups.begin(), groups.end(),
                     [&](const std::string& group) { return in_group(user, peer.gid, group); });
}

Status RequestRouter::admit(const Connection& connection, wire::Body kind) const {
  if (needs_root(kind) && connection.peer().uid != 0)
    return error(Code::PERMISSION, "only root (the Slurm hooks) may open, attach and close jobs");
  if (needs_token(kind) && !connection.tenant())
    return error(Code::AUTH, "say hello with the job's token (PLEXRL_TOKEN) first");
  const bool starts_work = kind == wire::Body::SubmitOp || kind == wire::Body::CreateModel ||
                           kind == wire::Body::LeaseAcquire;
  if (starts_work && node_.dispatcher().draining())
    return error(Code::UNAVAILABLE, "plexrld is going down for a restart; retry");
  return {};
}

void RequestRouter::handle(Connection& connection, wire::MessageT request,
                           std::vector<UniqueFd> fds) {
  const std::uint64_t id = request.request_id;
  wire::BodyUnion& body = request.body;
  if (const Status status = admit(connection, body.type); !status.ok())
    return connection.fail(id, status, status.scope() == Scope::kRetry ? kRetryAfterMs : 0);
  switch (body.value == nullptr ? wire::Body::NONE : body.type) {
    case wire::Body::Hello:
      return hello(connection, id, *body.AsHello());
    case wire::Body::CreateModel:
      return create_model(connection, id, std::move(*body.AsCreateModel()));
    case wire::Body::DeleteModel:
      return done_or_fail(
          connection, id,
          node_.model_service().remove(connection.tenant(), ModelId{body.AsDeleteModel()->model}));
    case wire::Body::SubmitOp:
      return submit(connection, id, std::move(*body.AsSubmitOp()), std::move(fds));
    case wire::Body::CancelOp:
      return cancel(connection, id, body.AsCancelOp()->target);
    case wire::Body::ExplainOp:
      return explain_op(connection, id, body.AsExplainOp()->target);
    case wire::Body::OpenJob:
      return open_job(connection, id, *body.AsOpenJob());
    case wire::Body::AttachTask:
      return attach_task(connection, id, *body.AsAttachTask());
    case wire::Body::CloseJob:
      return done_or_fail(connection, id, node_.tenant_service().close(body.AsCloseJob()->job_id));
    case wire::Body::Query:
      return query(connection, id, *body.AsQuery());
    case wire::Body::Admin:
      return admin(connection, id, *body.AsAdmin());
    default:
      if (is_lease_call(body.type)) return lease_call(connection, id, body);
      if (is_region_call(body.type)) return region_call(connection, id, body, std::move(fds));
      break;
  }
  connection.fail(id,
                  error(Code::UNSUPPORTED, "a request of a kind that this plexrld does not know"));
}

void RequestRouter::done_or_fail(Connection& connection, std::uint64_t id, const Status& status) {
  if (status.ok()) return connection.reply(id, wire::DoneT{});
  connection.fail(id, status, status.scope() == Scope::kRetry ? kRetryAfterMs : 0);
}

void RequestRouter::later(SessionId session, std::uint64_t id, const Status& status) {
  if (Connection* const connection = server_->find(session)) done_or_fail(*connection, id, status);
}

void RequestRouter::hello(Connection& connection, std::uint64_t id, const wire::HelloT& request) {
  if (request.protocol != wire::kProtocolVersion)
    return connection.fail(id, error(Code::UNSUPPORTED, "protocol %u: this plexrld speaks %u",
                                     request.protocol, wire::kProtocolVersion));
  wire::HelloReplyT reply;
  reply.protocol = wire::kProtocolVersion;
  reply.daemon = "plexrld " PACKAGE_VERSION;
  reply.node = node_.options().node;
  reply.max_frame_bytes = node_.config().daemon.max_frame_mib << 20;
  if (request.token.empty()) {
    connection.greeted();
    return connection.reply(id, std::move(reply));
  }
  if (connection.tenant())
    return connection.fail(id, error(Code::PROTOCOL, "this connection has said hello already"));
  const auto tenant = node_.tenants().authenticate(request.token, connection.peer().uid);
  if (!tenant) return connection.fail(id, tenant.error());
  const runtime::Tenant& row = *node_.tenants().find(*tenant);
  connection.greeted();
  connection.authenticated(*tenant, request.client.substr(0, 64), reply.max_frame_bytes);
  if (const Status watched = node_.tasks().add(*tenant, connection.peer().pid); !watched.ok())
    PLEXRL_LOG(kDebug, "job %u: client: %s", row.job_id, watched.to_string().c_str());
  reply.tenant = tenant->value;
  reply.job_id = row.job_id;
  reply.models = row.grant.models;
  reply.lora_rank = row.grant.lora_rank;
  reply.mode = row.grant.train_mode == "full"   ? wire::TrainMode::Full
               : row.grant.train_mode == "lora" ? wire::TrainMode::Lora
                                                : wire::TrainMode::None;
  connection.reply(id, std::move(reply));
}

void RequestRouter::create_model(Connection& connection, std::uint64_t id,
                                 wire::CreateModelT request) {
  node_.model_service().create(
      connection.tenant(), std::move(request),
      [this, session = connection.id(), id](Result<wire::ModelInfoT> info) {
        Connection* const client = server_->find(session);
        if (client == nullptr) return;
        if (!info) return done_or_fail(*client, id, info.error());
        client->reply(id, *std::move(info));
      });
}

void RequestRouter::submit(Connection& connection, std::uint64_t id, wire::SubmitOpT request,
                           std::vector<UniqueFd> fds) {
  runtime::SubmitRequest submit;
  submit.tenant = connection.tenant();
  submit.session = connection.id();
  submit.request_id = id;
  submit.client = connection.client();
  submit.submit = std::move(request);
  if (!fds.empty()) submit.fd = std::move(fds.front());
  submit.handler = [this, session = connection.id(), id](const runtime::OpOutcome& outcome) {
    Connection* const client = server_->find(session);
    if (client == nullptr) return;
    if (outcome.status.ok()) return client->reply(id, outcome.reply);
    client->fail(id, outcome.status, outcome.retry_after_ms);
  };
  node_.op_service().submit(std::move(submit));
}

void RequestRouter::explain_op(Connection& connection, std::uint64_t id, std::uint64_t target) {
  const runtime::Op* const op = node_.ops().find_request(connection.id(), target);
  if (op == nullptr)
    return connection.fail(id, error(Code::NOT_FOUND, "no such op is waiting; it may have ended"));
  wire::TextT text;
  text.text = explain(node_, *op);
  connection.reply(id, std::move(text));
}

void RequestRouter::cancel(Connection& connection, std::uint64_t id, std::uint64_t target) {
  const runtime::Op* const op = node_.ops().find_request(connection.id(), target);
  if (op != nullptr && op->kind == core::OpKind::kLease) {
    node_.lease_service().cancel(op->id);
  } else {
    node_.op_service().cancel(connection.id(), target);
  }
  connection.reply(id, wire::DoneT{});
}

// An answer that comes later, when the connection may be gone.
template <class Body>
std::function<void(Result<Body>)> RequestRouter::answer(const Connection& connection,
                                                        std::uint64_t id) {
  return [this, session = connection.id(), id](Result<Body> body) {
    Connection* const client = server_->find(session);
    if (client == nullptr) return;
    if (!body) return done_or_fail(*client, id, body.error());
    client->reply(id, *std::move(body));
  };
}

void RequestRouter::lease_call(Connection& connection, std::uint64_t id, wire::BodyUnion& body) {
  runtime::LeaseService& leases = node_.lease_service();
  const SessionId session = connection.id();
  switch (body.type) {
    case wire::Body::LeaseAcquire:
      return leases.acquire({connection.tenant(), session, id, connection.peer().pid,
                             connection.client(), std::move(*body.AsLeaseAcquire()),
                             answer<wire::LeaseGrantT>(connection, id)});
    case wire::Body::LeaseWatch:
      return leases.watch(session, OpId{body.AsLeaseWatch()->lease},
                          answer<wire::LeaseAskedT>(connection, id));
    case wire::Body::LeaseYield:
      return leases.yield(session, id, OpId{body.AsLeaseYield()->lease},
                          answer<wire::LeaseGrantT>(connection, id));
    default:
      return done_or_fail(connection, id,
                          leases.release(session, OpId{body.AsLeaseRelease()->lease}));
  }
}

void RequestRouter::region_call(Connection& connection, std::uint64_t id, wire::BodyUnion& body,
                                std::vector<UniqueFd> fds) {
  runtime::RegionService& regions = node_.region_service();
  if (const auto* gone = body.AsRegionDestroy())
    return done_or_fail(connection, id, regions.destroy(connection.id(), gone->region));
  auto made = regions.create(connection.tenant(), connection.id(), body.AsRegionCreate()->bytes,
                             fds.empty() ? UniqueFd() : std::move(fds.front()));
  if (!made) return done_or_fail(connection, id, made.error());
  connection.reply_with_fd(id, std::move(made->info), std::move(made->fd));
}

void RequestRouter::closed(SessionId session) {
  node_.region_service().session_closed(session);
  node_.lease_service().session_closed(session);
  node_.op_service().session_closed(session);
}

void RequestRouter::open_job(Connection& connection, std::uint64_t id,
                             const wire::OpenJobT& request) {
  if (node_.draining())
    return connection.fail(
        id, error(Code::UNAVAILABLE, "the node takes no new jobs (plexrl drain)"), kRetryAfterMs);
  node_.tenant_service().open(request, [this, session = connection.id(), id](const Status& status) {
    later(session, id, status);
  });
}

void RequestRouter::attach_task(Connection& connection, std::uint64_t id,
                                const wire::AttachTaskT& request) {
  auto token = node_.tenant_service().attach(request);
  if (!token) return done_or_fail(connection, id, token.error());
  wire::AttachReplyT reply;
  reply.socket = socket_path_;
  reply.token = *std::move(token);
  const runtime::Tenant* const tenant = node_.tenants().find_job(request.job_id);
  if (tenant != nullptr && !tenant->grant.env.empty()) reply.base_url = base_url_;
  connection.reply(id, std::move(reply));
}

void RequestRouter::query(Connection& connection, std::uint64_t id, const wire::QueryT& request) {
  const Viewer viewer{connection.peer().uid,
                      is_admin(connection.peer(), node_.config().daemon.admin_groups)};
  const std::string more = more_metrics_ ? more_metrics_() : std::string();
  auto document = Documents(node_, *server_).answer(request, viewer, more);
  if (!document) return done_or_fail(connection, id, document.error());
  wire::JsonT json;
  json.text = *std::move(document);
  connection.reply(id, std::move(json));
}

void RequestRouter::admin(Connection& connection, std::uint64_t id, const wire::AdminT& request) {
  if (!is_admin(connection.peer(), node_.config().daemon.admin_groups))
    return connection.fail(id,
                           error(Code::PERMISSION, "only root and the admin groups may do that"));
  switch (request.verb) {
    case wire::AdminVerb::Drain:
      node_.set_draining(true);
      return connection.reply(id, wire::DoneT{});
    case wire::AdminVerb::Resume:
      node_.set_draining(false);
      return connection.reply(id, wire::DoneT{});
    case wire::AdminVerb::Evict:
      return done_or_fail(connection, id, node_.tenant_service().evict(request.job_id));
    case wire::AdminVerb::Reload:
      return done_or_fail(connection, id, reload_());
  }
  connection.fail(
      id, error(Code::UNSUPPORTED, "verb %d is not known here", static_cast<int>(request.verb)));
}

}  // namespace plexrl::api
