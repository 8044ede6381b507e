// SPDX-License-Identifier: Apache-2.0
#include "cli/ops_command.h"

#include "cli/document.h"
#include "cli/output.h"
#include "cli/service_target.h"

namespace plexrl::cli {
namespace {

struct OpsOptions {
  ServiceTarget target;
  bool json = false;
};

Status run_ops(const OpsOptions& options) {
  PLEXRL_ASSIGN(const auto document, ask(options.target, wire::QueryKind::Ops));
  if (options.json)
    print_json(document);
  else
    print_text(render_ops(document));
  return {};
}

}  // namespace

std::string render_ops(const nlohmann::json& document) {
  Table table({"OP", "JOB", "USER", "KIND", "SEQ", "STATE", "AGE", "RAN", "WHY"});
  for (const auto& op : items(document, "ops"))
    table.add({cell(op, "op"), cell(op, "job_id"), cell(op, "user"), cell(op, "kind"),
               cell(op, "seq"), cell(op, "state"), cell_seconds(op, "age_s"),
               cell_seconds(op, "run_s"), cell(op, "why")});
  return table.to_text();
}

void add_ops(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("ops", "list operations under way, and why they wait");
  auto options = std::make_shared<OpsOptions>();
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_ops);
}

}  // namespace plexrl::cli
