// SPDX-License-Identifier: Apache-2.0
#include "cli/admin_command.h"

#include "cli/job_argument.h"
#include "cli/output.h"
#include "cli/service_target.h"

namespace plexrl::cli {
namespace {

struct AdminOptions {
  ServiceTarget target;
  std::uint32_t job_id = 0;  // evict only
  bool json = false;
};

struct Verb {
  CLI::App* command;
  std::shared_ptr<AdminOptions> options;
};

Verb add_verb(CLI::App& app, Run& chosen, const char* name, const char* summary,
              wire::AdminVerb verb) {
  auto* command = app.add_subcommand(name, summary);
  auto options = std::make_shared<AdminOptions>();
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, [verb, name](const AdminOptions& given) -> Status {
    PLEXRL_TRY(client::administer(given.target.connect_target(), verb, given.job_id,
                                  given.target.deadline()));
    if (given.json) print_json({{"done", name}});
    return {};
  });
  return {command, options};
}

}  // namespace

void add_drain(CLI::App& app, Run& chosen) {
  add_verb(app, chosen, "drain", "let this node's service take no new jobs",
           wire::AdminVerb::Drain);
}

void add_evict(CLI::App& app, Run& chosen) {
  const Verb evict = add_verb(app, chosen, "evict", "drop the state that an ended job left here",
                              wire::AdminVerb::Evict);
  evict.command->add_option("JOB", evict.options->job_id, "Slurm job id")
      ->required()
      ->check(job_argument_problem)
      ->check(CLI::Range(1U, 4'294'967'294U));
}

void add_reload(CLI::App& app, Run& chosen) {
  add_verb(app, chosen, "reload", "let it read the site file again", wire::AdminVerb::Reload);
}

void add_resume(CLI::App& app, Run& chosen) {
  add_verb(app, chosen, "resume", "let it take jobs again", wire::AdminVerb::Resume);
}

}  // namespace plexrl::cli
