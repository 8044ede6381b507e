// SPDX-License-Identifier: Apache-2.0
#include "cli/model_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "cli/model_copy_command.h"
#include "cli/model_files.h"
#include "cli/model_registry.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "models/checksums.h"

namespace plexrl::cli {
namespace {

namespace fs = std::filesystem;

struct ListOptions {
  std::string config;
  std::string pool;
  bool json = false;
};

Status run_list(const ListOptions& options) {
  PLEXRL_ASSIGN(const auto site, load_site(options.config));
  const config::PoolEntry* const pool =
      options.pool.empty() ? nullptr : site.find_pool(options.pool);
  if (pool == nullptr && !options.pool.empty())
    return error(Code::NOT_FOUND, "pool '%s' is not in the site file", options.pool.c_str());
  nlohmann::json models = nlohmann::json::array();
  Table table({"MODEL", "PARAMETERS", "POOLS", "HERE", "PATH"});
  for (const auto& entry : site.models) {
    const auto pools = pools_of(site, entry.name);
    if (pool != nullptr && std::find(pools.begin(), pools.end(), pool->name) == pools.end())
      continue;
    const char* const here = state_here(entry.path);
    table.add({entry.name, std::to_string(entry.parameters), joined(pools), here, entry.path});
    models.push_back({{"name", entry.name},
                      {"parameters", entry.parameters},
                      {"bytes_per_parameter", entry.bytes_per_parameter},
                      {"pools", joined(pools)},
                      {"here", here},
                      {"path", entry.path}});
  }
  if (options.json)
    print_json({{"models", models}});
  else
    print_text(table.to_text());
  return {};
}

struct VerifyOptions {
  std::string config;
  std::vector<std::string> names;
  bool headers_only = false;
  bool json = false;
};

struct Verified {
  std::string name;
  ModelCheck check;
  bool summed = false;  // checksums were compared
};

// What the directory holds against what its import wrote down.
Status compare_checksums(const std::string& dir, ProgressLine& progress, Verified& verified) {
  const auto sums = model::read_checksums(dir);
  if (!sums.has_value() && sums.error().code() == Code::NOT_FOUND) return {};
  PLEXRL_TRY(sums.status());
  std::uint64_t all = 0, done = 0;
  std::error_code code;
  for (const auto& [name, sum] : *sums)
    if (const auto bytes = fs::file_size(fs::path(dir) / name, code); !code) all += bytes;
  const auto step = [&](std::uint64_t bytes) {
    progress.show(done += bytes, all);
    return !stop_requested();
  };
  for (const auto& [name, sum] : *sums) {
    const auto found = model::file_sha256(fs::path(dir) / name, step);
    if (!found.has_value() && found.error().code() == Code::CANCELLED) return found.error();
    if (!found.has_value())
      verified.check.problems.push_back(found.error().text());
    else if (*found != sum)
      verified.check.problems.push_back(name + ": its checksum is not that of " +
                                        model::kChecksumFile);
  }
  verified.summed = true;
  return {};
}

Result<std::vector<Verified>> verify_all(const VerifyOptions& options) {
  PLEXRL_ASSIGN(const auto chosen, choose_models(options.config, options.names));
  std::vector<Verified> all;
  for (const auto& one : chosen) {
    Verified verified{one.name(), one.entry ? check_model(*one.entry) : check_model_dir(one.path),
                      false};
    ProgressLine progress(verified.name);
    if (!options.headers_only)
      PLEXRL_TRY(compare_checksums(one.path, progress, verified).within(verified.name));
    all.push_back(std::move(verified));
  }
  return all;
}

std::string verdict(const Verified& verified) {
  std::string text = verified.name;
  if (verified.check.problems.empty())
    return text + (verified.summed ? ": ok, as its checksums\n" : ": ok\n");
  text += ": not usable\n";
  for (const std::string& problem : verified.check.problems) text += "  " + problem + "\n";
  return text;
}

Status run_verify(const VerifyOptions& options) {
  catch_stop_signals();
  PLEXRL_ASSIGN(const auto all, verify_all(options));
  nlohmann::json models = nlohmann::json::array();
  std::size_t bad = 0;
  for (const Verified& one : all) {
    bad += one.check.problems.empty() ? 0 : 1;
    models.push_back({{"name", one.name},
                      {"ok", one.check.problems.empty()},
                      {"parameters", one.check.parameters},
                      {"bytes", one.check.bytes},
                      {"dtype", one.check.dtype},
                      {"checksums", one.summed},
                      {"problems", one.check.problems}});
    if (!options.json) print_text(verdict(one));
  }
  if (options.json) print_json({{"models", models}});
  if (bad == 0) return {};
  return error(Code::CORRUPT, "%zu of %zu models are not usable", bad, all.size());
}

}  // namespace

void add_model(CLI::App& app, Run& chosen) {
  auto* group = app.add_subcommand("model", "base models of the site; plexrl-model(1)");
  group->require_subcommand(1);
  auto* list = group->add_subcommand("list", "list the models that jobs may name");
  auto list_options = std::make_shared<ListOptions>();
  list->add_option("--pool", list_options->pool, "only those of this pool");
  list->add_option("--config", list_options->config, kSiteFileHelp);
  add_json_option(*list, list_options->json);
  on_chosen(*list, chosen, list_options, run_list);
  auto* verify = group->add_subcommand("verify", "check the files of models");
  auto verify_options = std::make_shared<VerifyOptions>();
  verify->add_option("MODEL", verify_options->names, "names, or directories; default: all names");
  verify->add_flag("--headers-only", verify_options->headers_only, "do not compare checksums");
  verify->add_option("--config", verify_options->config, kSiteFileHelp);
  add_json_option(*verify, verify_options->json);
  on_chosen(*verify, chosen, verify_options, run_verify);
  add_model_copies(*group, chosen);
  add_model_rm(*group, chosen);
}

}  // namespace plexrl::cli
