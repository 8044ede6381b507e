// SPDX-License-Identifier: Apache-2.0
#include "cli/jobs_command.h"

#include "cli/document.h"
#include "cli/output.h"
#include "cli/service_target.h"

namespace plexrl::cli {
namespace {

struct JobsOptions {
  ServiceTarget target;
  bool json = false;
};

Status run_jobs(const JobsOptions& options) {
  PLEXRL_ASSIGN(const auto document, ask(options.target, wire::QueryKind::Jobs));
  if (options.json)
    print_json(document);
  else
    print_text(render_jobs(document));
  return {};
}

std::string resident(const nlohmann::json& job) {
  std::size_t count = 0;
  for (const auto& model : items(job, "models")) count += cell(model, "resident") == "yes" ? 1 : 0;
  return std::to_string(count) + "/" + std::to_string(items(job, "models").size());
}

}  // namespace

std::string render_jobs(const nlohmann::json& document) {
  Table table({"JOB", "USER", "STATE", "TRAIN", "SHARE", "MODELS", "RUNNING", "QUEUED", "DONE",
               "DEVICE", "WAITED", "SLOWDOWN"});
  for (const auto& job : items(document, "jobs"))
    table.add({cell(job, "job_id"), cell(job, "user"), cell(job, "state"), cell(job, "train_mode"),
               cell(job, "share_percent"), resident(job), cell(job, "ops_running"),
               cell(job, "ops_queued"), cell(job, "ops_done"), cell_seconds(job, "device_s"),
               cell_seconds(job, "wait_others_s"), cell_fixed(job, "slowdown_estimate", 2)});
  return table.to_text();
}

void add_jobs(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("jobs", "list the jobs of this node's service");
  auto options = std::make_shared<JobsOptions>();
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_jobs);
}

}  // namespace plexrl::cli
