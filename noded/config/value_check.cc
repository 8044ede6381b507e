// SPDX-License-Identifier: Apache-2.0
#include "config/value_check.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "config/host_list.h"
#include "config/loopback_address.h"

namespace plexrl::config {
namespace {

// Levenshtein distance, one row at a time.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0U);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row.back();
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

Status wrong(std::string_view value, const std::string& expected) {
  return error(Code::INVALID_ARGUMENT, "'%s' is not %s", std::string(value.substr(0, 80)).c_str(),
               expected.c_str());
}

Status check_name(std::string_view value) {
  if (!value.empty() && value.size() <= 64 && value.front() != '-' &&
      std::all_of(value.begin(), value.end(), is_name_character))
    return {};
  return wrong(value, "a name: use at most 64 letters, digits, '.', '_' and '-', not '-' first");
}

Status check_path(std::string_view value) {
  const bool printable = std::none_of(value.begin(), value.end(),
                                      [](char c) { return static_cast<unsigned char>(c) < ' '; });
  const std::string closed = std::string(value) + "/";
  if (printable && value.size() <= 1024 && value.substr(0, 1) == "/" &&
      closed.find("/../") == std::string::npos)
    return {};
  return wrong(value, "an absolute path without '..'");
}

Status check_word(const char* words, std::string_view value) {
  const std::vector<std::string> known = split_words(words);
  if (std::find(known.begin(), known.end(), value) != known.end()) return {};
  std::string list;
  for (const std::string& word : known) list += (list.empty() ? "" : ", ") + word;
  return wrong(value, known.size() == 1 ? list : "one of: " + list);
}

}  // namespace

std::vector<std::string> split_words(std::string_view words) {
  std::vector<std::string> list;
  while (!words.empty()) {
    const std::size_t space = words.find(' ');
    if (space != 0) list.emplace_back(words.substr(0, space));
    words.remove_prefix(space == std::string_view::npos ? words.size() : space + 1);
  }
  return list;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = 3;
  if (word.size() > 64) return best;
  for (const std::string& candidate : candidates) {
    const std::size_t d = distance(word, candidate);
    if (d < best_distance && d < candidate.size()) best_distance = d, best = candidate;
  }
  return best;
}

Status check_text(Form form, const char* words, std::string_view value) {
  switch (form) {
    case Form::kName:
    case Form::kUser:
      return check_name(value);
    case Form::kPath:
      return check_path(value);
    case Form::kHosts:
      return expand_hosts(value).status();
    case Form::kWord:
      return check_word(words, value);
    case Form::kAddress:
      return parse_loopback(value).status();
    case Form::kNumber:
      break;
  }
  return error(Code::INTERNAL, "a number is not a text");
}

Result<std::uint64_t> parse_number(std::string_view text, std::uint64_t min, std::uint64_t max) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failure == std::errc::invalid_argument || end != text.data() + text.size())
    return wrong(text, "a whole number");
  if (failure != std::errc() || value < min || value > max)
    return wrong(text, "between " + std::to_string(min) + " and " + std::to_string(max));
  return value;
}

}  // namespace plexrl::config
