// SPDX-License-Identifier: Apache-2.0
#include "cli/train_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <vector>

#include "cli/output.h"
#include "cli/train/file_io.h"

namespace plexrl::cli {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
// A record of all fields has some 700 bytes.
constexpr std::size_t kMaxLineBytes = std::size_t{64} << 10;
constexpr std::uint64_t kMaxStep = 1'000'000;  // of --steps
// What a run records is far below; a difference of such numbers is finite and a table stays narrow.
constexpr double kMaxValue = 1e12;
constexpr std::size_t kColumns = std::size(kCurveColumns);
constexpr std::size_t kWidth = 64;   // of the drawing, characters
constexpr std::size_t kHeight = 12;  // lines
// The mean of so many steps at each end stands for the end, as in the summary of a run; an
// evaluation is a mean already.
constexpr std::size_t kEndSteps = 3;

double mean(Series::const_iterator from, Series::const_iterator to) {
  double sum = 0.0, count = 0.0;
  for (; from != to; ++from, count += 1.0) sum += from->second;
  return count > 0.0 ? sum / count : 0.0;
}

double mean_of_first(const Series& series, std::size_t count) {
  count = std::min(count, series.size());
  return mean(series.begin(), std::next(series.begin(), static_cast<std::ptrdiff_t>(count)));
}
double mean_of_last(const Series& series, std::size_t count) {
  count = std::min(count, series.size());
  return mean(std::prev(series.end(), static_cast<std::ptrdiff_t>(count)), series.end());
}

struct Range {
  double low = 0.0;
  double high = 0.0;
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // 0 at `low`, 1 at `high`.
  [[nodiscard]] double at(double value) const {
    return high > low ? (value - low) / (high - low) : 0.5;
  }
};

Range range_of(double first, const Points& points, bool of_steps) {
  Range range{first, first};
  for (const auto& [step, value] : points) range.include(of_steps ? step : value);
  return range;
}

// ---- terminal ----

struct Canvas {
  std::array<std::string, kHeight> lines;
  Range steps, values;

  Canvas() { lines.fill(std::string(kWidth, ' ')); }
  void draw(const Points& points, char mark) {
    for (const auto& [step, value] : points) {
      const auto x = static_cast<std::size_t>(std::lround(steps.at(step) * (kWidth - 1)));
      const auto y = static_cast<std::size_t>(std::lround(values.at(value) * (kHeight - 1)));
      lines[kHeight - 1 - y][x] = mark;
    }
  }
};

std::string drawing(const TrainCurve& curve) {
  const Points rewards = binned(curve.series(kRewardColumn), kWidth);
  const Points held_out = binned(curve.series(kGreedyColumn), kWidth);
  Canvas canvas;
  Points all = rewards;
  all.insert(all.end(), held_out.begin(), held_out.end());
  canvas.steps = range_of(all.front().first, all, true);
  canvas.values = range_of(all.front().second, all, false);
  canvas.draw(rewards, '*');
  canvas.draw(held_out, 'o');
  const std::string high = format_fixed(canvas.values.high, 3);
  const std::string low = format_fixed(canvas.values.low, 3);
  const std::size_t margin = std::max(high.size(), low.size());
  std::string text = "reward (*)" + std::string(held_out.empty() ? "" : ", held out greedy (o)");
  for (std::size_t line = 0; line < kHeight; ++line) {
    const std::string label = line == 0 ? high : line == kHeight - 1 ? low : "";
    std::string drawn = canvas.lines[line];
    drawn.erase(drawn.find_last_not_of(' ') + 1);
    text += "\n" + std::string(margin - label.size(), ' ') + label + " |" + drawn;
  }
  const std::string first = format_fixed(canvas.steps.low, 0);
  const std::string last = format_fixed(canvas.steps.high, 0);
  const std::string edge(margin + 1, ' ');
  const std::size_t gap = kWidth - std::min(kWidth - 1, first.size() + last.size());
  return text + "\n" + edge + "+" + std::string(kWidth, '-') + "\n" + edge + " " + first +
         std::string(gap, ' ') + last + "\n";
}

std::string table(const TrainCurve& curve) {
  Table table({"SERIES", "STEPS", "FIRST", "LAST", "LEAST", "LARGEST"});
  for (std::size_t column = 0; column < kColumns; ++column) {
    const Series& series = curve.series(column);
    if (series.empty()) continue;
    const auto [least, largest] =
        std::minmax_element(series.begin(), series.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    const bool step = std::string_view(kCurveColumns[column].phase) == "grpo";
    const std::size_t end = step ? kEndSteps : 1;
    table.add({kCurveColumns[column].title, std::to_string(series.size()),
               format_fixed(mean_of_first(series, end), 4),
               format_fixed(mean_of_last(series, end), 4), format_fixed(least->second, 4),
               format_fixed(largest->second, 4)});
  }
  return table.to_text();
}

}  // namespace

Result<TrainCurve> TrainCurve::read(const std::string& path) {
  PLEXRL_ASSIGN(const std::string text, read_file(path, kMaxFileBytes));
  auto curve = parse(text);
  if (!curve.has_value()) return curve.error().within("'" + path + "'");
  return curve;
}

Result<TrainCurve> TrainCurve::parse(std::string_view text) {
  TrainCurve curve;
  for (std::size_t column = 0; column < kColumns; ++column) curve.series_[column];
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    curve.add_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (curve.series(kRewardColumn).empty())
    return error(Code::INVALID_ARGUMENT,
                 "no policy gradient step in it (%llu lines are no records); give the file of "
                 "`plexrl train --log`",
                 static_cast<unsigned long long>(curve.ignored_lines_));
  return curve;
}

void TrainCurve::add_line(std::string_view line) {
  if (line.find_first_not_of(" \t\r") == line.npos) return;
  const auto record = line.size() > kMaxLineBytes
                          ? nlohmann::json(nlohmann::json::value_t::discarded)
                          : nlohmann::json::parse(line, nullptr, false);
  const auto phase = record.is_object() ? record.value("phase", nlohmann::json()) : record;
  const auto step = record.is_object() ? record.value("step", nlohmann::json()) : record;
  if (!phase.is_string() || !step.is_number_unsigned() || step.get<std::uint64_t>() > kMaxStep) {
    ++ignored_lines_;
    return;
  }
  for (std::size_t column = 0; column < kColumns; ++column) {
    const CurveColumn& wanted = kCurveColumns[column];
    const auto found = record.find(wanted.name);
    if (phase != wanted.phase || found == record.end() || !found->is_number()) continue;
    const auto value = found->get<double>();
    if (std::abs(value) <= kMaxValue) series_[column][step.get<std::uint64_t>()] = value;
  }
}

nlohmann::json TrainCurve::to_json() const {
  nlohmann::json document = {{"steps", series(kRewardColumn).size()},
                             {"ignored_lines", ignored_lines_},
                             {"series", nlohmann::json::object()}};
  for (std::size_t column = 0; column < kColumns; ++column) {
    if (series(column).empty()) continue;
    nlohmann::json points = nlohmann::json::array();
    for (const auto& [step, value] : series(column)) points.push_back({step, value});
    const CurveColumn& name = kCurveColumns[column];
    document["series"][std::string(name.phase) + "/" + name.name] = std::move(points);
  }
  return document;
}

Points binned(const Series& series, std::size_t bins) {
  Points points;
  const std::size_t count = std::min(bins, series.size());
  auto from = series.begin();
  for (std::size_t bin = 0, done = 0; bin < count; ++bin) {
    const std::size_t end = (bin + 1) * series.size() / count;
    const auto to = std::next(from, static_cast<std::ptrdiff_t>(end - done));
    const auto first = static_cast<double>(from->first);
    const auto last = static_cast<double>(std::prev(to)->first);
    points.emplace_back((first + last) / 2, mean(from, to));
    from = to;
    done = end;
  }
  return points;
}

std::string render_curve(const TrainCurve& curve) {
  std::string text = drawing(curve) + "\n" + table(curve);
  if (curve.ignored_lines() > 0)
    text += "\n" + std::to_string(curve.ignored_lines()) + " lines are no records\n";
  return text;
}

}  // namespace plexrl::cli
