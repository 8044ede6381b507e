// SPDX-License-Identifier: Apache-2.0
#include "cli/train/train_log.h"

#include <cerrno>
#include <chrono>

#include "cli/output.h"

namespace plexrl::cli {
namespace {

std::string percent(double part, double whole) {
  return format_fixed(whole > 0.0 ? 100.0 * part / whole : 0.0, 0) + " %";
}

double fraction(std::uint64_t part, std::uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

nlohmann::json to_json(const StepRecord& record) {
  const double rate =
      record.wall_s > 0.0 ? static_cast<double>(record.new_tokens) / record.wall_s : 0.0;
  nlohmann::json line = {
      {"phase", "grpo"},
      {"step", record.step},
      {"version", record.version},
      {"staleness", record.staleness},
      {"reward", record.reward},
      {"stopped_fraction", record.stopped_fraction},
      {"truncated_fraction", 1.0 - record.stopped_fraction},
      {"answer_tokens", record.answer_tokens},
      {"length_penalty", record.length_penalty},
      {"groups", record.groups},
      {"groups_without_signal", record.groups_without_signal},
      {"no_signal_fraction", fraction(record.groups_without_signal, record.groups)},
      {"resample_rounds", record.resample_rounds},
      {"new_tokens", record.new_tokens},
      {"tokens_per_s", rate},
      {"wall_s", record.wall_s},
      {"busy_s", record.times.busy_s},
      {"wait_s", record.times.wait_s()},
      {"other_tenants_s", record.times.other_tenants_s},
      {"switch_s", record.times.switch_s},
      {"tool_s", record.tool_s},
      {"env_s", record.env_s},
      {"failed_episodes", record.failed_episodes},
      {"tool_simulated", record.tool_s > 0.0},
      {"learning_rate", record.learning_rate},
      {"loss", record.loss},
      {"grad_norm", record.grad_norm},
      {"ratio_mean", nullptr},
      {"clip_fraction", nullptr},
      {"logprob_drop", nullptr},
      {"entropy", nullptr}};
  if (record.means) {
    line["ratio_mean"] = record.means->ratio;
    line["clip_fraction"] = record.means->clip_fraction;
    line["logprob_drop"] = record.means->logprob_drop;
    line["entropy"] = record.means->entropy;
  }
  if (record.kl) line["kl"] = *record.kl;
  return line;
}

std::string progress_line(const StepRecord& record) {
  const double rate =
      record.wall_s > 0.0 ? static_cast<double>(record.new_tokens) / record.wall_s : 0.0;
  std::string line = "step " + std::to_string(record.step) + "/" + std::to_string(record.steps) +
                     "  reward " + format_fixed(record.reward, 3) + "  " + format_fixed(rate, 0) +
                     " tokens/s  busy " + percent(record.times.busy_s, record.wall_s) + "  wait " +
                     percent(record.times.wait_s(), record.wall_s);
  if (record.tool_s > 0.0)
    line += "  tools " + percent(record.tool_s, record.wall_s) + " (simulated)";
  if (record.means && record.means->logprob_drop > kLogprobDropWarning)
    line += "  WARNING: log-probability drop " + format_fixed(record.means->logprob_drop, 2) +
            ": the policy moves too fast; lower --lr or raise --warmup";
  return line;
}

Result<TrainLog> TrainLog::open(const std::string& path, bool append) {
  TrainLog log;
  if (path.empty()) return log;
  log.file_.reset(std::fopen(path.c_str(), append ? "ae" : "we"));
  if (log.file_ == nullptr) return errno_error(Code::IO, errno, "--log: open '%s'", path.c_str());
  return log;
}

Status TrainLog::step(const StepRecord& record) {
  print_progress(progress_line(record));
  return write(to_json(record));
}

Status TrainLog::write_events(const nlohmann::json& document) {
  const std::string phase = document.at("phase").get<std::string>() + "/";
  Scalars scalars;
  for (const auto& [name, value] : document.items())
    if (value.is_number() && name != "step")
      scalars.emplace_back(phase + name, value.get<double>());
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return events_->write(document.at("step").get<std::uint64_t>(), now.count(), scalars);
}

Status TrainLog::write(const nlohmann::json& document) {
  if (events_) PLEXRL_TRY(write_events(document));
  if (file_ == nullptr) return {};
  const std::string line =
      document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0)
    return errno_error(Code::IO, errno, "--log: write");
  return {};
}

}  // namespace plexrl::cli
