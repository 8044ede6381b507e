// SPDX-License-Identifier: Apache-2.0
#include "cli/profiles_command.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/document.h"
#include "cli/output.h"
#include "cli/service_target.h"
#include "config/site_config.h"
#include "slurm/profile_file.h"

namespace plexrl::cli {
namespace {

struct ListOptions {
  ServiceTarget target;
  bool json = false;
};

struct ExportOptions {
  ServiceTarget target;
  std::vector<std::string> from;
  std::string output;
  bool json = false;
};

std::string joined(const nlohmann::json& words) {
  std::string text;
  for (const auto& word : words)
    if (word.is_string()) text += (text.empty() ? "" : ",") + word.get<std::string>();
  return text;
}

Status run_list(const ListOptions& options) {
  PLEXRL_ASSIGN(const auto document, ask(options.target, wire::QueryKind::Profiles));
  if (options.json)
    print_json(document);
  else
    print_text(render_profiles(document));
  return {};
}

// Throws nlohmann's exceptions where a field is missing or of another kind.
std::pair<slurm::ProfileKey, slurm::Profile> entry_of(const nlohmann::json& entry) {
  const auto number = [&](const char* name) { return entry.at(name).get<std::uint32_t>(); };
  const auto text = [&](const char* name) { return entry.at(name).get<std::string>(); };
  return {{number("uid"), text("pool"), text("train_mode"),
           entry.at("models").get<std::vector<std::string>>(), text("name")},
          {number("runs"), number("busy_percent"), number("rollout_percent"),
           number("training_percent")}};
}

void add_entry(const slurm::ProfileKey& key, const slurm::Profile& profile,
               slurm::Profiles* profiles) {
  const auto [found, fresh] = profiles->emplace(key, profile);
  if (fresh) return;
  const std::uint32_t runs = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(std::uint64_t{found->second.runs} + profile.runs, 1'000'000));
  if (profile.busy_percent > found->second.busy_percent) found->second = profile;
  found->second.runs = runs;
}

Result<nlohmann::json> read_document(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path);
  std::istream& in = path == "-" ? std::cin : file;
  if (!in) return error(Code::NOT_FOUND, "'%s' cannot be read", path.c_str());
  auto document = nlohmann::json::parse(in, nullptr, false);
  if (!document.is_discarded()) return document;
  return error(Code::INVALID_ARGUMENT, "'%s' is not the output of 'plexrl profiles --json'",
               path.c_str());
}

Result<slurm::Profiles> collect(const ExportOptions& options) {
  slurm::Profiles profiles;
  for (const std::string& path : options.from) {
    PLEXRL_ASSIGN(const auto document, read_document(path));
    PLEXRL_TRY(merge_profiles(document, &profiles).within("'" + path + "'"));
  }
  if (!options.from.empty()) return profiles;
  PLEXRL_ASSIGN(const auto document, ask(options.target, wire::QueryKind::Profiles));
  PLEXRL_TRY(merge_profiles(document, &profiles));
  return profiles;
}

Status run_export(const ExportOptions& options) {
  const std::string path =
      options.output.empty() ? slurm::profiles_path(config::default_config_path()) : options.output;
  if (options.output.empty() && ::geteuid() != 0)
    return error(Code::PERMISSION,
                 "'%s' must be root's: run this as root, or write another file with --output",
                 path.c_str());
  PLEXRL_ASSIGN(const slurm::Profiles profiles, collect(options));
  const slurm::ProfilesText text = slurm::format_profiles(profiles);
  PLEXRL_TRY(slurm::write_profiles(path, text.text));
  if (text.left_out > 0)
    print_progress(std::to_string(text.left_out) +
                   " profiles did not fit, those with the fewest runs");
  const std::size_t written = profiles.size() - text.left_out;
  if (options.json)
    print_json({{"file", path}, {"profiles", written}, {"left_out", text.left_out}});
  else
    print_text(path + ": " + std::to_string(written) + " profiles\n");
  return {};
}

}  // namespace

std::string render_profiles(const nlohmann::json& document) {
  Table table(
      {"NAME", "USER", "POOL", "TRAIN", "MODELS", "RUNS", "BUSY", "ROLLOUT", "TRAINING", "SHARE"});
  const auto percent = [](const nlohmann::json& entry, const char* name) {
    const std::string number = cell(entry, name);
    return number.empty() ? number : number + "%";
  };
  for (const auto& entry : items(document, "profiles"))
    table.add({cell(entry, "name"), cell(entry, "user"), cell(entry, "pool"),
               cell(entry, "train_mode"), joined(items(entry, "models")), cell(entry, "runs"),
               percent(entry, "busy_percent"), percent(entry, "rollout_percent"),
               percent(entry, "training_percent"), cell(entry, "share_percent")});
  return table.to_text();
}

Status merge_profiles(const nlohmann::json& document, slurm::Profiles* profiles) {
  slurm::Profiles merged = *profiles;
  try {
    for (const auto& entry : document.at("profiles")) {
      const auto [key, profile] = entry_of(entry);
      // A name with a blank or a line end would make other lines of the file.
      const auto parsed = slurm::parse_profiles(slurm::format_profiles({{key, profile}}).text);
      if (!parsed || parsed->profiles != slurm::Profiles{{key, profile}})
        return error(Code::INVALID_ARGUMENT, "an entry is no profile: %s",
                     entry.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str());
      add_entry(key, profile, &merged);
    }
  } catch (const nlohmann::json::exception& failure) {
    return error(Code::INVALID_ARGUMENT, "not the output of 'plexrl profiles --json': %s",
                 failure.what());
  }
  *profiles = std::move(merged);
  return {};
}

void add_profiles(CLI::App& app, Run& chosen) {
  auto* command =
      app.add_subcommand("profiles", "list what earlier runs of jobs tell about their next ones");
  auto list = std::make_shared<ListOptions>();
  add_service_options(*command, list->target);
  add_json_option(*command, list->json);
  // Called for 'profiles export' too, after its own.
  command->callback([&chosen, list, command] {
    if (command->get_subcommands().empty()) chosen = [list] { return run_list(*list); };
  });
  auto* exporting = command->add_subcommand(
      "export", "write the file that the job_submit plugin takes shares from");
  auto options = std::make_shared<ExportOptions>();
  add_service_options(*exporting, options->target);
  add_json_option(*exporting, options->json);
  exporting->add_option("--from", options->from,
                        "documents of 'plexrl profiles --json' of the nodes, - for standard input; "
                        "default: ask this node's service");
  exporting->add_option("--output", options->output,
                        "default: the file profiles beside the site file");
  on_chosen(*exporting, chosen, options, run_export);
}

}  // namespace plexrl::cli
