// SPDX-License-Identifier: Apache-2.0
#include "sim/trace.h"

#include <algorithm>
#include <cmath>
#include <istream>
#include <nlohmann/json.hpp>

namespace plexrl::sim {
namespace {

using core::OpKind;
using Json = nlohmann::json;

constexpr int kMaxDepth = 3;  // a job, its ops, one op
constexpr double kMaxSeconds = 1e9;
constexpr double kMaxBytes = 1e15;

struct OpName {
  OpKind kind;
  std::string_view name;
};
constexpr OpName kOpNames[] = {
    {OpKind::kGenerate, "generate"},
    {OpKind::kLogprobs, "logprobs"},
    {OpKind::kForwardBackward, "forward_backward"},
    {OpKind::kOptimStep, "optim_step"},
    {OpKind::kSave, "save"},
    {OpKind::kLoad, "load"},
    {OpKind::kLease, "lease"},
};

Status wrong(const char* what) { return Status(Code::INVALID_ARGUMENT, what); }

Status read_number(const Json& value, double max, double* out) {
  if (!value.is_number()) return wrong("expected a number");
  const auto number = value.get<double>();
  if (!std::isfinite(number) || number < 0 || number > max)
    return wrong("a number is negative or too large");
  *out = number;
  return {};
}

Status read_field(const Json& line, const char* key, double max, double* out) {
  const auto found = line.find(key);
  if (found == line.end()) return {};
  return read_number(*found, max, out).within(key);
}

// [kind, after, think_s, device_s, kv_bytes]
Status read_op(const Json& value, std::size_t number, ScriptOp* out) {
  if (!value.is_array() || value.size() != 5 || !value[0].is_string())
    return wrong("an op is [kind, after, think_s, device_s, kv_bytes]");
  const std::string& name = value[0].get_ref<const std::string&>();
  for (const OpName& row : kOpNames)
    if (row.name == name) out->kind = row.kind;
  if (out->kind == OpKind::kNone) return wrong("an op of an unknown kind");
  double after = 0, think = 0, device = 0, kv = 0;
  PLEXRL_TRY(read_number(value[1], static_cast<double>(number - 1), &after).within("after"));
  PLEXRL_TRY(read_number(value[2], kMaxSeconds, &think).within("think_s"));
  PLEXRL_TRY(read_number(value[3], kMaxSeconds, &device).within("device_s"));
  PLEXRL_TRY(read_number(value[4], kMaxBytes, &kv).within("kv_bytes"));
  out->after = static_cast<std::uint32_t>(after);
  out->think = duration_of(think);
  out->time = duration_of(device);
  out->kv_bytes = static_cast<std::uint64_t>(kv);
  return {};
}

class TraceJobs final : public JobSource {
 public:
  TraceJobs(const Workload& workload, std::uint64_t seed, std::istream& in, std::string file_name)
      : workload_(workload), seed_(seed), in_(in), file_(std::move(file_name)) {}

  [[nodiscard]] Result<std::optional<ArrivingJob>> next() override;
  [[nodiscard]] std::uint64_t expected_jobs() const override { return 0; }

 private:
  [[nodiscard]] Result<std::optional<Json>> next_line();
  [[nodiscard]] Status fill(const Json& line, ArrivingJob* job);
  [[nodiscard]] Status fill_ops(const Json& line, ArrivingJob* job);
  [[nodiscard]] Status at_line(const Status& status) const {
    return status.within(file_ + ":" + std::to_string(lines_));
  }

  const Workload& workload_;
  std::uint64_t seed_;
  std::istream& in_;
  std::string file_;
  std::uint64_t lines_ = 0;
  std::uint64_t number_ = 0;
  TimePoint last_{};
};

// Not more than a line's limit is ever held.
Result<std::optional<Json>> TraceJobs::next_line() {
  std::string text;
  for (;;) {
    ++lines_;
    text.clear();
    char c = 0;
    while (in_.get(c) && c != '\n') {
      text += c;
      if (text.size() > kMaxTraceLine) return wrong("the line is longer than 16 MiB");
    }
    if (!text.empty()) break;
    if (!in_) return std::optional<Json>();
  }
  bool deep = false;
  Json line = Json::parse(
      text,
      [&deep](int depth, Json::parse_event_t, Json&) {
        deep = deep || depth > kMaxDepth;
        return !deep;
      },
      false);
  if (deep || line.is_discarded() || !line.is_object())
    return wrong("expected one JSON object, at most three levels deep");
  return std::optional(std::move(line));
}

Status TraceJobs::fill_ops(const Json& line, ArrivingJob* job) {
  const auto ops = line.find("ops");
  if (ops == line.end()) return {};
  if (!ops->is_array() || ops->empty() || ops->size() > kMaxTraceOps)
    return wrong("ops: expected a list of 1 to 200,000 ops");
  const JobSpec& spec = workload_.jobs[job->spec];
  if (spec.rollout_gpus != 0)
    return wrong("ops: the kind must have one group for both phases (rollout_gpus: 0)");
  for (std::size_t i = 0; i < ops->size(); ++i)
    PLEXRL_TRY(read_op((*ops)[i], i + 1, &job->script.emplace_back())
                   .within("op " + std::to_string(i + 1)));
  double bytes = 0;
  PLEXRL_TRY(read_field(line, "model_bytes", kMaxBytes, &bytes));
  job->script_bytes = static_cast<std::uint64_t>(bytes);
  return {};
}

Status TraceJobs::fill(const Json& line, ArrivingJob* job) {
  for (const auto& [key, value] : line.items())
    if (key != "arrival_s" && key != "kind" && key != "steps" && key != "scale" && key != "ops" &&
        key != "model_bytes")
      return error(Code::INVALID_ARGUMENT, "unknown key '%.80s'", key.c_str());
  const auto kind = line.find("kind");
  if (kind == line.end() || !kind->is_string()) return wrong("kind: missing");
  const std::string& name = kind->get_ref<const std::string&>();
  const auto spec = std::find_if(workload_.jobs.begin(), workload_.jobs.end(),
                                 [&](const JobSpec& row) { return row.name == name; });
  if (spec == workload_.jobs.end()) return wrong("kind: the workload has no such jobs");
  job->spec = static_cast<std::uint32_t>(spec - workload_.jobs.begin());
  job->draw = draw_job(*spec, seed_, number_);
  double arrival = 0;
  double steps = static_cast<double>(job->draw.steps);
  PLEXRL_TRY(read_field(line, "arrival_s", kMaxSeconds, &arrival));
  PLEXRL_TRY(read_field(line, "steps", 1e6, &steps));
  PLEXRL_TRY(read_field(line, "scale", 1e6, &job->draw.scale));
  job->draw.steps = std::max<std::uint64_t>(static_cast<std::uint64_t>(steps), 1);
  job->arrival = TimePoint{duration_of(arrival).ns};
  if (job->arrival < last_) return wrong("arrival_s: before the job of an earlier line");
  last_ = job->arrival;
  return fill_ops(line, job);
}

Result<std::optional<ArrivingJob>> TraceJobs::next() {
  if (number_ == 0) {
    auto header = next_line();
    if (!header) return at_line(header.error());
    if (!*header || (*header)->value("plexrl_trace", Json()) != Json(1))
      return at_line(wrong("the first line must be {\"plexrl_trace\": 1}"));
  }
  auto line = next_line();
  if (!line) return at_line(line.error());
  if (!*line) return std::optional<ArrivingJob>();
  ++number_;
  ArrivingJob job;
  if (const Status status = fill(**line, &job); !status.ok()) return at_line(status);
  return std::optional(std::move(job));
}

}  // namespace

std::unique_ptr<JobSource> trace_jobs(const Workload& workload, std::uint64_t seed,
                                      std::istream& in, std::string file_name) {
  return std::make_unique<TraceJobs>(workload, seed, in, std::move(file_name));
}

std::string_view op_name(OpKind kind) {
  for (const OpName& row : kOpNames)
    if (row.kind == kind) return row.name;
  return {};
}

std::string trace_header() { return Json{{"plexrl_trace", 1}}.dump() + "\n"; }

std::string trace_line(const TraceJob& job) {
  Json ops = Json::array();
  for (const ScriptOp& op : job.ops)
    ops.push_back({std::string(op_name(op.kind)), op.after, seconds_of(op.think),
                   seconds_of(op.time), op.kv_bytes});
  nlohmann::ordered_json line;
  line["arrival_s"] = job.arrival_s;
  line["kind"] = job.kind;
  line["model_bytes"] = job.model_bytes;
  line["ops"] = ops;
  return line.dump() + "\n";
}

}  // namespace plexrl::sim
