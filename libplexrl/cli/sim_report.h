// SPDX-License-Identifier: Apache-2.0
// SimReport: one simulated run as a page that needs nothing else: a timeline of the first groups,
// utilisation and queue over time, the slowdowns, and the figures.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace plexrl::cli {

// A sum over time in at most 400 bins of equal width, which doubles when the time runs out.
class BinnedSeries {
 public:
  // Adds `value` per second between two times in seconds.
  void add(double from, double to, double value);
  // Averages, up to the last bin that was reached.
  [[nodiscard]] nlohmann::json averages() const;
  [[nodiscard]] double width_s() const { return width_; }

 private:
  static constexpr std::size_t kBins = 400;
  double width_ = 1;
  std::size_t used_ = 0;
  std::vector<double> sums_ = std::vector<double>(kBins);
};

class SimReport final : public sim::RunObserver {
 public:
  void ran(std::uint64_t group, TenantId tenant, core::OpKind kind, TimePoint from,
           TimePoint to) override;
  void group_opened(std::uint64_t group, const sim::RoleSpec& role, TimePoint at) override;
  void group_closed(std::uint64_t group, TimePoint at) override;
  void queue_is(std::size_t jobs, TimePoint at) override;
  void ended(const sim::JobOutcome& job) override;

  // `document` is study()'s.
  [[nodiscard]] std::string html(const nlohmann::ordered_json& document) const;

 private:
  struct Group {
    std::uint32_t gpus = 0;
    TimePoint since{};
    std::size_t row = 0;  // of the timeline; kNoRow
  };
  [[nodiscard]] nlohmann::json data() const;

  std::map<std::uint64_t, Group> groups_;           // live ones
  nlohmann::json rows_ = nlohmann::json::array();   // labels
  nlohmann::json spans_ = nlohmann::json::array();  // [row, job, trains, from, to]
  BinnedSeries busy_;
  BinnedSeries held_;
  BinnedSeries queue_;
  std::size_t queued_ = 0;
  TimePoint queue_since_{};
  TimePoint end_{};
  std::map<int, std::uint64_t> slowdowns_;  // in steps of 5 %
};

}  // namespace plexrl::cli
