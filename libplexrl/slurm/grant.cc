// SPDX-License-Identifier: Apache-2.0
#include "slurm/grant.h"

#include <algorithm>
#include <charconv>

#include "slurm/names.h"
#include "slurm/options.h"

namespace plexrl::slurm {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxModels = 8;
constexpr std::uint64_t kMaxMib = 1ULL << 30;

Status malformed(const char* what) { return error(Code::INVALID_ARGUMENT, "grant: %s", what); }

// Takes "name=value:" (or "name=value" at the end) off the front.
Result<std::string_view> take(std::string_view* text, std::string_view name) {
  const std::size_t colon = text->find(':');
  std::string_view field = text->substr(0, colon);
  text->remove_prefix(colon == std::string_view::npos ? text->size() : colon + 1);
  if (field.substr(0, name.size()) != name || field.substr(name.size(), 1) != "=")
    return error(Code::INVALID_ARGUMENT, "grant: field '%s' is missing", std::string(name).c_str());
  return field.substr(name.size() + 1);
}

Status take_number(std::string_view* text, std::string_view name, std::uint64_t max,
                   std::uint64_t* out) {
  PLEXRL_ASSIGN(const std::string_view value, take(text, name));
  const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), *out);
  if (failure != std::errc() || end != value.data() + value.size() || *out > max)
    return error(Code::INVALID_ARGUMENT, "grant: field '%s' is not a number up to %llu",
                 std::string(name).c_str(), static_cast<unsigned long long>(max));
  return {};
}

Status take_list(std::string_view text, std::size_t max, std::vector<std::string>* list) {
  while (true) {
    const std::size_t comma = text.find(',');
    list->emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
    if (list->size() == max) return malformed("a list is too long");
  }
}

// Known ones, in their order, each once: what parse_env makes of any list of them.
bool are_clients(const std::vector<std::string>& env) {
  if (env.empty()) return true;
  const auto parsed = parse_env(joined(env, ","));
  return parsed && *parsed == env;
}

Status check_values(const Grant& grant) {
  if (!is_name(grant.pool)) return malformed("the pool is not a name");
  if (grant.share_percent == 0) return malformed("the share is 0");
  if (grant.train_mode != "lora" && grant.train_mode != "full" && grant.train_mode != "none")
    return malformed("the mode is none of lora, full, none");
  if ((grant.train_mode == "lora") != (grant.lora_rank != 0))
    return malformed("mode and rank do not fit");
  if (grant.slowdown_permille != 0 && grant.slowdown_permille < 1000)
    return malformed("the slowdown is below 1000");
  if (!are_clients(grant.env)) return malformed("the env is no list of clients");
  if (!grant.name.empty() && !is_name(grant.name)) return malformed("the job's name is not a name");
  for (const std::string& model : grant.models) {
    if (!is_name(model)) return malformed("a model is not a name");
    if (std::count(grant.models.begin(), grant.models.end(), model) > 1)
      return malformed("a model is listed twice");
  }
  return {};
}

}  // namespace

std::string format_grant(const Grant& grant) {
  std::string text = "v1:pool=" + grant.pool + ":share=" + std::to_string(grant.share_percent) +
                     ":mem=" + std::to_string(grant.host_memory_mib) + ":mode=" + grant.train_mode +
                     ":rank=" + std::to_string(grant.lora_rank) +
                     ":slowdown=" + std::to_string(grant.slowdown_permille) +
                     ":models=" + joined(grant.models, ",");
  if (!grant.env.empty()) text += ":env=" + joined(grant.env, ",");
  if (!grant.name.empty()) text += ":name=" + grant.name;
  return text;
}

Result<Grant> parse_grant(std::string_view text) {
  if (text.size() > kMaxText) return malformed("longer than 4096 bytes");
  std::string_view rest = text;
  if (rest.substr(0, 3) != "v1:") return malformed("not a version 1 grant");
  rest.remove_prefix(3);
  Grant grant;
  std::uint64_t share = 0, rank = 0, slowdown = 0;
  PLEXRL_ASSIGN(grant.pool, take(&rest, "pool"));
  PLEXRL_TRY(take_number(&rest, "share", 100, &share));
  PLEXRL_TRY(take_number(&rest, "mem", kMaxMib, &grant.host_memory_mib));
  PLEXRL_ASSIGN(grant.train_mode, take(&rest, "mode"));
  PLEXRL_TRY(take_number(&rest, "rank", 256, &rank));
  PLEXRL_TRY(take_number(&rest, "slowdown", 1000000, &slowdown));
  PLEXRL_ASSIGN(const std::string_view models, take(&rest, "models"));
  PLEXRL_TRY(take_list(models, kMaxModels, &grant.models));
  if (rest.starts_with("env=")) {
    PLEXRL_ASSIGN(const std::string_view env, take(&rest, "env"));
    PLEXRL_TRY(take_list(env, kEnvClients.size(), &grant.env));
  }
  if (!rest.empty()) {
    PLEXRL_ASSIGN(grant.name, take(&rest, "name"));
  }
  grant.share_percent = static_cast<std::uint32_t>(share);
  grant.lora_rank = static_cast<std::uint32_t>(rank);
  grant.slowdown_permille = static_cast<std::uint32_t>(slowdown);
  PLEXRL_TRY(check_values(grant));
  // Leading zeros, text after the models and the like: format_grant would not write them.
  if (format_grant(grant) != text) return malformed("not in canonical form");
  return grant;
}

}  // namespace plexrl::slurm
