// SPDX-License-Identifier: Apache-2.0
#include "sim/journal_trace.h"

#include <algorithm>
#include <map>

namespace plexrl::sim {
namespace {

struct SeenOp {
  ModelId model;
  core::OpKind kind = core::OpKind::kNone;
  std::uint64_t kv_bytes = 0;
  TimePoint arrived{};
  TimePoint since{};  // runs since then
  Duration ran{};
};

struct DoneOp {
  SeenOp op;
  TimePoint ended{};
};

// Follows ops from arrival to end.
class Recorder {
 public:
  void see(const core::JournalRecord& record, const core::Actions& actions) {
    now_ = record.at;
    std::visit([this](const auto& event) { on(event); }, record.event);
    for (const core::Action& action : actions.list)
      if (const auto* start = std::get_if<core::StartOp>(&action)) begin(start->op);
  }
  [[nodiscard]] std::vector<TraceJob> jobs(const std::string& kind);

 private:
  template <class Event>
  void on(const Event&) {}
  void on(const core::ModelAdded& event) {
    const auto base = bytes_.find(event.base);
    bytes_[event.model] = event.device_bytes + (base == bytes_.end() ? 0 : base->second);
  }
  void on(const core::OpArrived& event) {
    open_[event.op] = {event.model, event.kind, event.device_bytes, now_, {}, {}};
  }
  void on(const core::OpCancelled& event) { open_.erase(event.op); }
  void on(const core::OpYielded& event) { stop(event.op); }
  void on(const core::OpFinished& event) {
    stop(event.op);
    const auto op = open_.find(event.op);
    if (op == open_.end()) return;
    done_[op->second.model].push_back({op->second, now_});
    open_.erase(op);
  }
  void begin(OpId id) {
    if (const auto op = open_.find(id); op != open_.end()) op->second.since = now_;
  }
  void stop(OpId id) {
    if (const auto op = open_.find(id); op != open_.end())
      op->second.ran.ns += (now_ - op->second.since).ns;
  }

  TimePoint now_{};
  std::map<ModelId, std::uint64_t> bytes_;
  std::map<OpId, SeenOp> open_;
  std::map<ModelId, std::vector<DoneOp>> done_;
};

// In the order of arrival; each after the op that ended last before it arrived.
std::vector<ScriptOp> script_of(std::vector<DoneOp> done, TimePoint start) {
  std::stable_sort(done.begin(), done.end(),
                   [](const DoneOp& a, const DoneOp& b) { return a.op.arrived < b.op.arrived; });
  std::vector<std::uint32_t> by_end(done.size());
  for (std::uint32_t i = 0; i < by_end.size(); ++i) by_end[i] = i;
  std::stable_sort(by_end.begin(), by_end.end(), [&done](std::uint32_t a, std::uint32_t b) {
    return done[a].ended < done[b].ended;
  });
  std::vector<ScriptOp> script;
  std::size_t ended = 0;  // of by_end, before the op arrived
  for (const DoneOp& each : done) {
    while (ended < by_end.size() && by_end[ended] < script.size() &&
           done[by_end[ended]].ended <= each.op.arrived)
      ++ended;
    ScriptOp op{each.op.kind, 0, each.op.arrived - start, each.op.ran, each.op.kv_bytes};
    if (ended > 0) {
      op.after = by_end[ended - 1] + 1;
      op.think = each.op.arrived - done[by_end[ended - 1]].ended;
    }
    script.push_back(op);
  }
  return script;
}

std::vector<TraceJob> Recorder::jobs(const std::string& kind) {
  std::vector<std::pair<TimePoint, ModelId>> order;
  for (const auto& [model, done] : done_) {
    TimePoint first = done.front().op.arrived;
    for (const DoneOp& each : done) first = std::min(first, each.op.arrived);
    order.emplace_back(first, model);
  }
  std::sort(order.begin(), order.end());
  std::vector<TraceJob> jobs;
  for (const auto& [first, model] : order) {
    TraceJob& job = jobs.emplace_back();
    job.arrival_s = seconds_of(first - order.front().first);
    job.kind = kind;
    job.model_bytes = bytes_[model];
    job.ops = script_of(std::move(done_[model]), first);
  }
  return jobs;
}

}  // namespace

Result<ReplaySummary> replay_journal(std::string_view bytes) {
  PLEXRL_ASSIGN(const core::JournalSegment segment, core::decode_segment(bytes));
  PLEXRL_ASSIGN(const std::vector<core::Actions> actions, core::replay(segment));
  ReplaySummary summary;
  summary.records = segment.records.size();
  summary.torn_bytes = segment.torn_bytes;
  summary.policy = segment.header.config.policy;
  summary.device_bytes = segment.header.config.device_capacity_bytes;
  summary.quantum = segment.header.config.quantum;
  for (const core::Actions& each : actions) summary.actions += each.list.size();
  if (!segment.records.empty())
    summary.span = segment.records.back().at - segment.records.front().at;
  return summary;
}

Result<std::vector<TraceJob>> journal_jobs(std::string_view bytes, const std::string& kind) {
  PLEXRL_ASSIGN(const core::JournalSegment segment, core::decode_segment(bytes));
  PLEXRL_ASSIGN(const std::vector<core::Actions> actions, core::replay(segment));
  Recorder recorder;
  for (std::size_t i = 0; i < actions.size(); ++i) recorder.see(segment.records[i], actions[i]);
  return recorder.jobs(kind);
}

}  // namespace plexrl::sim
