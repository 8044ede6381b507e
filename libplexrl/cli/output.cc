// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "base/check.h"

namespace plexrl::cli {
namespace {

std::string printable(std::string_view cell) {
  std::string text(cell);
  for (char& c : text)
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '?';
  return text;
}

bool numeric(const std::string& cell) {
  const std::size_t first = cell.starts_with('-') ? 1 : 0;
  return cell.size() > first && std::isdigit(static_cast<unsigned char>(cell[first])) != 0;
}

std::string padded(const std::string& cell, std::size_t width, bool right) {
  const std::string space(width - std::min(width, cell.size()), ' ');
  return right ? space + cell : cell + space;
}

}  // namespace

void add_json_option(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "print one JSON document on stdout and nothing else");
}

void print_json(const nlohmann::json& document) {
  print_text(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void print_text(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_progress(std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::add(std::vector<std::string> row) {
  PLEXRL_CHECK(row.size() == rows_.front().size(), "a row needs a cell per column");
  for (std::string& cell : row) cell = cell.empty() ? "-" : printable(cell);
  rows_.push_back(std::move(row));
}

std::string Table::to_text() const {
  const std::size_t columns = rows_.front().size();
  std::vector<std::size_t> width(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r)
    for (std::size_t c = 0; c < columns; ++c) {
      width[c] = std::max(width[c], rows_[r][c].size());
      if (r > 0 && rows_[r][c] != "-" && !numeric(rows_[r][c])) right[c] = false;
    }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c)
      line.append(padded(row[c], width[c], right[c])).append("  ");
    line.erase(line.find_last_not_of(' ') + 1);
    text.append(line).append("\n");
  }
  return text;
}

std::string format_fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return format_fixed(value, unit == 0 ? 0 : 1) + " " + kUnits[unit];
}

std::string format_seconds(double seconds) {
  if (seconds < 60.0) return format_fixed(seconds, 2) + " s";
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
}

}  // namespace plexrl::cli
