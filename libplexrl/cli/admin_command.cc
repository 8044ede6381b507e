// SPDX-License-Identifier: Apache-2.0
#include "cli/admin_command.h"

#include "cli/output.h"
#include "cli/service_target.h"

namespace plexrl::cli {
namespace {

struct AdminOptions {
  ServiceTarget target;
  bool json = false;
};

void add_verb(CLI::App& app, Run& chosen, const char* name, const char* summary,
              wire::AdminVerb verb) {
  auto* command = app.add_subcommand(name, summary);
  auto options = std::make_shared<AdminOptions>();
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, [verb, name](const AdminOptions& given) -> Status {
    PLEXRL_TRY(client::administer(given.target.connect_target(), verb, 0, given.target.deadline()));
    if (given.json) print_json({{"done", name}});
    return {};
  });
}

}  // namespace

void add_drain(CLI::App& app, Run& chosen) {
  add_verb(app, chosen, "drain", "let this node's service take no new jobs",
           wire::AdminVerb::Drain);
}

void add_resume(CLI::App& app, Run& chosen) {
  add_verb(app, chosen, "resume", "let it take jobs again", wire::AdminVerb::Resume);
}

}  // namespace plexrl::cli
