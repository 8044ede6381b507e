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
  bool state = false;
};

std::string line(const char* name, const std::string& value) {
  std::string label = std::string(name) + ":";
  label.resize(16, ' ');
  return label + (value.empty() ? "-" : value) + "\n";
}

std::string lease_line(const nlohmann::json& document) {
  const auto& lease = member(document, "lease");
  if (lease.empty()) return "";
  std::string text = "job " + cell(lease, "job_id") + ", " + cell(lease, "state") + ", held for " +
                     cell_seconds(lease, "held_s");
  if (const std::string trouble = cell(lease, "trouble"); !trouble.empty())
    text += "; " + cell(lease, "processes") + " processes left: " + trouble;
  return line("lease", text);
}

// Only administrators are told what others have where.
Status print_state(const nlohmann::json& document, bool json) {
  const auto& memory = member(document, "memory");
  if (memory.empty())
    return error(Code::PERMISSION,
                 "--state shows every job's models: only root and administrators may use it");
  if (json)
    print_json(memory);
  else
    print_text(render_state(memory));
  return {};
}

Status run_status(const StatusOptions& options) {
  PLEXRL_ASSIGN(const auto document, ask(options.target, wire::QueryKind::Status));
  if (options.state) return print_state(document, options.json);
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
      lease_line(document) + line("bad frames", cell(document, "protocol_errors"));
  const auto& engines = items(document, "engines");
  if (engines.empty()) return text;
  Table table({"ENGINE", "BASE", "MODE", "STATE", "PID", "RESTARTS", "ERROR"});
  for (const auto& engine : engines)
    table.add({cell(engine, "engine"), cell(engine, "base"), cell(engine, "mode"),
               cell(engine, "state"), cell(engine, "pid"), cell(engine, "restarts"),
               cell(engine, "error")});
  return text + "\n" + table.to_text();
}

std::string render_state(const nlohmann::json& memory) {
  Table table({"MODEL", "TENANT", "TIER", "EPOCH", "SEGMENT", "BYTES", "IN", "DIRTY", "MOVING"});
  for (const auto& model : items(memory, "models")) {
    const auto& transfer = member(model, "transfer");
    std::string moving = model.value("pinned", false) ? "device" : "";
    if (!transfer.empty()) moving = cell(transfer, "direction");
    for (const auto& segment : items(model, "segments")) {
      std::string tiers;
      for (const auto& tier : items(segment, "tiers"))
        tiers += (tiers.empty() ? "" : ",") + tier.get<std::string>();
      table.add({cell(model, "model"), cell(model, "tenant"), cell(model, "tier"),
                 cell(model, "epoch"), cell(segment, "kind"), cell_bytes(segment, "bytes"), tiers,
                 cell(segment, "dirty"), moving});
    }
  }
  const auto chunks = [&](const char* name, const char* key) {
    return cell(member(memory, name), key);
  };
  const auto& disk = member(memory, "disk");
  std::string text =
      line("chunk", cell_bytes(memory, "chunk_bytes")) +
      line("device",
           chunks("device", "free_chunks") + " chunks free of " + chunks("device", "chunks")) +
      line("host", chunks("host", "free_chunks") + " chunks free of " + chunks("host", "chunks"));
  if (!disk.empty())
    text += line("disk", cell(disk, "used_chunks") + " chunks used of " + cell(disk, "chunks") +
                             ", " + cell(disk, "method"));
  return text + "\n" + table.to_text();
}

void add_status(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("status", "show the service of this node");
  auto options = std::make_shared<StatusOptions>();
  add_service_options(*command, options->target);
  command->add_flag("--state", options->state, "where each model's state is, tier by tier");
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_status);
}

}  // namespace plexrl::cli
