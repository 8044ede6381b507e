// SPDX-License-Identifier: Apache-2.0
// What commands print: one JSON document, or text with aligned tables. Main thread only.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace plexrl::cli {

void add_json_option(CLI::App& command, bool& json);

void print_json(const nlohmann::json& document);
void print_text(std::string_view text);
// A line on stderr, for progress.
void print_progress(std::string_view line);

// Columns as wide as their widest cell. Numbers are set to the right, all else to the left; control
// characters in a cell are replaced by '?', so that nobody's text can write to the reader's
// terminal.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void add(std::vector<std::string> row);  // as many cells as the header
  [[nodiscard]] std::string to_text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

[[nodiscard]] std::string format_bytes(std::uint64_t bytes);  // "12.5 MiB"
[[nodiscard]] std::string format_seconds(double seconds);     // "1.25 s", "3 min 20 s"
[[nodiscard]] std::string format_fixed(double value, int decimals);

}  // namespace plexrl::cli
