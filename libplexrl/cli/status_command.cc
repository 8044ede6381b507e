// SPDX-License-Identifier: Apache-2.0
#include "cli/status_command.h"

#include "cli/document.h"
#include "cli/output.h"
#include "cli/service_target.h"

namespace plexrl::cli {
namespace {

struct StatusOptions {
  ServiceTarget target;
  bool json = false;
};

std::string line(const char* name, const std::string& value) {
  std::string label = std::string(name) + ":";
  label.resize(16, ' ');
  return label + (value.empty() ? "-" : value) + "\n";
}

Status run_status(const StatusOptions& options) {
  PLEXRL_ASSIGN(const auto document, ask(options.target, wire::QueryKind::Status));
  if (options.json)
    print_json(document);
  else
    print_text(render_status(document));
  return {};
}

}  // namespace

std::string render_status(const nlohmann::json& document) {
  const auto& device = member(document, "device");
  const auto& host = member(document, "host");
  std::string text =
      line("node", cell(document, "node")) + line("pool", cell(document, "pool")) +
      line("state", cell(document, "state")) +
      line("version", cell(document, "version") + ", up " + cell_seconds(document, "uptime_s")) +
      line("policy", cell(document, "policy")) +
      line("device memory", cell_bytes(device, "resident_bytes") + " resident of " +
                                cell_bytes(device, "capacity_bytes")) +
      line("host memory", cell_bytes(host, "reserved_bytes") + " reserved of " +
                              cell_bytes(host, "capacity_bytes")) +
      line("jobs", cell(document, "jobs_open") + " open, " + cell(document, "connections") +
                       " connections") +
      line("operations", cell(document, "ops_running") + " running, " +
                             cell(document, "ops_queued") + " queued") +
      line("bad frames", cell(document, "protocol_errors"));
  const auto& engines = items(document, "engines");
  if (engines.empty()) return text;
  Table table({"ENGINE", "BASE", "MODE", "STATE", "PID", "RESTARTS", "ERROR"});
  for (const auto& engine : engines)
    table.add({cell(engine, "engine"), cell(engine, "base"), cell(engine, "mode"),
               cell(engine, "state"), cell(engine, "pid"), cell(engine, "restarts"),
               cell(engine, "error")});
  return text + "\n" + table.to_text();
}

void add_status(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("status", "show the service of this node");
  auto options = std::make_shared<StatusOptions>();
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_status);
}

}  // namespace plexrl::cli
