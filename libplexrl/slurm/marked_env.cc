// SPDX-License-Identifier: Apache-2.0
#include "slurm/marked_env.h"

#include <algorithm>

namespace plexrl::slurm {
namespace {

constexpr std::string_view kKnown[] = {"PLEXRL_SOCKET",   "PLEXRL_TOKEN",    "SLURM_GRES",
                                       "PLEXRL_BASE_URL", "TINKER_BASE_URL", "TINKER_API_KEY",
                                       "OPENAI_BASE_URL", "OPENAI_API_KEY"};

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

std::string_view value_of(std::string_view entry) {
  const std::size_t equals = entry.find('=');
  return equals == std::string_view::npos ? std::string_view() : entry.substr(equals + 1);
}

std::string_view find(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment)
    if (name_of(entry) == name) return entry;
  return {};
}

template <class Predicate>
void remove_if(std::vector<std::string>* environment, Predicate predicate) {
  environment->erase(std::remove_if(environment->begin(), environment->end(), predicate),
                     environment->end());
}

}  // namespace

std::vector<std::string> marked_names(std::string_view marker_value) {
  std::vector<std::string> names;
  for (const std::string_view known : kKnown) {
    const std::string padded = "," + std::string(marker_value) + ",";
    if (padded.find("," + std::string(known) + ",") != std::string::npos) names.emplace_back(known);
  }
  return names;
}

void strip_marked(std::vector<std::string>* environment) {
  const auto marked = marked_names(value_of(find(*environment, kMarker)));
  remove_if(environment, [&](const std::string& entry) {
    const std::string_view name = name_of(entry);
    if (name == kMarker || starts_with(name, kOptionVariable)) return true;
    if (std::find(marked.begin(), marked.end(), name) == marked.end()) return false;
    return name != "SLURM_GRES" || value_of(entry) == "none";
  });
}

void strip_gpu_variables(std::vector<std::string>* environment) {
  remove_if(environment, [](const std::string& entry) { return starts_with(entry, "SLURM_GPUS"); });
}

void add_step_gres(std::vector<std::string>* environment) {
  if (!find(*environment, "SLURM_GRES").empty()) return;
  environment->emplace_back("SLURM_GRES=none");
  environment->emplace_back(std::string(kMarker) + "=SLURM_GRES");
}

}  // namespace plexrl::slurm
