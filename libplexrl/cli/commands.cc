// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

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
#include "cli/profiles_command.h"
#include "cli/report_command.h"
#include "cli/sim_command.h"
#include "cli/status_command.h"
#include "cli/train_command.h"
#include "config.h"

namespace plexrl::cli {
namespace {

using Add = void (*)(CLI::App& app, Run& chosen);

// In the order of `plexrl --help` and of plexrl(1).
constexpr Add kCommands[] = {
    add_status, add_jobs,   add_ops,    add_report,     add_profiles, add_train,
    add_env,    add_config, add_model,  add_node_check, add_job,      add_drain,
    add_resume, add_evict,  add_reload, add_bench,      add_lease,    add_sim,
};

// Edits that make one word of the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Half of the word may be wrong, but no more than two letters.
const CLI::App* nearest(const std::vector<const CLI::App*>& commands, std::string_view word) {
  const CLI::App* found = nullptr;
  std::size_t best = std::min<std::size_t>(2, word.size() / 2) + 1;
  for (const CLI::App* const command : commands) {
    const std::size_t edits = distance(word, command->get_name());
    if (edits >= best) continue;
    best = edits;
    found = command;
  }
  return found;
}

// What to say of a word that stands where a subcommand has to be and is none; empty: there is no
// such word. The parser itself only says that a subcommand is missing.
std::string unknown_command(const CLI::App& app, int argc, const char* const* argv) {
  const CLI::App* at = &app;
  std::string before;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto commands = at->get_subcommands([](const CLI::App*) { return true; });
    if (word.empty() || word.front() == '-' || commands.empty()) return "";
    const auto known = std::find_if(commands.begin(), commands.end(),
                                    [&](const CLI::App* sub) { return sub->get_name() == word; });
    if (known != commands.end()) {
      at = *known;
      before += word + " ";
      continue;
    }
    std::string text = "unknown command '" + before + word + "';";
    if (const CLI::App* const near = nearest(commands, word))
      text += " did you mean 'plexrl " + before + near->get_name() + "'?";
    return text + " 'plexrl " + before + "--help' lists what there is";
  }
  return "";
}

// What is wrong, and the command whose options tell more. The program's name is in front, since the
// line often stands in the output file of a batch job.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error, const char* first) {
  const CLI::App* at = &app;
  std::string command = app.get_name();
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  std::string what = error.what();
  if (what.size() > 1 && std::islower(static_cast<unsigned char>(what[1])) != 0)
    what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
  if (first[0] == '-') what += "; options follow the command";
  return what + "; see '" + command + " --help'";
}

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
    const std::string unknown = unknown_command(app, argc, argv);
    if (error.get_exit_code() == 0) return app.exit(error) == 0 ? kExitOk : kExitUsage;
    std::fprintf(stderr, "plexrl: %s\n",
                 unknown.empty() ? usage_error(app, error, argc > 2 ? argv[1] : "").c_str()
                                 : unknown.c_str());
    return kExitUsage;
  }
  return flush_stdout(report(run_chosen(chosen)));
}

}  // namespace plexrl::cli
