// SPDX-License-Identifier: Apache-2.0
// Models that benchmarks run: of the shape of a Llama, freshly initialised, or fetched before.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace plexrl::cli {

struct ModelShape {
  const char* name;
  std::uint32_t hidden, layers, heads, kv_heads, intermediate, vocabulary, positions;
  [[nodiscard]] std::uint32_t kv_size() const noexcept { return hidden / heads * kv_heads; }
  [[nodiscard]] std::uint64_t parameters() const noexcept;  // with a tied head
  [[nodiscard]] std::uint64_t lora_parameters(std::uint32_t rank) const noexcept;
};

// Writes directory/NAME by plexrl-engine; what that says goes to directory/log.
[[nodiscard]] Status make_model(const std::string& engine, const std::string& directory,
                                const ModelShape& shape);

// Its entry in the list of models of a site file.
[[nodiscard]] std::string site_model(const ModelShape& shape, const std::string& name,
                                     const std::string& path);

inline constexpr const char* kRealModel = "smollm2-135m";

struct BenchModel {
  std::string name, directory;
};
// "tiny", which is made in `folder`; smollm2-135m beside this program; or a directory with a '/' in
// its name. NOT_FOUND says what to do.
[[nodiscard]] Result<BenchModel> find_bench_model(const std::string& word,
                                                  const std::string& engine,
                                                  const std::string& folder);
// Of a model's config.json. INVALID_ARGUMENT names what is missing.
[[nodiscard]] Result<ModelShape> shape_of(const BenchModel& model);

}  // namespace plexrl::cli
