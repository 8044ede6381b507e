// SPDX-License-Identifier: Apache-2.0
#include "slurm/gres_list.h"

#include <algorithm>

namespace plexrl::slurm {
namespace {

bool is_gpu(const std::string& name) { return name == "gpu" || name == "shard" || name == "mps"; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::vector<std::string> gres_items(std::string_view list) {
  std::vector<std::string> items;
  while (!list.empty()) {
    const std::size_t end = list.find_first_of(",;");
    if (end != 0) items.emplace_back(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return items;
}

std::string gres_name(std::string_view item) {
  std::string text(item);
  std::transform(text.begin(), text.end(), text.begin(), lower);
  text.erase(0, text.find_first_not_of(" \t"));
  if (text.rfind("gres:", 0) == 0 || text.rfind("gres/", 0) == 0) text.erase(0, 5);
  return text.substr(0, text.find_first_of(":=/ \t"));
}

bool names_plexrl(std::string_view list) {
  const auto items = gres_items(list);
  return std::any_of(items.begin(), items.end(), [](const std::string& item) {
    return gres_name(item).rfind("plexrl", 0) == 0;
  });
}

bool names_gpu(std::string_view list) {
  const auto items = gres_items(list);
  return std::any_of(items.begin(), items.end(),
                     [](const std::string& item) { return is_gpu(gres_name(item)); });
}

std::string without_gpu(std::string_view list) {
  std::string kept;
  for (const std::string& item : gres_items(list))
    if (!is_gpu(gres_name(item))) kept += (kept.empty() ? "" : ",") + item;
  return kept;
}

}  // namespace plexrl::slurm
