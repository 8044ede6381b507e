// SPDX-License-Identifier: Apache-2.0
#include "cli/report_command.h"

#include "cli/document.h"
#include "cli/job_argument.h"
#include "cli/output.h"
#include "cli/service_target.h"
#include "cli/train/file_io.h"
#include "cli/train_curve.h"

namespace plexrl::cli {
namespace {

struct ReportOptions {
  ServiceTarget target;
  std::uint32_t job_id = 0;  // 0: none
  std::string train_log;     // of `plexrl train --log`; empty: none
  std::string page;
  bool json = false;
};

// What the service knows of the job, then what the log of its training tells.
Status run_report(const ReportOptions& options) {
  nlohmann::json document = nlohmann::json::object();
  std::string text;
  if (options.job_id != 0) {
    PLEXRL_ASSIGN(document, ask(options.target, wire::QueryKind::Report, options.job_id));
    text = render_report(document);
  }
  if (!options.train_log.empty()) {
    PLEXRL_ASSIGN(const TrainCurve curve, TrainCurve::read(options.train_log));
    document["training"] = curve.to_json();
    text += (text.empty() ? "" : "\n") + render_curve(curve);
    const std::string job =
        options.job_id == 0 ? "" : "job " + std::to_string(options.job_id) + ", ";
    if (!options.page.empty())
      PLEXRL_TRY(write_atomically(options.page, curve_page(curve, job + options.train_log)));
  }
  if (options.json)
    print_json(document);
  else
    print_text(text);
  return {};
}

std::string models_table(const nlohmann::json& document) {
  Table table({"MODEL", "NAME", "BASE", "MODE", "RANK", "STEP", "VERSION", "RESIDENT", "STATE",
               "SWITCHES", "HIDDEN", "TRAINED", "STALLED"});
  for (const auto& model : items(document, "models"))
    table.add({cell(model, "model"), cell(model, "name"), cell(model, "base"), cell(model, "mode"),
               cell(model, "lora_rank"), cell(model, "step"), cell(model, "latest_version"),
               cell(model, "resident"), cell(model, "state"),
               cell_seconds(model, "switch_exposed_s"), cell_seconds(model, "switch_hidden_s"),
               cell_seconds(model, "training_s"), cell_seconds(model, "commit_stall_s")});
  return table.to_text();
}

std::string ops_table(const nlohmann::json& document) {
  Table table({"OPERATION", "COUNT", "FAILED", "TOKENS", "RAN", "QUEUED"});
  for (const auto& [kind, op] : member(document, "ops_by_kind").items())
    table.add({kind, cell(op, "count"), cell(op, "failed"), cell(op, "tokens"),
               cell_seconds(op, "run_s"), cell_seconds(op, "queued_s")});
  return table.to_text();
}

}  // namespace

std::string render_report(const nlohmann::json& document) {
  Table times({"JOB", "USER", "STATE", "WALL", "DEVICE", "SWITCHES", "HIDDEN", "WAITED", "SLOWDOWN",
               "COMMITS", "STALLED", "REPLAYED"});
  times.add({cell(document, "job_id"), cell(document, "user"), cell(document, "state"),
             cell_seconds(document, "wall_s"), cell_seconds(document, "device_s"),
             cell_seconds(document, "switch_exposed_s"), cell_seconds(document, "switch_hidden_s"),
             cell_seconds(document, "wait_others_s"), cell_fixed(document, "slowdown_estimate", 2),
             cell(document, "commits"), cell_seconds(document, "commit_stall_s"),
             cell(document, "replayed_ops")});
  return times.to_text() + "\n" + models_table(document) + "\n" + ops_table(document);
}

void add_report(CLI::App& app, Run& chosen) {
  auto* command = app.add_subcommand("report", "show what a job did and how long it waited");
  auto options = std::make_shared<ReportOptions>();
  auto* job = command->add_option("JOB", options->job_id, "Slurm job id");
  job->check(job_argument_problem)->check(CLI::Range(1U, 4'294'967'294U));
  auto* log = command->add_option("--train", options->train_log,
                                  "show the curves of this file, a log of `plexrl train`");
  command->add_option("--html", options->page, "write them as a page too")->needs(log);
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_report);
  command->parse_complete_callback([job, log] {
    if (job->count() == 0 && log->count() == 0) throw CLI::RequiredError("JOB or --train");
  });
}

}  // namespace plexrl::cli
