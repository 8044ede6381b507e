// SPDX-License-Identifier: Apache-2.0
#include "cli/config_command.h"

#include <grp.h>
#include <pwd.h>

#include "cli/controller_check.h"
#include "cli/output.h"
#include "config/config_text.h"
#include "config/machine.h"
#include "config/site_config.h"
#include "config/slurm_text.h"

namespace plexrl::cli {
namespace {

struct ConfigOptions {
  std::string file;
  std::string plugin_dir = PLEXRL_SLURM_PLUGIN_DIR;
  bool accounting = false;
  bool controller = false;
  std::string scontrol = "scontrol";
  bool json = false;

  [[nodiscard]] std::string path() const {
    return file.empty() ? config::default_config_path() : file;
  }
};

// A file that is named may still be in somebody's home; the one in force must be trustworthy.
Result<config::SiteConfig> load(const ConfigOptions& options) {
  return config::load_site_config(options.path(), options.file.empty());
}

Status run_controller_check(const ConfigOptions& options) {
  PLEXRL_ASSIGN(const Controllers controllers, find_controllers(options.scontrol));
  const ControllerFindings findings = check_controllers(options.path(), controllers);
  if (options.json) {
    print_json(findings.document);
  } else {
    for (const std::string& note : findings.notes) print_progress(note);
    if (findings.mistakes.empty()) print_text(options.path() + ", profiles, controllers: ok\n");
  }
  std::string text;
  for (const std::string& mistake : findings.mistakes) text += (text.empty() ? "" : "\n") + mistake;
  return text.empty() ? Status() : error(Code::INVALID_ARGUMENT, "%s", text.c_str());
}

// Users and groups that this host does not know. A warning, as another host may know them.
std::vector<std::string> unknown_names(const config::SiteConfig& site) {
  std::vector<std::string> unknown;
  const auto user = [&](const std::string& where, const std::string& name) {
    if (::getpwnam(name.c_str()) == nullptr)
      unknown.push_back(where + ": this host has no user '" + name + "'");
  };
  const auto group = [&](const std::string& where, const std::string& name) {
    if (::getgrnam(name.c_str()) == nullptr)
      unknown.push_back(where + ": this host has no group '" + name + "'");
  };
  for (const config::PoolEntry& pool : site.pools) {
    for (const std::string& name : pool.users) user("pool '" + pool.name + "'", name);
    for (const std::string& name : pool.groups) group("pool '" + pool.name + "'", name);
  }
  for (const std::string& name : site.daemon.admin_groups) group("daemon.admin_groups", name);
  return unknown;
}

Status run_check(const ConfigOptions& options) {
  if (options.controller) return run_controller_check(options);
  const auto site = load(options);
  const auto warnings = site.has_value() ? unknown_names(*site) : std::vector<std::string>();
  if (options.json)
    print_json({{"file", options.path()},
                {"ok", site.has_value()},
                {"errors", site.has_value() ? "" : site.error().text()},
                {"warnings", warnings}});
  else if (site.has_value())
    print_text(options.path() + ": ok\n");
  for (const std::string& warning : warnings) print_progress("warning: " + warning);
  // What the daemon and the plugins would say of a named file if it were the one in force.
  if (site.has_value() && !options.file.empty())
    if (const Status trust = config::load_site_config(options.path(), true).status(); !trust.ok())
      print_progress("warning: plexrld would not take it as it lies here: " + trust.text());
  if (site.status().code() == Code::NOT_FOUND && options.file.empty())
    return {Code::NOT_FOUND, site.error().text() + "; 'plexrl config check FILE' checks another"};
  return site.status();
}

Status run_dump(const ConfigOptions& options) {
  PLEXRL_ASSIGN(const auto site, load(options));
  print_text(options.json ? config::dump_json(site) : config::dump_yaml(site));
  return {};
}

Status run_slurm(const ConfigOptions& options) {
  PLEXRL_ASSIGN(const auto site, load(options));
  PLEXRL_ASSIGN(const auto machine, config::detect_machine());
  config::SlurmTextOptions text_options{options.path(), options.plugin_dir, options.accounting};
  PLEXRL_ASSIGN(const std::string text, config::slurm_text(site, machine, text_options));
  if (options.json)
    print_json({{"text", text}});
  else
    print_text(text);
  return {};
}

using RunConfig = Status (*)(const ConfigOptions& options);

CLI::App* add_part(CLI::App& group, Run& chosen, const char* name, const char* summary,
                   std::shared_ptr<ConfigOptions> options, RunConfig run) {
  auto* command = group.add_subcommand(name, summary);
  command->add_option("FILE", options->file,
                      "site file; default: $PLEXRL_CONFIG, then /etc/plexrl/plexrl.yaml");
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, std::move(options), run);
  return command;
}

}  // namespace

void add_config(CLI::App& app, Run& chosen) {
  auto* group = app.add_subcommand("config", "check and print the site file");
  group->require_subcommand(1);
  auto checked = std::make_shared<ConfigOptions>();
  auto* check =
      add_part(*group, chosen, "check", "report all mistakes of a site file", checked, run_check);
  check->add_flag("--controller", checked->controller,
                  "also the file of profiles, and whether the controllers have read the same");
  check->add_option("--scontrol", checked->scontrol, "the scontrol program");
  add_part(*group, chosen, "dump", "print it with every default written out",
           std::make_shared<ConfigOptions>(), run_dump);
  auto options = std::make_shared<ConfigOptions>();
  auto* slurm =
      add_part(*group, chosen, "slurm", "print the lines that Slurm needs, for nodes like this one",
               options, run_slurm);
  slurm->add_option("--plugin-dir", options->plugin_dir, "where the plugins are installed")
      ->capture_default_str();
  slurm->add_flag("--accounting", options->accounting, "slurmdbd is used: print the TRES lines");
}

}  // namespace plexrl::cli
