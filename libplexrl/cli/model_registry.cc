// SPDX-License-Identifier: Apache-2.0
#include "cli/model_registry.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cli/document.h"
#include "cli/output.h"
#include "cli/service_target.h"
#include "models/partial_directory.h"

namespace plexrl::cli {
namespace {

namespace fs = std::filesystem;

bool is_directory_word(const std::string& word) {
  return word.find('/') != word.npos || word == "." || word == "..";
}

std::string partial_of(const std::string& path) {
  return path + std::string(model::kPartialSuffix);
}

struct RmOptions {
  std::string config;
  std::string model;
  ServiceTarget target;
  bool offline = false;
  bool json = false;
};

// Names of the registry whose directory this is.
std::vector<std::string> names_of(const config::SiteConfig& site, const std::string& path) {
  std::vector<std::string> names;
  std::error_code code;
  for (const auto& entry : site.models)
    if (fs::weakly_canonical(entry.path, code) == fs::weakly_canonical(path, code))
      names.push_back(entry.name);
  return names;
}

Status in_use(const std::string& name, const std::string& by, const char* what_to_do) {
  return error(Code::INVALID_ARGUMENT, "model '%s' is used by %s: %s", name.c_str(), by.c_str(),
               what_to_do);
}

// What the service of this node says it has. Where there is no socket there is no service.
Status check_service(const RmOptions& options, const config::SiteConfig* site,
                     const std::vector<std::string>& names) {
  ServiceTarget target = options.target;
  if (target.socket.empty() && site != nullptr)
    target.socket = site->daemon.run_dir + "/plexrld.sock";
  if (::access(target.socket_path().c_str(), F_OK) != 0 && errno == ENOENT) return {};
  const auto document = ask(target, wire::QueryKind::Status);
  if (!document.has_value())
    return error(document.error().code(),
                 "whether plexrld of this node uses the model is not known (%s): stop it, or "
                 "--offline",
                 document.error().text().c_str());
  for (const std::string& name : names) {
    for (const auto& model : items(*document, "models"))
      if (model == name)
        return in_use(name, "the running plexrld of pool " + cell(*document, "pool"),
                      "let it read a site file without the model (plexrl reload) first");
    for (const auto& engine : items(*document, "engines"))
      if (cell(engine, "base") == name)
        return in_use(name, "an engine of this node", "wait for the jobs that use it");
  }
  return {};
}

Status check_unused(const RmOptions& options, const std::string& path) {
  auto site = load_site(options.config);
  // Without a registry a directory is only a directory; but one that cannot be read may name it.
  const bool none = !site.has_value() && site.error().code() == Code::NOT_FOUND &&
                    options.config.empty() && is_directory_word(options.model);
  if (!site.has_value() && !none) return site.error();
  const auto names = none ? std::vector<std::string>() : names_of(*site, path);
  for (const std::string& name : names)
    if (const auto pools = pools_of(*site, name); !pools.empty())
      return in_use(name, "pool " + joined(pools), "take it out of the site file first");
  if (options.offline || names.empty()) return {};
  return check_service(options, none ? nullptr : &*site, names);
}

// An import makes files only: anything else is not ours to remove.
Result<std::uint64_t> size_of_model(const std::string& path) {
  if (!fs::exists(path + "/config.json") && !path.ends_with(model::kPartialSuffix))
    return error(Code::INVALID_ARGUMENT, "'%s' has no config.json: it is not a model",
                 path.c_str());
  std::uint64_t bytes = 0;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(path, code)) {
    if (!entry.is_regular_file(code) && !entry.is_symlink(code))
      return error(Code::INVALID_ARGUMENT,
                   "'%s' is not a file, no import makes it: look at it and remove it by hand",
                   entry.path().c_str());
    if (entry.is_regular_file(code) && !entry.is_symlink(code)) bytes += entry.file_size(code);
  }
  if (code) return error(Code::IO, "read '%s': %s", path.c_str(), code.message().c_str());
  return bytes;
}

// Under another name first: what has the model's name is whole at any time.
Status remove_directory(const std::string& path) {
  const std::string doomed = path + ".removing";
  std::error_code code;
  fs::remove_all(doomed, code);
  fs::rename(path, doomed, code);
  if (code) return error(Code::IO, "rename '%s': %s", path.c_str(), code.message().c_str());
  fs::remove_all(doomed, code);
  if (code) return error(Code::IO, "remove '%s': %s", doomed.c_str(), code.message().c_str());
  return {};
}

Status run_rm(const RmOptions& options) {
  PLEXRL_ASSIGN(const auto chosen, choose_models(options.config, {options.model}));
  std::string path = chosen.front().path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  PLEXRL_TRY(check_unused(options, path));
  std::error_code code;
  if (!fs::exists(path, code) && fs::exists(partial_of(path), code)) path = partial_of(path);
  if (!fs::is_directory(fs::symlink_status(path, code)))
    return error(Code::NOT_FOUND, "'%s' is not a directory of this node", path.c_str());
  PLEXRL_ASSIGN(const std::uint64_t bytes, size_of_model(path));
  PLEXRL_TRY(remove_directory(path));
  if (options.json)
    print_json({{"path", path}, {"bytes", bytes}});
  else
    print_text("removed " + path + ", " + format_bytes(bytes) + "\n");
  return {};
}

}  // namespace

Result<config::SiteConfig> load_site(const std::string& config) {
  const bool trusted = config.empty();
  return config::load_site_config(trusted ? config::default_config_path() : config, trusted);
}

std::vector<std::string> pools_of(const config::SiteConfig& site, const std::string& model) {
  std::vector<std::string> pools;
  for (const auto& pool : site.pools)
    if (std::find(pool.models.begin(), pool.models.end(), model) != pool.models.end())
      pools.push_back(pool.name);
  return pools;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ",").append(name);
  return text;
}

const char* state_here(const std::string& path) {
  if (::access((path + "/config.json").c_str(), R_OK) == 0) return "yes";
  if (errno == EACCES) return "unreadable";
  return ::access(partial_of(path).c_str(), F_OK) == 0 ? "partial" : "no";
}

Result<std::vector<ChosenModel>> choose_models(const std::string& config,
                                               const std::vector<std::string>& names) {
  std::vector<ChosenModel> chosen;
  std::optional<config::SiteConfig> site;
  if (names.empty() || !std::all_of(names.begin(), names.end(), is_directory_word)) {
    PLEXRL_ASSIGN(site, load_site(config));
  }
  if (names.empty())
    for (const auto& entry : site->models) chosen.push_back({entry, entry.path});
  for (const std::string& name : names) {
    if (is_directory_word(name)) {
      chosen.push_back({std::nullopt, name});
      continue;
    }
    const auto* entry = site->find_model(name);
    if (entry == nullptr)
      return error(
          Code::NOT_FOUND,
          "model '%s' is not in the site file; see plexrl model list (a directory is given "
          "as ./%s)",
          name.c_str(), name.c_str());
    chosen.push_back({*entry, entry->path});
  }
  return chosen;
}

void add_model_rm(CLI::App& group, Run& chosen) {
  auto* command = group.add_subcommand("rm", "remove a model that no pool names from this node");
  auto options = std::make_shared<RmOptions>();
  command->add_option("MODEL", options->model, "its name, or its directory")->required();
  command->add_flag("--offline", options->offline, "do not ask plexrld whether it uses the model");
  command->add_option("--config", options->config, kSiteFileHelp);
  add_service_options(*command, options->target);
  add_json_option(*command, options->json);
  on_chosen(*command, chosen, options, run_rm);
}

}  // namespace plexrl::cli
