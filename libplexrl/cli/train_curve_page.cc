// SPDX-License-Identifier: Apache-2.0
// The page of TrainCurve: drawings in SVG, made here, so that the page needs no script.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <vector>

#include "cli/train_curve.h"

namespace plexrl::cli {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr std::size_t kPoints = 800;  // of a line; a screen shows no more
constexpr double kWidth = 720, kHeight = 200, kLeft = 64, kRight = 12, kTop = 12, kBottom = 24;

constexpr const char* kHead = R"PAGE(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body{font:14px/1.45 system-ui,sans-serif;color:#1d2733;background:#fff;margin:24px auto;max-width:760px;padding:0 16px}
h1{font-size:22px;margin:0 0 2px;overflow-wrap:anywhere}h2{font-size:16px;margin:24px 0 6px}p{margin:4px 0 10px;color:#4d5b69}
svg{display:block;width:100%;height:auto;background:#f7f9fb;border:1px solid #e3e8ed}
text{font:11px system-ui,sans-serif;fill:#4d5b69}polyline{fill:none;stroke-width:1.5}
</style>
)PAGE";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += '?';
    else
      result += c;
  }
  return result;
}

std::string number(double value, const char* format = "%.4g") {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

struct Axes {
  double first = 0, last = 0, low = 0, high = 0;

  explicit Axes(const std::vector<Points>& lines) {
    bool any = false;
    for (const Points& line : lines)
      for (const auto& [step, value] : line) {
        first = any ? std::min(first, step) : step;
        last = any ? std::max(last, step) : step;
        low = any ? std::min(low, value) : value;
        high = any ? std::max(high, value) : value;
        any = true;
      }
  }
  [[nodiscard]] double x(double step) const {
    const double part = last > first ? (step - first) / (last - first) : 0.5;
    return kLeft + part * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double value) const {
    const double part = high > low ? (value - low) / (high - low) : 0.5;
    return kHeight - kBottom - part * (kHeight - kTop - kBottom);
  }
};

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + number(x, "%.1f") + "\" y=\"" + number(y, "%.1f") + "\" text-anchor=\"" +
         anchor + "\">" + text + "</text>\n";
}

std::string polyline(const Points& points, const Axes& axes, const char* colour) {
  const std::string paint = std::string("\" stroke=\"") + colour + "\"/>\n";
  std::string text = "<polyline points=\"";
  for (const auto& [step, value] : points)
    text += number(axes.x(step), "%.1f") + "," + number(axes.y(value), "%.1f") + " ";
  text += paint;
  // A line of one point shows nothing.
  if (points.size() == 1)
    text += "<circle r=\"3\" cx=\"" + number(axes.x(points[0].first), "%.1f") + "\" cy=\"" +
            number(axes.y(points[0].second), "%.1f") + "\" fill=\"" + colour + "\"/>\n";
  return text;
}

std::string plot(const std::string& title, const std::vector<Points>& lines,
                 const std::vector<const char*>& colours) {
  const Axes axes(lines);
  std::string text = "<h2>" + title + "</h2>\n<svg viewBox=\"0 0 " + number(kWidth) + " " +
                     number(kHeight) + "\">\n";
  text += label(kLeft - 6, axes.y(axes.high) + 4, "end", number(axes.high));
  if (axes.high > axes.low) text += label(kLeft - 6, axes.y(axes.low) + 4, "end", number(axes.low));
  text += label(kLeft, kHeight - 8, "start", "step " + number(axes.first, "%.0f"));
  text += label(kWidth - kRight, kHeight - 8, "end", number(axes.last, "%.0f"));
  for (std::size_t i = 0; i < lines.size(); ++i) text += polyline(lines[i], axes, colours[i]);
  return text + "</svg>\n";
}

}  // namespace

std::string curve_page(const TrainCurve& curve, const std::string& title) {
  std::string page = kHead;
  page += "<title>" + escaped(title) + "</title></head><body>\n<h1>" + escaped(title) + "</h1>\n";
  page += "<p>" + std::to_string(curve.series(kRewardColumn).size()) + " steps</p>\n";
  if (curve.ignored_lines() > 0)
    page += "<p>" + std::to_string(curve.ignored_lines()) + " lines are no records</p>\n";
  page += plot(
      "reward: training (blue), held out sampled (orange) and greedy (green)",
      {binned(curve.series(kRewardColumn), kPoints), binned(curve.series(kSampledColumn), kPoints),
       binned(curve.series(kGreedyColumn), kPoints)},
      {"#1f6fd0", "#d9822b", "#2a9d5c"});
  for (std::size_t column = kGreedyColumn + 1; column < std::size(kCurveColumns); ++column)
    if (!curve.series(column).empty())
      page +=
          plot(kCurveColumns[column].title, {binned(curve.series(column), kPoints)}, {"#1f6fd0"});
  return page + "</body></html>\n";
}

}  // namespace plexrl::cli
