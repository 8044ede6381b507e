// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_decode.h"

#include <stdlib.h>

#include <cstdint>
#include <fstream>
#include <utility>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/bench_model.h"
#include "cli/bench/child_program.h"
#include "cli/bench/temporary_folder.h"
#include "cli/output.h"

namespace plexrl::cli {
namespace {

Result<std::vector<BenchModel>> find_models(const BenchDecodeOptions& options,
                                            const std::string& engine, const std::string& folder) {
  std::vector<BenchModel> models;
  for (const std::string& word : options.models) {
    PLEXRL_ASSIGN(models.emplace_back(), find_bench_model(word, engine, folder));
  }
  if (!models.empty()) return models;
  PLEXRL_ASSIGN(models.emplace_back(), find_bench_model("tiny", engine, folder));
  if (auto real = find_bench_model(kRealModel, engine, folder))
    models.push_back(std::move(*real));
  else
    print_progress(std::string("no rows of ") + kRealModel + ": " + real.error().text());
  return models;
}

Result<nlohmann::json> measure(const BenchDecodeOptions& options, const std::string& engine,
                               const BenchModel& model, const std::string& dtype,
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
  for (const BenchModel& model : models)
    for (const std::string& dtype : dtypes) {
      PLEXRL_ASSIGN(const auto rows, measure(options, engine, model, dtype, folder.path()));
      all.insert(all.end(), rows.begin(), rows.end());
    }
  return all;
}

}  // namespace plexrl::cli
