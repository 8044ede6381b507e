// SPDX-License-Identifier: Apache-2.0
// `plexrl bench decode`: how fast plexrl-engine's decoder makes tokens, beside a plain read of the
// same bytes in the same process.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace plexrl::cli {

struct BenchDecodeOptions {
  // "tiny" (made here), "smollm2-135m" (of `make models`), or a directory. Empty: the two names,
  // the second where it is there, else with a sentence on stderr.
  std::vector<std::string> models;
  std::vector<std::string> dtypes;  // empty: float32 and bfloat16
  std::uint32_t threads = 1;
  double seconds = 1.0;  // of each measurement
  std::string engine;    // empty: plexrl-engine beside plexrld
  bool json = false;
};

// Flat rows, for each model and dtype one per number of rows (1, 8, 32) and of adapters (0 and
// those of 1, 8, 32 up to the rows): bench, model, dtype, threads, rows, adapters, rounds, bytes,
// tokens_per_s, roofline_tokens_per_s, roofline_share.
[[nodiscard]] Result<nlohmann::json> bench_decode(const BenchDecodeOptions& options);

}  // namespace plexrl::cli
