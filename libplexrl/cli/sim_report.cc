// SPDX-License-Identifier: Apache-2.0
#include "cli/sim_report.h"

#include <algorithm>
#include <cmath>

#include "cli/sim_report_page.h"

namespace plexrl::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kRows = 40;     // groups of the timeline
constexpr std::size_t kSpans = 8000;  // ops of it; some 300 KB of page
constexpr std::size_t kNoRow = ~std::size_t{0};

double seconds(TimePoint at) { return static_cast<double>(at.ns) * 1e-9; }
double tenths(double value) { return std::round(value * 10) / 10; }

void replace(std::string* text, const std::string& what, const std::string& by) {
  for (std::size_t at = text->find(what); at != std::string::npos;
       at = text->find(what, at + by.size()))
    text->replace(at, what.size(), by);
}

}  // namespace

void BinnedSeries::add(double from, double to, double value) {
  while (to >= width_ * kBins) {
    for (std::size_t i = 0; i < kBins; ++i)
      sums_[i] = 2 * i + 1 < kBins ? sums_[2 * i] + sums_[2 * i + 1] : 0;
    width_ *= 2;
  }
  for (auto bin = static_cast<std::size_t>(from / width_); from < to; ++bin) {
    const double end = std::min(to, static_cast<double>(bin + 1) * width_);
    sums_[bin] += (end - from) * value;
    used_ = std::max(used_, bin + 1);
    from = end;
  }
  used_ = std::max(used_, static_cast<std::size_t>(to / width_) + 1);
}

Json BinnedSeries::averages() const {
  Json list = Json::array();
  const std::size_t used = std::min(used_, kBins);
  for (std::size_t i = 0; i < used; ++i) list.push_back(std::round(sums_[i] / width_ * 100) / 100);
  return list;
}

void SimReport::group_opened(std::uint64_t group, const sim::RoleSpec& role, TimePoint at) {
  Group& opened = groups_[group];
  opened = {role.gpus, at, kNoRow};
  if (rows_.size() >= kRows || spans_.size() >= kSpans) return;
  opened.row = rows_.size();
  const char* kind = role.kind == sim::RoleKind::kRollout ? "rollout"
                     : role.kind == sim::RoleKind::kTrain ? "train"
                                                          : "both";
  rows_.push_back(std::to_string(group) + " " + kind + ", " + std::to_string(role.gpus) + " GPUs");
}

void SimReport::group_closed(std::uint64_t group, TimePoint at) {
  const auto closed = groups_.find(group);
  held_.add(seconds(closed->second.since), seconds(at), closed->second.gpus);
  groups_.erase(closed);
}

void SimReport::ran(std::uint64_t group, TenantId tenant, core::OpKind kind, TimePoint from,
                    TimePoint to) {
  const Group& where = groups_.at(group);
  busy_.add(seconds(from), seconds(to), where.gpus);
  if (where.row == kNoRow || spans_.size() >= kSpans || from == to) return;
  const bool trains = kind != core::OpKind::kGenerate && kind != core::OpKind::kLease;
  const double begin = tenths(seconds(from)), end = tenths(seconds(to));
  // Ops of one job that follow each other are one bar.
  if (!spans_.empty()) {
    Json& last = spans_.back();
    if (last[0] == where.row && last[1] == tenant.value && last[2] == int{trains} &&
        begin - last[4].get<double>() < 0.2) {
      last[4] = end;
      return;
    }
  }
  spans_.push_back({where.row, tenant.value, int{trains}, begin, end});
}

void SimReport::queue_is(std::size_t jobs, TimePoint at) {
  queue_.add(seconds(queue_since_), seconds(at), static_cast<double>(queued_));
  queued_ = jobs;
  queue_since_ = at;
}

void SimReport::ended(const sim::JobOutcome& job) {
  end_ = std::max(end_, job.end);
  ++slowdowns_[static_cast<int>(std::floor((job.slowdown() - 1) / 0.05 + 1e-9))];
}

Json SimReport::data() const {
  Json data;
  data["end"] = seconds(end_);
  data["rows"] = rows_;
  data["spans"] = spans_;
  data["busy"] = {{"width", busy_.width_s()}, {"values", busy_.averages()}};
  data["held"] = {{"width", held_.width_s()}, {"values", held_.averages()}};
  data["queue"] = {{"width", queue_.width_s()}, {"values", queue_.averages()}};
  data["slowdowns"] = Json::array();
  for (const auto& [bin, count] : slowdowns_) data["slowdowns"].push_back({1 + 0.05 * bin, count});
  return data;
}

std::string SimReport::html(const nlohmann::ordered_json& document) const {
  std::string figures = document.dump();
  std::string series = data().dump();
  // A text of the workload must not end the script.
  for (std::string* text : {&figures, &series}) replace(text, "</", "<\\/");
  std::string page(kSimReportPage);
  replace(&page, "@SERIES@", series);
  replace(&page, "@FIGURES@", figures);
  return page;
}

}  // namespace plexrl::cli
