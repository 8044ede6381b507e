// SPDX-License-Identifier: Apache-2.0
// TrainCurve: the records of `plexrl train --log` as series, for `plexrl report --train`. The file
// is whoever's it is: only numbers are taken from it, and what is no record is counted and left
// out.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace plexrl::cli {

// Value by step. A later line about a step stands for an earlier one, as after a resumption.
using Series = std::map<std::uint64_t, double>;

// What is read of a record: its key in the file and in JSON, and what it is.
struct CurveColumn {
  const char* phase;
  const char* name;
  const char* title;
};
inline constexpr CurveColumn kCurveColumns[] = {
    {"grpo", "reward", "reward"},
    {"evaluation", "sampled", "held-out reward, sampled"},
    {"evaluation", "greedy", "held-out reward, greedy"},
    {"grpo", "kl", "KL from the base (nats per token)"},
    {"grpo", "entropy", "entropy (nats per token)"},
    {"grpo", "clip_fraction", "clipped part of the tokens"},
    {"grpo", "logprob_drop", "log-probability drop"},
    {"grpo", "answer_tokens", "tokens per answer"},
    {"grpo", "truncated_fraction", "part of the answers cut at the limit"},
    {"grpo", "no_signal_fraction", "part of the groups without a signal"},
};
inline constexpr std::size_t kRewardColumn = 0;
inline constexpr std::size_t kSampledColumn = 1;
inline constexpr std::size_t kGreedyColumn = 2;

class TrainCurve {
 public:
  // TOO_LARGE above 256 MiB; INVALID_ARGUMENT when there is no step in it.
  [[nodiscard]] static Result<TrainCurve> read(const std::string& path);
  [[nodiscard]] static Result<TrainCurve> parse(std::string_view text);

  // Of kCurveColumns[column]; empty when no record has it.
  [[nodiscard]] const Series& series(std::size_t column) const { return series_.at(column); }
  [[nodiscard]] std::uint64_t ignored_lines() const { return ignored_lines_; }

  // {"steps", "ignored_lines", "series": {PHASE/NAME: [[step, value], ...]}}
  [[nodiscard]] nlohmann::json to_json() const;

 private:
  void add_line(std::string_view line);

  std::map<std::size_t, Series> series_;
  std::uint64_t ignored_lines_ = 0;
};

// At most `bins` points, in order of the steps: means over runs of steps of about equal length,
// each with the middle of its steps.
[[nodiscard]] std::vector<std::pair<double, double>> binned(const Series& series, std::size_t bins);

// A drawing of the rewards and a table of all series, in ASCII.
[[nodiscard]] std::string render_curve(const TrainCurve& curve);
// A page that loads nothing. `title` is anybody's text.
[[nodiscard]] std::string curve_page(const TrainCurve& curve, const std::string& title);

}  // namespace plexrl::cli
