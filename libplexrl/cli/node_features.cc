// SPDX-License-Identifier: Apache-2.0
#include "cli/node_features.h"

#include <algorithm>

namespace plexrl::cli {
namespace {

using config::JobKind;
using config::kJobKinds;
using Words = std::vector<std::string>;

Words words_of(std::string_view list) {
  Words words;
  if (list == "(null)") return words;
  while (!list.empty()) {
    const auto end = list.find(',');
    if (end != 0) words.emplace_back(list.substr(0, end));
    list.remove_prefix(end == list.npos ? list.size() : end + 1);
  }
  return words;
}

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool contains(const std::vector<JobKind>& kinds, JobKind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace

std::string_view scontrol_field(std::string_view line, std::string_view name) {
  const std::string key = " " + std::string(name) + "=";
  const auto at = line.find(key);
  if (at == line.npos) return {};
  const auto begin = at + key.size();
  return line.substr(begin, line.find_first_of(" \n", begin) - begin);
}

bool has_pool_features(std::string_view pool, std::string_view node_line) {
  const Words available = words_of(scontrol_field(node_line, "AvailableFeatures"));
  return std::all_of(kJobKinds.begin(), kJobKinds.end(), [&](JobKind kind) {
    return contains(available, config::pool_feature(pool, kind));
  });
}

std::vector<JobKind> welcome_kinds(std::string_view comments) {
  std::vector<JobKind> welcome;
  for (const JobKind kind : kJobKinds)
    if (comments.find(config::job_kind_mark(kind)) == comments.npos) welcome.push_back(kind);
  return welcome;
}

std::optional<std::string> wanted_features(std::string_view pool, std::string_view node_line,
                                           const std::vector<JobKind>& welcome) {
  const Words active = words_of(scontrol_field(node_line, "ActiveFeatures"));
  Words wanted = active;
  for (const JobKind kind : kJobKinds) {
    const std::string feature = config::pool_feature(pool, kind);
    if (!contains(welcome, kind))
      std::erase(wanted, feature);
    else if (!contains(wanted, feature))
      wanted.push_back(feature);
  }
  if (wanted == active) return std::nullopt;
  std::string list;
  for (const std::string& word : wanted) list += (list.empty() ? "" : ",") + word;
  return list;
}

}  // namespace plexrl::cli
