// SPDX-License-Identifier: Apache-2.0
#include "slurm/options.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "slurm/names.h"

namespace plexrl::slurm {
namespace {

constexpr OptionRow kTable[kOptionCount] = {
    {Option::kPool, "plexrl-pool", "NAME", "share the nodes of this PlexRL pool"},
    {Option::kModel, "plexrl-model", "NAME[,NAME...]", "models that the job uses"},
    {Option::kTrain, "plexrl-train", "lora[:RANK]|full|none", "how the job trains them"},
    {Option::kShare, "plexrl-share", "25|50|100", "percent of the device group's time"},
    {Option::kSlowdown, "plexrl-slowdown", "FACTOR", "largest slowdown to accept, such as 1.5"},
    {Option::kEnv, "plexrl-env", "tinker,openai|none", "whose variables the tasks get"},
};

constexpr std::size_t kMaxModels = 8;
constexpr std::uint32_t kMaxRank = 256;  // of the engine
constexpr std::size_t kMaxValue = 1024;

// Not longer than a message should be, and without what would upset a terminal.
std::string shown(std::string_view value) {
  std::string text(value.substr(0, 64));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return value.size() > 64 ? text + "..." : text;
}

Status refuse(Option option, std::string_view value, const std::string& advice) {
  return error(Code::INVALID_ARGUMENT, "--%s=%s: %s", option_row(option).name, shown(value).c_str(),
               advice.c_str());
}

// Not to be taken for an option.
bool is_option_name(std::string_view text) { return is_name(text) && text.front() != '-'; }

std::optional<std::uint32_t> whole(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::span<const OptionRow, kOptionCount> option_table() { return kTable; }

const OptionRow& option_row(Option option) { return kTable[static_cast<std::size_t>(option)]; }

Result<std::string> parse_pool(std::string_view value) {
  if (is_option_name(value)) return std::string(value);
  return refuse(Option::kPool, value, "not the name of a pool; write --plexrl-pool=NAME");
}

Result<std::vector<std::string>> parse_models(std::string_view value) {
  std::vector<std::string> models;
  for (std::string_view rest = value;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    if (!is_option_name(name))
      return refuse(Option::kModel, value, "write names with commas between, such as base,judge");
    if (std::find(models.begin(), models.end(), name) != models.end())
      return refuse(Option::kModel, value, "a model is named twice; name each once");
    models.emplace_back(name);
    if (models.size() > kMaxModels)
      return refuse(Option::kModel, value, "a job may name at most 8 models");
    if (comma == std::string_view::npos) return models;
    rest.remove_prefix(comma + 1);
  }
}

Result<TrainOption> parse_train(std::string_view value) {
  if (value == "lora" || value == "full" || value == "none") return TrainOption{std::string(value)};
  if (value.substr(0, 5) == "lora:") {
    const auto rank = whole(value.substr(5));
    if (rank && *rank >= 1 && *rank <= kMaxRank) return TrainOption{"lora", *rank};
    return refuse(Option::kTrain, value, "the rank is a number from 1 to 256, such as lora:16");
  }
  return refuse(Option::kTrain, value, "write lora, lora:RANK, full or none");
}

Result<std::uint32_t> parse_share(std::string_view value) {
  for (const std::uint32_t share : {25U, 50U, 100U})
    if (value == std::to_string(share)) return share;
  return refuse(Option::kShare, value, "write 25, 50 or 100 (percent of the device group's time)");
}

Result<std::uint32_t> parse_slowdown(std::string_view value) {
  const auto wrong = [&] {
    return refuse(Option::kSlowdown, value, "write a factor from 1 to 100, such as 1.5");
  };
  const std::size_t point = value.find('.');
  const std::string_view fraction = point == std::string_view::npos ? "0" : value.substr(point + 1);
  const auto units = whole(value.substr(0, point));
  const auto rest = whole(fraction);
  if (!units || !rest || *units > 100 || fraction.size() > 3) return wrong();
  std::uint32_t permille = *rest;
  for (std::size_t digits = fraction.size(); digits < 3; ++digits) permille *= 10;
  permille += *units * 1000;
  if (permille < 1000 || permille > 100000) return wrong();
  return permille;
}

Result<std::vector<std::string>> parse_env(std::string_view value) {
  if (value == "none") return std::vector<std::string>();
  const std::string padded = "," + std::string(value) + ",";
  std::vector<std::string> found;
  std::size_t bytes = 0;  // of a list of these, each once
  for (const std::string_view client : kEnvClients)
    if (padded.find("," + std::string(client) + ",") != std::string::npos) {
      found.emplace_back(client);
      bytes += client.size() + 1;
    }
  if (found.empty() || bytes != value.size() + 1)
    return refuse(Option::kEnv, value, "write tinker, openai, tinker,openai or none");
  return found;
}

Status check_option(Option option, std::string_view value) {
  if (value.size() > kMaxValue) return refuse(option, value, "longer than 1024 characters");
  switch (option) {
    case Option::kPool:
      return parse_pool(value).status();
    case Option::kModel:
      return parse_models(value).status();
    case Option::kTrain:
      return parse_train(value).status();
    case Option::kShare:
      return parse_share(value).status();
    case Option::kSlowdown:
      return parse_slowdown(value).status();
    case Option::kEnv:
      return parse_env(value).status();
  }
  return error(Code::INTERNAL, "unknown option");
}

}  // namespace plexrl::slurm
