// SPDX-License-Identifier: Apache-2.0
#include "client/hook_client.h"

#include <exception>

#include "client/rpc_client.h"

namespace plexrl::client {
namespace {

ConnectTarget target_of(const std::string& socket) { return {socket, "", "slurm"}; }

// What is left to throw is bad_alloc, and slurmstepd must survive that too.
template <class Call>
auto guarded(Call call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& e) {
    return error(Code::BUSY, "call to the service: %s", e.what());
  }
}

Status open(const std::string& socket, wire::OpenJobT request, TimePoint deadline) {
  PLEXRL_ASSIGN(RpcClient client, RpcClient::connect(target_of(socket), deadline));
  return client.call<wire::DoneT>(std::move(request), deadline).status();
}

Result<TaskEnvironment> attach(const std::string& socket, const wire::AttachTaskT& request,
                               TimePoint deadline) {
  PLEXRL_ASSIGN(RpcClient client, RpcClient::connect_when_up(target_of(socket), deadline));
  PLEXRL_ASSIGN(wire::AttachReplyT reply, client.call<wire::AttachReplyT>(request, deadline));
  return TaskEnvironment{std::move(reply.socket), std::move(reply.token),
                         std::move(reply.base_url)};
}

Status close(const std::string& socket, std::uint32_t job_id, TimePoint deadline) {
  PLEXRL_ASSIGN(RpcClient client, RpcClient::connect(target_of(socket), deadline));
  wire::CloseJobT request;
  request.job_id = job_id;
  const Status status = client.call<wire::DoneT>(request, deadline).status();
  return status.code() == Code::NOT_FOUND ? Status() : status;
}

}  // namespace

Result<EnvPairs> variables_of(const TaskEnvironment& task,
                              const std::vector<std::string>& clients) {
  EnvPairs pairs = {{"PLEXRL_SOCKET", task.socket}, {"PLEXRL_TOKEN", task.token}};
  if (clients.empty()) return pairs;
  if (task.base_url.empty())
    return error(Code::UNAVAILABLE,
                 "it has --plexrl-env, but plexrld of this node serves no HTTP by TCP: ask your "
                 "administrator for http_address, or submit without the option");
  pairs.emplace_back("PLEXRL_BASE_URL", task.base_url);
  for (const std::string& client : clients) {
    const bool tinker = client == "tinker";
    pairs.emplace_back(tinker ? "TINKER_BASE_URL" : "OPENAI_BASE_URL",
                       task.base_url + (tinker ? "" : "/v1"));
    pairs.emplace_back(tinker ? "TINKER_API_KEY" : "OPENAI_API_KEY",
                       (tinker ? "tml-" : "") + task.token);
  }
  return pairs;
}

Status open_job(const std::string& socket, std::uint32_t job_id, uid_t uid, gid_t gid,
                const std::string& grant, TimePoint deadline) noexcept {
  return guarded([&] {
    wire::OpenJobT request;
    request.job_id = job_id;
    request.uid = uid;
    request.gid = gid;
    request.grant = grant;
    return open(socket, std::move(request), deadline);
  });
}

Result<TaskEnvironment> attach_task(const std::string& socket, std::uint32_t job_id, uid_t uid,
                                    pid_t pid, TimePoint deadline) noexcept {
  return guarded([&] {
    wire::AttachTaskT request;
    request.job_id = job_id;
    request.uid = uid;
    request.pid = pid;
    request.wait = true;
    return attach(socket, request, deadline);
  });
}

Status close_job(const std::string& socket, std::uint32_t job_id, TimePoint deadline) noexcept {
  return guarded([&] { return close(socket, job_id, deadline); });
}

}  // namespace plexrl::client
