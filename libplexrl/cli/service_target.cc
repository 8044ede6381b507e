// SPDX-License-Identifier: Apache-2.0
#include "cli/service_target.h"

#include <cstdlib>

#include "config/site_config.h"

namespace plexrl::cli {

std::string ServiceTarget::socket_path() const {
  if (!socket.empty()) return socket;
  if (const char* own = std::getenv("PLEXRL_SOCKET"); own != nullptr && *own != '\0') return own;
  // Where there is no readable configuration the default place is as good a guess as any; the error
  // of the connection names the path.
  const auto site = config::load_site_config(config::default_config_path(), true);
  return (site.has_value() ? site->daemon.run_dir : config::DaemonEntry{}.run_dir) +
         "/plexrld.sock";
}

client::ConnectTarget ServiceTarget::connect_target() const {
  return {socket_path(), "", "plexrl"};
}

TimePoint ServiceTarget::deadline() const {
  return system_clock().now() + Duration{static_cast<std::int64_t>(timeout_s * 1e9)};
}

void add_service_options(CLI::App& command, ServiceTarget& target) {
  command.add_option("--socket", target.socket,
                     "socket of plexrld; default: $PLEXRL_SOCKET, then run_dir of the site file");
  command.add_option("--timeout", target.timeout_s, "seconds to wait for an answer")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
}

namespace {

// Who asks from a login node has not mistyped anything: his job's node answers.
Status with_place(const ServiceTarget& target, const Status& status) {
  const char* own = std::getenv("PLEXRL_SOCKET");
  if (status.code() != Code::UNAVAILABLE || !target.socket.empty() ||
      (own != nullptr && *own != '\0'))
    return status;
  return {status.code(),
          status.text() + " The node of a job answers: 'srun --jobid=JOB --overlap plexrl ...'"};
}

}  // namespace

Result<nlohmann::json> ask(const ServiceTarget& target, wire::QueryKind kind,
                           std::uint32_t job_id) {
  const auto text = client::query(target.connect_target(), kind, job_id, target.deadline());
  if (!text.has_value()) return with_place(target, text.status());
  auto document = nlohmann::json::parse(*text, nullptr, false);
  if (!document.is_object())
    return error(Code::PROTOCOL, "plexrld answered with something that is not a JSON object");
  return document;
}

}  // namespace plexrl::cli
