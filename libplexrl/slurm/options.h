// SPDX-License-Identifier: Apache-2.0
// The options --plexrl-*: one table for the SPANK plugin, the job_submit hook and the manual, and
// the checks of a value that need no site configuration. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::slurm {

enum class Option : std::uint8_t { kPool, kModel, kTrain, kShare, kSlowdown, kEnv };
constexpr std::size_t kOptionCount = 6;

// Clients whose variables --plexrl-env can set: Tinker's SDK, the OpenAI client.
constexpr std::array<std::string_view, 2> kEnvClients{"tinker", "openai"};

struct OptionRow {
  Option option;
  const char* name;  // without the dashes
  const char* argument;
  const char* usage;  // one line of `sbatch --help`
};
[[nodiscard]] std::span<const OptionRow, kOptionCount> option_table();
[[nodiscard]] const OptionRow& option_row(Option option);

struct TrainOption {
  std::string mode;        // lora, full, none
  std::uint32_t rank = 0;  // lora: 0 when not given
};

// INVALID_ARGUMENT: a sentence that says what to write instead.
[[nodiscard]] Status check_option(Option option, std::string_view value);

[[nodiscard]] Result<std::string> parse_pool(std::string_view value);
[[nodiscard]] Result<std::vector<std::string>> parse_models(std::string_view value);
[[nodiscard]] Result<TrainOption> parse_train(std::string_view value);
[[nodiscard]] Result<std::uint32_t> parse_share(std::string_view value);     // percent
[[nodiscard]] Result<std::uint32_t> parse_slowdown(std::string_view value);  // in thousandths
// Of kEnvClients, in their order; "none" is an empty list.
[[nodiscard]] Result<std::vector<std::string>> parse_env(std::string_view value);

}  // namespace plexrl::slurm
