// SPDX-License-Identifier: Apache-2.0
#include "cli/model_command.h"

#include <algorithm>
#include <filesystem>

#include "cli/model_files.h"
#include "cli/output.h"
#include "models/gguf_import.h"

namespace plexrl::cli {
namespace {

struct ModelOptions {
  std::string config;
  std::vector<std::string> names;
  bool json = false;
};

Result<config::SiteConfig> site_of(const ModelOptions& options) {
  const bool trusted = options.config.empty();
  return config::load_site_config(trusted ? config::default_config_path() : options.config,
                                  trusted);
}

std::string pools_of(const config::SiteConfig& site, const std::string& model) {
  std::string pools;
  for (const auto& pool : site.pools)
    if (std::find(pool.models.begin(), pool.models.end(), model) != pool.models.end())
      pools.append(pools.empty() ? "" : ",").append(pool.name);
  return pools;
}

Status run_list(const ModelOptions& options) {
  PLEXRL_ASSIGN(const auto site, site_of(options));
  nlohmann::json models = nlohmann::json::array();
  Table table({"MODEL", "PARAMETERS", "POOLS", "PATH"});
  for (const auto& entry : site.models) {
    const std::string pools = pools_of(site, entry.name);
    table.add({entry.name, std::to_string(entry.parameters), pools, entry.path});
    models.push_back({{"name", entry.name},
                      {"parameters", entry.parameters},
                      {"bytes_per_parameter", entry.bytes_per_parameter},
                      {"pools", pools},
                      {"path", entry.path}});
  }
  if (options.json)
    print_json({{"models", models}});
  else
    print_text(table.to_text());
  return {};
}

// The named ones, all without names. NOT_FOUND names the first that is not in the site file.
Result<std::vector<config::ModelEntry>> chosen_models(const config::SiteConfig& site,
                                                      const std::vector<std::string>& names) {
  if (names.empty()) return site.models;
  std::vector<config::ModelEntry> entries;
  for (const std::string& name : names) {
    const auto* entry = site.find_model(name);
    if (entry == nullptr)
      return error(Code::NOT_FOUND, "model '%s' is not in the site file; see plexrl model list",
                   name.c_str());
    entries.push_back(*entry);
  }
  return entries;
}

Status run_verify(const ModelOptions& options) {
  PLEXRL_ASSIGN(const auto site, site_of(options));
  PLEXRL_ASSIGN(const auto entries, chosen_models(site, options.names));
  nlohmann::json models = nlohmann::json::array();
  std::string text;
  std::size_t bad = 0;
  for (const auto& entry : entries) {
    const ModelCheck check = check_model(entry);
    bad += check.problems.empty() ? 0 : 1;
    models.push_back({{"name", entry.name},
                      {"ok", check.problems.empty()},
                      {"parameters", check.parameters},
                      {"bytes", check.bytes},
                      {"problems", check.problems}});
    text.append(entry.name).append(check.problems.empty() ? ": ok\n" : ": not usable\n");
    for (const std::string& problem : check.problems)
      text.append("  ").append(problem).append("\n");
  }
  if (options.json)
    print_json({{"models", models}});
  else
    print_text(text);
  if (bad == 0) return {};
  return error(Code::CORRUPT, "%zu of %zu models are not usable", bad, entries.size());
}

struct ImportOptions {
  std::string from;
  std::string to;
  bool json = false;
};

Status run_import(const ImportOptions& options) {
  std::uint64_t shown = UINT64_MAX;
  const auto progress = [&](std::uint64_t done, std::uint64_t all) {
    const std::uint64_t tenths = done * 10 / all;
    if (tenths != shown) print_progress("imported " + std::to_string(tenths * 10) + " %");
    shown = tenths;
    return true;
  };
  PLEXRL_ASSIGN(const auto model, model::import_gguf(options.from, options.to, progress));
  const std::string path = std::filesystem::absolute(options.to).lexically_normal();
  if (options.json) {
    print_json({{"path", path},
                {"architecture", model.architecture},
                {"parameters", model.parameters},
                {"bytes", model.bytes}});
    return {};
  }
  print_text("imported " + path + ": " + model.architecture + ", " +
             std::to_string(model.parameters) + " parameters, " + format_bytes(model.bytes) +
             "\nplexrl.yaml takes it as\n  - {name: NAME, path: " + path +
             ", parameters: " + std::to_string(model.parameters) + "}\n");
  return {};
}

}  // namespace

void add_model(CLI::App& app, Run& chosen) {
  auto* group = app.add_subcommand("model", "base models of the site");
  group->require_subcommand(1);
  auto* list = group->add_subcommand("list", "list the models that jobs may name");
  auto list_options = std::make_shared<ModelOptions>();
  auto* verify = group->add_subcommand("verify", "check the files of models");
  auto verify_options = std::make_shared<ModelOptions>();
  verify->add_option("MODEL", verify_options->names, "names; default: all");
  for (auto [command, options] : {std::pair(list, list_options), {verify, verify_options}}) {
    command->add_option("--config", options->config, "site file; default: /etc/plexrl/plexrl.yaml");
    add_json_option(*command, options->json);
  }
  auto* import = group->add_subcommand("import", "make a model directory of a GGUF file");
  auto import_options = std::make_shared<ImportOptions>();
  import->add_option("FILE", import_options->from, "the GGUF file")->required();
  import->add_option("DIRECTORY", import_options->to, "new, for the model")->required();
  add_json_option(*import, import_options->json);
  on_chosen(*import, chosen, import_options, run_import);
  on_chosen(*list, chosen, list_options, run_list);
  on_chosen(*verify, chosen, verify_options, run_verify);
}

}  // namespace plexrl::cli
