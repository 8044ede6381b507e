// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

#include <cstdio>
#include <exception>

#include "cli/admin_command.h"
#include "cli/bench_command.h"
#include "cli/config_command.h"
#include "cli/env_command.h"
#include "cli/job_command.h"
#include "cli/jobs_command.h"
#include "cli/lease_command.h"
#include "cli/model_command.h"
#include "cli/node_check_command.h"
#include "cli/ops_command.h"
#include "cli/report_command.h"
#include "cli/status_command.h"
#include "cli/train_command.h"
#include "config.h"

namespace plexrl::cli {
namespace {

using Add = void (*)(CLI::App& app, Run& chosen);

// In the order of `plexrl --help` and of plexrl(1).
constexpr Add kCommands[] = {
    add_status,     add_jobs, add_ops,   add_report, add_train, add_env,    add_config, add_model,
    add_node_check, add_job,  add_drain, add_resume, add_evict, add_reload, add_bench,  add_lease,
};

int report(const Status& status) {
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "plexrl: %s\n", status.to_string().c_str());
  return kExitFailed;
}

// The edge at which exceptions of libraries end.
Status run_chosen(const Run& chosen) {
  try {
    return chosen();
  } catch (const std::exception& failure) {
    return error(Code::INTERNAL, "%s", failure.what());
  }
}

// A full disk or a closed pipe must not look like success.
int flush_stdout(int exit_status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_status;
  std::fprintf(stderr, "plexrl: standard output could not be written\n");
  return kExitFailed;
}

}  // namespace

void add_commands(CLI::App& app, Run& chosen) {
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("plexrl ") + PACKAGE_VERSION,
                       "print the version and exit");
  for (const Add add : kCommands) add(app, chosen);
}

int run_program(int argc, const char* const* argv) {
  CLI::App app{"RLVR jobs that share nodes: look at the service, train, administer", "plexrl"};
  Run chosen;
  add_commands(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return flush_stdout(report(run_chosen(chosen)));
}

}  // namespace plexrl::cli
