// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_decode.h"

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/bench_model.h"
#include "cli/bench/temporary_folder.h"
#include "cli/output.h"

namespace plexrl::cli {
namespace {

// The demo's model, with room for the rows.
constexpr ModelShape kTiny = {"tiny", 128, 3, 4, 2, 384, 32, 256};
constexpr const char* kReal = "smollm2-135m";

struct Model {
  std::string name, directory;
};

std::string beside_this_program(const std::string& name) {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  for (const auto& folder : {self.parent_path(), self.parent_path().parent_path()})
    if (const auto found = folder / "models" / name; std::filesystem::exists(found, failure))
      return found.string();
  return {};
}

Result<Model> find_model(const std::string& word, const std::string& engine,
                         const std::string& folder) {
  if (word == kTiny.name) {
    PLEXRL_TRY(make_model(engine, folder, kTiny));
    return Model{word, folder + "/" + kTiny.name};
  }
  if (word.find('/') != std::string::npos) {
    const std::filesystem::path path = std::filesystem::path(word).lexically_normal();
    return Model{(path.has_filename() ? path : path.parent_path()).filename().string(), word};
  }
  if (word == kReal)
    if (const std::string found = beside_this_program(word); !found.empty())
      return Model{word, found};
  return error(
      Code::NOT_FOUND,
      "bench decode: no model '%s' beside this program: run `make models` for %s, or give a "
      "directory with a '/' in its name",
      word.c_str(), kReal);
}

Result<std::vector<Model>> find_models(const BenchDecodeOptions& options, const std::string& engine,
                                       const std::string& folder) {
  std::vector<Model> models;
  for (const std::string& word : options.models) {
    PLEXRL_ASSIGN(models.emplace_back(), find_model(word, engine, folder));
  }
  if (!models.empty()) return models;
  PLEXRL_ASSIGN(models.emplace_back(), find_model(kTiny.name, engine, folder));
  if (auto real = find_model(kReal, engine, folder))
    models.push_back(std::move(*real));
  else
    print_progress(std::string("no rows of ") + kReal + ": " + real.error().text());
  return models;
}

Result<nlohmann::json> measure(const BenchDecodeOptions& options, const std::string& engine,
                               const Model& model, const std::string& dtype,
                               const std::string& folder) {
  print_progress("decoding " + model.name + " in " + dtype);
  const std::string out = folder + "/rows.json";
  PLEXRL_TRY(run_program({engine, "--bench-decode", out, "--base-dir", model.directory, "--dtype",
                          dtype, "--threads", std::to_string(options.threads), "--milliseconds",
                          std::to_string(static_cast<std::uint64_t>(options.seconds * 1000))},
                         folder + "/log"));
  std::ifstream file(out);
  auto rows = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!rows.is_array()) return error(Code::INTERNAL, "'%s' wrote no rows", engine.c_str());
  for (auto& row : rows)
    row.update({{"bench", "decode"},
                {"model", model.name},
                {"dtype", dtype},
                {"threads", options.threads}});
  return rows;
}

}  // namespace

Result<nlohmann::json> bench_decode(const BenchDecodeOptions& options) {
  std::string engine = options.engine;
  if (engine.empty()) {
    PLEXRL_ASSIGN(const std::string plexrld, find_plexrld());
    PLEXRL_ASSIGN(engine, find_engine(plexrld));
  }
  // As plexrld starts its engines: waiting threads that spin collapse when others want the CPUs.
  ::setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  PLEXRL_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make());
  PLEXRL_ASSIGN(const auto models, find_models(options, engine, folder.path()));
  std::vector<std::string> dtypes = options.dtypes;
  if (dtypes.empty()) dtypes = {"float32", "bfloat16"};
  nlohmann::json all = nlohmann::json::array();
  for (const Model& model : models)
    for (const std::string& dtype : dtypes) {
      PLEXRL_ASSIGN(const auto rows, measure(options, engine, model, dtype, folder.path()));
      all.insert(all.end(), rows.begin(), rows.end());
    }
  return all;
}

}  // namespace plexrl::cli
