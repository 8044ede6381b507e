// SPDX-License-Identifier: Apache-2.0
#include "cli/sim_command.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "cli/output.h"
#include "cli/sim_report.h"
#include "sim/journal_trace.h"
#include "sim/study.h"
#include "sim/workload_file.h"

namespace plexrl::cli {
namespace {

using Json = nlohmann::ordered_json;

// plexrld's segments end at 64 MiB; a record that begins before the end is written whole.
constexpr std::size_t kMaxJournalBytes = std::size_t{128} << 20;
constexpr int kBarCells = 30;

volatile std::sig_atomic_t interrupted = 0;

struct SimOptions {
  std::string file;
  std::string policy;
  std::string placement;
  std::int64_t seed = -1;  // as the workload says
  std::vector<std::string> compare;
  std::string replay;
  std::string record;
  std::string kind = "recorded";
  std::string report;
  bool sensitivity = true;
  bool json = false;
};

// Ctrl-C ends the run between two events; a second one ends the program.
class Interrupts {
 public:
  Interrupts() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &before_);
  }
  ~Interrupts() { sigaction(SIGINT, &before_, nullptr); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  struct sigaction before_ {};
};

// On a terminal only; removed when it is over.
class ProgressBar {
 public:
  ProgressBar() : shown_(isatty(STDERR_FILENO) == 1) {}
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool show(const std::string& what, double done) {
    if (shown_) {
      const int full = static_cast<int>(done * kBarCells);
      std::fprintf(stderr, "\r\x1b[K[%s%s] %3.0f %% %s", std::string(full, '#').c_str(),
                   std::string(kBarCells - full, ' ').c_str(), done * 100, what.c_str());
      dirty_ = true;
    }
    return interrupted == 0;
  }
  void clear() {
    if (dirty_) std::fprintf(stderr, "\r\x1b[K");
    dirty_ = false;
  }

 private:
  bool shown_;
  bool dirty_ = false;
};

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return error(Code::NOT_FOUND, "%s: cannot be opened", path.c_str());
  std::string text(limit + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return error(Code::IO, "%s: cannot be read", path.c_str());
  if (text.size() > limit) return error(Code::TOO_LARGE, "%s: too large", path.c_str());
  return text;
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  return file ? Status() : error(Code::IO, "%s: cannot be written", path.c_str());
}

Status record_trace(const std::string& journal, const SimOptions& options) {
  PLEXRL_ASSIGN(const auto jobs, sim::journal_jobs(journal, options.kind));
  std::string text = sim::trace_header();
  for (const sim::TraceJob& job : jobs) text += sim::trace_line(job);
  return write_file(options.record, text);
}

Status run_replay(const SimOptions& options) {
  PLEXRL_ASSIGN(const std::string journal, read_file(options.replay, kMaxJournalBytes));
  const auto summary = sim::replay_journal(journal);
  if (!summary) return summary.error().within(options.replay);
  if (!options.record.empty()) PLEXRL_TRY(record_trace(journal, options));
  if (options.json) {
    print_json({{"journal", options.replay},
                {"identical", true},
                {"records", summary->records},
                {"actions", summary->actions},
                {"torn_bytes", summary->torn_bytes},
                {"policy", summary->policy},
                {"device_bytes", summary->device_bytes},
                {"quantum_s", sim::seconds_of(summary->quantum)},
                {"span_s", sim::seconds_of(summary->span)}});
    return {};
  }
  print_text(std::to_string(summary->records) + " records under " + summary->policy +
             ": the same " + std::to_string(summary->actions) + " actions\n");
  return {};
}

std::string percent(const Json& value) { return format_fixed(value.get<double>() * 100, 1) + " %"; }

void add_row(Table& table, const Json& run) {
  const Json& saved = run["device_hours_saved"];
  table.add({run["policy"].get<std::string>(), run["placement"].get<std::string>(),
             percent(saved["split-async"]), percent(saved["colocated"]), percent(saved["isolated"]),
             format_fixed(run["mean_slowdown"].get<double>(), 3),
             format_fixed(run["p99_slowdown"].get<double>(), 2),
             format_fixed(run["completion_vs_isolated"].get<double>(), 3),
             percent(run["utilisation"]), percent(run["switch_share"]),
             format_fixed(run["jain"].get<double>(), 3)});
}

std::string published_text(const Json& document) {
  if (!document.contains("published")) return "";
  Table table({"published", "value", "ours", "break-even R/T", "source"});
  for (const Json& row : document["published"])
    table.add({row["key"].get<std::string>(), format_fixed(row["value"].get<double>(), 4),
               row.contains("ours") ? format_fixed(row["ours"].get<double>(), 4) : "-",
               row.contains("break_even_rollout_per_train")
                   ? format_fixed(row["break_even_rollout_per_train"].get<double>(), 3)
                   : "-",
               row["source"].get<std::string>()});
  return "\n" + table.to_text();
}

std::string sensitivity_text(const Json& document) {
  if (document["sensitivity"].empty()) return "";
  Table table(
      {"varied", "to", "bound", "saved split-async", "saved isolated", "slowdown", "completion"});
  for (const Json& row : document["sensitivity"]) {
    const std::string to = row.contains("factor")
                               ? "x " + format_fixed(row["factor"].get<double>(), 2)
                               : format_fixed(row["value"].get<double>(), 2);
    if (row.contains("impossible")) {
      table.add({row["key"].get<std::string>(), to, "-", "-", "-", "-", "does not fit"});
      continue;
    }
    table.add({row["key"].get<std::string>(), to, percent(row["closed_form_bound"]),
               percent(row["device_hours_saved"]["split-async"]),
               percent(row["device_hours_saved"]["isolated"]),
               format_fixed(row["mean_slowdown"].get<double>(), 3),
               row.contains("completion_vs_isolated")
                   ? format_fixed(row["completion_vs_isolated"].get<double>(), 3)
                   : "-"});
  }
  return "\n" + table.to_text();
}

void print_document(const Json& document) {
  Table table({"policy", "placement", "saved split-async", "colocated", "isolated", "slowdown",
               "p99", "completion", "utilisation", "switches", "jain"});
  add_row(table, document);
  if (document.contains("compare"))
    for (const Json& row : document["compare"]) add_row(table, row);
  std::string text = document["workload"].get<std::string>() + ": closed-form bound " +
                     percent(document["closed_form_bound"]) + ", seed " +
                     std::to_string(document["seed"].get<std::uint64_t>());
  if (document.contains("rank"))
    text += ", rank " + std::to_string(document["rank"].get<int>()) + " of 4, " +
            percent(document["offline_gap"]) + " above the offline bound";
  print_text(text + "\n\n" + table.to_text() + published_text(document) +
             sensitivity_text(document));
}

Status run_workload(const SimOptions& options) {
  PLEXRL_ASSIGN(const sim::Workload workload, sim::load_workload(options.file));
  sim::StudyOptions study_options;
  study_options.choice = {options.policy, options.placement};
  if (options.seed >= 0) study_options.seed = static_cast<std::uint64_t>(options.seed);
  study_options.compare = options.compare;
  study_options.sensitivity = options.sensitivity;
  SimReport report;
  if (!options.report.empty()) study_options.observer = &report;
  ProgressBar bar;
  const Interrupts interrupts;
  study_options.progress = [&bar](const std::string& what, double done) {
    return bar.show(what, done);
  };
  PLEXRL_ASSIGN(const Json document, sim::study(workload, study_options));
  bar.clear();
  if (!options.report.empty()) PLEXRL_TRY(write_file(options.report, report.html(document)));
  if (options.json) {
    print_json(document);
  } else {
    print_document(document);
  }
  return {};
}

Status run_sim(const SimOptions& options) {
  return options.replay.empty() ? run_workload(options) : run_replay(options);
}

}  // namespace

void add_sim(CLI::App& app, Run& chosen) {
  CLI::App* sim = app.add_subcommand("sim", "simulate a cluster under the daemon's own scheduler");
  auto options = std::make_shared<SimOptions>();
  CLI::Option* file = sim->add_option("file", options->file, "workload, see plexrl-sim(5)");
  sim->add_option("--policy", options->policy, "policy of the device groups");
  sim->add_option("--placement", options->placement, "which jobs share which groups");
  sim->add_option("--seed", options->seed, "everything random follows from it")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{4294967295}));
  sim->add_option("--compare", options->compare, "POLICY, PLACEMENT or POLICY/PLACEMENT,...")
      ->delimiter(',')
      ->allow_extra_args(false);  // the word behind it is the file
  sim->add_flag("!--no-sensitivity", options->sensitivity, "leave the sensitivity runs out");
  sim->add_option("--report", options->report, "write a page of the run");
  CLI::Option* replay = sim->add_option("--replay", options->replay, "decide a journal again");
  sim->add_option("--record", options->record, "write the journal's jobs as a trace")
      ->needs(replay);
  sim->add_option("--kind", options->kind, "kind of the trace's jobs")->needs(replay);
  file->excludes(replay);
  add_json_option(*sim, options->json);
  sim->parse_complete_callback([file, replay] {
    if (file->count() == 0 && replay->count() == 0) throw CLI::RequiredError("file or --replay");
  });
  on_chosen(*sim, chosen, options, run_sim);
}

}  // namespace plexrl::cli
