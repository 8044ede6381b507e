// SPDX-License-Identifier: Apache-2.0
#include "cli/job_command.h"

#include <pwd.h>
#include <unistd.h>

#include <vector>

#include "base/name_buffer.h"
#include "cli/env_command.h"
#include "cli/output.h"
#include "cli/service_target.h"
#include "client/hook_client.h"
#include "slurm/grant.h"

namespace plexrl::cli {
namespace {

struct JobOptions {
  ServiceTarget target;
  std::uint32_t job_id = 0;
  std::string user;
  std::string grant;
  bool json = false;
};

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
};

Result<User> find_user(const std::string& name) {
  std::vector<char> buffer;
  passwd entry{};
  passwd* found = nullptr;
  const int rc = with_growing_buffer(&buffer, [&](char* data, std::size_t size) {
    return ::getpwnam_r(name.c_str(), &entry, data, size, &found);
  });
  if (rc != 0) return errno_error(Code::IO, rc, "look up user '%s'", name.c_str());
  if (found == nullptr) return error(Code::NOT_FOUND, "--user '%s': no such user", name.c_str());
  return User{entry.pw_uid, entry.pw_gid};
}

Status open_job(const JobOptions& options) {
  const auto grant = slurm::parse_grant(options.grant);
  if (!grant) return grant.error().within("--grant");
  PLEXRL_ASSIGN(const User user, find_user(options.user));
  const std::string socket = options.target.socket_path();
  const TimePoint deadline = options.target.deadline();
  PLEXRL_TRY(client::open_job(socket, options.job_id, user.uid, user.gid, options.grant, deadline));
  // The shell that opened the job stands for its tasks: when it is gone and nothing is connected,
  // plexrld closes the job by itself after a while.
  PLEXRL_ASSIGN(const auto task,
                client::attach_task(socket, options.job_id, user.uid, ::getppid(), deadline));
  PLEXRL_ASSIGN(const EnvPairs pairs, client::variables_of(task, grant->env));
  if (options.json)
    print_json(nlohmann::json(std::map<std::string, std::string>(pairs.begin(), pairs.end())));
  else
    print_text(shell_exports(pairs));
  return {};
}

Status close_job(const JobOptions& options) {
  PLEXRL_TRY(
      client::close_job(options.target.socket_path(), options.job_id, options.target.deadline()));
  if (options.json) print_json({{"closed", options.job_id}});
  return {};
}

void add_common(CLI::App& command, JobOptions& options) {
  command.add_option("--job-id", options.job_id, "job id")
      ->required()
      ->check(CLI::Range(1U, 4'294'967'294U));
  add_service_options(command, options.target);
  add_json_option(command, options.json);
}

}  // namespace

void add_job(CLI::App& app, Run& chosen) {
  auto* group = app.add_subcommand("job", "open and close jobs by hand, without Slurm (root)");
  group->require_subcommand(1);
  auto* open = group->add_subcommand("open", "open a job and print its PLEXRL_* variables");
  auto open_options = std::make_shared<JobOptions>();
  open->add_option("--user", open_options->user, "whose job it is")->required();
  open->add_option("--grant", open_options->grant,
                   "v1:pool=NAME:share=N:mem=MIB:mode=MODE:rank=N:slowdown=N:models=NAME,...")
      ->required();
  add_common(*open, *open_options);
  on_chosen(*open, chosen, open_options, open_job);
  auto* close = group->add_subcommand("close", "close a job");
  auto close_options = std::make_shared<JobOptions>();
  add_common(*close, *close_options);
  on_chosen(*close, chosen, close_options, close_job);
}

}  // namespace plexrl::cli
