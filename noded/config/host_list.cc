// SPDX-License-Identifier: Apache-2.0
#include "config/host_list.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>

namespace plexrl::config {
namespace {

using Names = std::vector<std::string>;

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

Status check_size(std::size_t size, std::string_view part) {
  if (size <= kMaxHosts) return {};
  return error(Code::TOO_LARGE, "host list '%.64s': more than %zu names", std::string(part).c_str(),
               kMaxHosts);
}

Result<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.size() > 9)
    return error(Code::INVALID_ARGUMENT, "host list: '%.64s' is not a number",
                 std::string(text).c_str());
  return value;
}

std::string padded(std::uint64_t value, std::size_t width) {
  std::string digits = std::to_string(value);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

// "3" or "08-11".
Status append_range(std::string_view range, Names* out) {
  const std::size_t dash = range.find('-');
  const std::string_view low_text = range.substr(0, dash);
  PLEXRL_ASSIGN(const std::uint64_t low, number(low_text));
  std::uint64_t high = low;
  if (dash != std::string_view::npos) {
    PLEXRL_ASSIGN(high, number(range.substr(dash + 1)));
  }
  if (high < low)
    return error(Code::INVALID_ARGUMENT, "host list: range '%.64s' runs backwards",
                 std::string(range).c_str());
  PLEXRL_TRY(check_size(out->size() + (high - low) + 1, range));
  for (std::uint64_t i = low; i <= high; ++i) out->push_back(padded(i, low_text.size()));
  return {};
}

// The inside of one pair of brackets.
Result<Names> expand_brackets(std::string_view inside) {
  Names numbers;
  while (true) {
    const std::size_t comma = inside.find(',');
    PLEXRL_TRY(append_range(inside.substr(0, comma), &numbers));
    if (comma == std::string_view::npos) return numbers;
    inside.remove_prefix(comma + 1);
  }
}

Status multiply(const Names& suffixes, std::string_view part, Names* names) {
  PLEXRL_TRY(check_size(names->size() * suffixes.size(), part));
  Names product;
  product.reserve(names->size() * suffixes.size());
  for (const std::string& name : *names)
    for (const std::string& suffix : suffixes) product.push_back(name + suffix);
  *names = std::move(product);
  return {};
}

// One host or one product of ranges; no comma outside brackets.
Result<Names> expand_part(std::string_view part) {
  Names names{""};
  for (std::string_view rest = part; !rest.empty();) {
    if (rest.front() == '[') {
      const std::size_t close = rest.find(']');
      if (close == std::string_view::npos)
        return error(Code::INVALID_ARGUMENT, "host list '%.64s': '[' without ']'",
                     std::string(part).c_str());
      PLEXRL_ASSIGN(const Names numbers, expand_brackets(rest.substr(1, close - 1)));
      PLEXRL_TRY(multiply(numbers, part, &names));
      rest.remove_prefix(close + 1);
      continue;
    }
    const auto* end = std::find_if_not(rest.begin(), rest.end(), is_host_character);
    if (end == rest.begin())
      return error(Code::INVALID_ARGUMENT, "host list '%.64s': unexpected '%c'",
                   std::string(part).c_str(), rest.front());
    PLEXRL_TRY(multiply({std::string(rest.begin(), end)}, part, &names));
    rest.remove_prefix(static_cast<std::size_t>(end - rest.begin()));
  }
  if (names.front().empty()) return error(Code::INVALID_ARGUMENT, "host list: empty name");
  return names;
}

std::size_t outer_comma(std::string_view text) {
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') inside = true;
    if (text[i] == ']') inside = false;
    if (text[i] == ',' && !inside) return i;
  }
  return std::string_view::npos;
}

}  // namespace

Result<std::vector<std::string>> expand_hosts(std::string_view expression) {
  Names all;
  while (true) {
    const std::size_t comma = outer_comma(expression);
    PLEXRL_ASSIGN(const Names part, expand_part(expression.substr(0, comma)));
    PLEXRL_TRY(check_size(all.size() + part.size(), expression));
    all.insert(all.end(), part.begin(), part.end());
    if (comma == std::string_view::npos) return all;
    expression.remove_prefix(comma + 1);
  }
}

}  // namespace plexrl::config
