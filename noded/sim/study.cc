// SPDX-License-Identifier: Apache-2.0
#include "sim/study.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "sim/trace.h"
#include "sim/workload_keys.h"

namespace plexrl::sim {
namespace {

using Json = nlohmann::ordered_json;

const Choice kIsolated{"fifo", "isolated"};
// What the headline is ranked against.
const Choice kRivals[] = {{"fifo", "isolated"}, {"fifo", "pack"}, {"fifo", "spread"}};

double ratio(double a, double b) { return b > 0 ? a / b : 0; }
double saved(const RunStats& run, double baseline_s) {
  return baseline_s > 0 ? 1 - run.device_s / baseline_s : 0;
}
// Enough digits to compare, few enough to read.
double rounded(double value) {
  if (std::abs(value) < 1e-9 || !std::isfinite(value)) return std::isfinite(value) ? 0 : value;
  const double unit = std::pow(10, 5 - std::ceil(std::log10(std::abs(value))));
  return std::round(value * unit) / unit;
}
std::string load_name(double load) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", load);
  return text;
}

// Runs, each once: several figures need the same one.
class Runner {
 public:
  Runner(const Workload& workload, const StudyOptions& options, std::uint64_t seed)
      : workload_(workload), options_(options), seed_(seed) {}

  [[nodiscard]] Result<RunStats> run(const Choice& choice, double load,
                                     RunObserver* observer = nullptr) {
    const std::string name =
        choice.policy + "/" + choice.placement + (load > 0 ? " at load " + load_name(load) : "");
    if (const auto found = done_.find(name); found != done_.end() && observer == nullptr)
      return found->second;
    RunOptions options;
    options.policy = choice.policy;
    options.placement = choice.placement;
    options.seed = seed_;
    options.load = load;
    options.observer = observer;
    PLEXRL_ASSIGN(RunStats stats, simulate_it(options, name));
    done_[name] = stats;
    return stats;
  }

 private:
  Result<RunStats> simulate_it(RunOptions& options, const std::string& name) {
    const double total = std::max(1U, workload_.jobs_total);
    if (options_.progress)
      options.progress = [&](std::uint64_t jobs, TimePoint) {
        return options_.progress(name, std::min(1.0, static_cast<double>(jobs) / total));
      };
    if (workload_.trace.empty()) {
      const auto source = generated_jobs(workload_, seed_, options.load);
      return simulate(workload_, options, *source);
    }
    std::ifstream file(workload_.trace, std::ios::binary);
    if (!file) return error(Code::NOT_FOUND, "%s: cannot be read", workload_.trace.c_str());
    const auto source = trace_jobs(workload_, seed_, file, workload_.trace);
    return simulate(workload_, options, *source);
  }

  const Workload& workload_;
  const StudyOptions& options_;
  std::uint64_t seed_;
  std::map<std::string, RunStats> done_;
};

// The figures of one run that need no other run.
Json run_figures(const RunStats& run) {
  Json json;
  json["device_hours"] = rounded(run.device_s / 3600);
  json["device_hours_saved"] = {{"split-async", rounded(saved(run, run.split_async_device_s))},
                                {"colocated", rounded(saved(run, run.colocated_device_s))},
                                {"isolated", rounded(saved(run, run.isolated_device_s))}};
  json["closed_form_bound"] = rounded(run.closed_form_bound());
  json["makespan_s"] = rounded(run.makespan_s());
  json["mean_slowdown"] = rounded(run.mean_slowdown());
  json["p99_slowdown"] = rounded(run.slowdown_quantile(0.99));
  json["bubble_ratio"] =
      rounded(run.train_held_s > 0 ? 1 - run.train_busy_s / run.train_held_s : 0);
  json["jain"] = rounded(run.jain());
  json["switch_share"] = rounded(ratio(run.exposed_s, run.device_s));
  json["host_bytes_peak"] = run.host_bytes_peak;
  json["utilisation"] = rounded(ratio(run.busy_s, run.device_s));
  json["gpus_peak"] = run.gpus_peak;
  json["mean_queued_s"] = rounded(ratio(run.queued_s, static_cast<double>(run.jobs)));
  json["jobs"] = run.jobs;
  return json;
}

class Study {
 public:
  Study(const Workload& workload, const StudyOptions& options)
      : workload_(workload),
        options_(options),
        seed_(options.seed.value_or(workload.seed)),
        choice_(options.choice),
        runner_(workload, options, seed_) {
    if (choice_.policy.empty())
      choice_.policy = workload.policy.empty() ? std::string(kDefaultPolicy) : workload.policy;
    if (choice_.placement.empty())
      choice_.placement =
          workload.placement.empty() ? std::string(kDefaultPlacement) : workload.placement;
    if (!workload.loads.empty()) load_ = workload.load > 0 ? workload.load : workload.loads.front();
  }

  [[nodiscard]] Result<Json> document() {
    Json json;
    json["workload"] = workload_.name;
    json["policy"] = choice_.policy;
    json["placement"] = choice_.placement;
    json["seed"] = seed_;
    if (load_ > 0) json["load"] = load_;
    PLEXRL_ASSIGN(const RunStats run, runner_.run(choice_, load_, options_.observer));
    json.update(run_figures(run));
    PLEXRL_ASSIGN(const double completion, completion_vs_isolated(choice_, load_));
    json["completion_vs_isolated"] = completion;
    PLEXRL_TRY(add_loads(json));
    PLEXRL_TRY(add_rank(run, json));
    PLEXRL_TRY(add_compared(json));
    add_published(json);
    PLEXRL_TRY(add_sensitivity(json));
    return json;
  }

 private:
  [[nodiscard]] Result<double> completion_vs_isolated(const Choice& choice, double load) {
    PLEXRL_ASSIGN(const RunStats run, runner_.run(choice, load));
    PLEXRL_ASSIGN(const RunStats isolated, runner_.run(kIsolated, load));
    return rounded(ratio(run.makespan_s(), isolated.makespan_s()));
  }

  [[nodiscard]] Status add_loads(Json& json) {
    for (const double load : workload_.loads) {
      PLEXRL_ASSIGN(const double completion, completion_vs_isolated(choice_, load));
      json["completion_by_load"][load_name(load)] = completion;
    }
    return {};
  }

  [[nodiscard]] Status add_rank(const RunStats& run, Json& json) {
    if (load_ == 0) return {};
    int rank = 1;
    for (const Choice& rival : kRivals) {
      PLEXRL_ASSIGN(const RunStats other, runner_.run(rival, load_));
      if (other.makespan_s() < run.makespan_s()) ++rank;
    }
    json["rank"] = rank;
    json["offline_gap"] = rounded(ratio(run.makespan_s(), run.offline_makespan_s()) - 1);
    return {};
  }

  [[nodiscard]] Status add_compared(Json& json) {
    for (const std::string& text : options_.compare) {
      PLEXRL_ASSIGN(const Choice choice, parse_choice(text, choice_));
      PLEXRL_ASSIGN(const RunStats run, runner_.run(choice, load_));
      Json row;
      row["policy"] = choice.policy;
      row["placement"] = choice.placement;
      row.update(run_figures(run));
      PLEXRL_ASSIGN(const double completion, completion_vs_isolated(choice, load_));
      row["completion_vs_isolated"] = completion;
      json["compare"].push_back(row);
    }
    return {};
  }

  // b = (k-1)/k T/(R+T) solved for R/T, for a saving without slowdown and with the one of this run.
  void add_published(Json& json) const {
    for (const Published& published : workload_.published) {
      Json row;
      row["key"] = published.key;
      row["value"] = published.value;
      const std::string pointer = "/" + replaced(published.key);
      const auto at = Json::json_pointer(pointer);
      if (json.contains(at)) row["ours"] = json[at];
      row["source"] = published.source;
      const JobSpec& job = workload_.jobs.front();
      if (published.key.starts_with("device_hours_saved") && job.rollout_gpus > 0 &&
          job.rollout_sharers == 1 && job.train_sharers > 1) {
        const double k = job.train_sharers;
        const double slowdown = json["mean_slowdown"];
        const double at_slowdown = 1 - (1 - published.value) / slowdown;
        row["break_even_rollout_per_train"] = rounded((k - 1) / k / published.value - 1);
        row["break_even_at_our_slowdown"] = rounded((k - 1) / k / at_slowdown - 1);
      }
      json["published"].push_back(row);
    }
  }
  static std::string replaced(std::string text) {
    std::replace(text.begin(), text.end(), '.', '/');
    return text;
  }

  [[nodiscard]] Status add_sensitivity(Json& json) {
    json["sensitivity"] = Json::array();
    if (!options_.sensitivity) return {};
    for (const Sensitivity& row : workload_.sensitivity) {
      for (const double value : row.values) PLEXRL_TRY(vary(row.key, value, false, json));
      for (const double value : row.factors) PLEXRL_TRY(vary(row.key, value, true, json));
    }
    return {};
  }

  // A value that cannot work (a model that no longer fits) is a row that says so.
  [[nodiscard]] Status vary(const std::string& key, double value, bool factor, Json& json) {
    Workload changed = workload_;
    PLEXRL_TRY(override_key(changed, key, value, factor));
    Json row;
    row["key"] = key;
    row[factor ? "factor" : "value"] = value;
    Status status = check_workload(changed);
    if (status.ok()) {
      Runner runner(changed, options_, seed_);
      Result<RunStats> run = runner.run(choice_, load_);
      if (!run && run.error().code() == Code::CANCELLED) return run.error();
      status = run.error();
      if (run) {
        const Json figures = run_figures(*run);
        for (const char* name : {"closed_form_bound", "device_hours_saved", "mean_slowdown",
                                 "p99_slowdown", "utilisation"})
          row[name] = figures[name];
        if (load_ > 0) {
          PLEXRL_ASSIGN(const RunStats isolated, runner.run(kIsolated, load_));
          row["completion_vs_isolated"] = rounded(ratio(run->makespan_s(), isolated.makespan_s()));
        }
      }
    }
    if (!status.ok()) row["impossible"] = status.text();
    json["sensitivity"].push_back(row);
    return {};
  }

  const Workload& workload_;
  const StudyOptions& options_;
  std::uint64_t seed_;
  Choice choice_;
  Runner runner_;
  double load_ = 0;
};

bool is_placement(const std::string& name) {
  const auto names = core::Placer::policies();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Result<Choice> parse_choice(const std::string& text, const Choice& otherwise) {
  Choice choice = otherwise;
  const std::size_t slash = text.find('/');
  if (slash != std::string::npos) {
    choice.policy = text.substr(0, slash);
    choice.placement = text.substr(slash + 1);
  } else if (is_placement(text)) {
    choice.placement = text;
  } else {
    choice.policy = text;
  }
  core::SchedulerConfig probe;
  probe.device_capacity_bytes = 1;
  probe.policy = choice.policy;
  PLEXRL_TRY(core::Scheduler::create(probe).status());
  if (!is_placement(choice.placement))
    return error(Code::INVALID_ARGUMENT, "'%s' is neither a policy nor a placement", text.c_str());
  return choice;
}

Result<nlohmann::ordered_json> study(const Workload& workload, const StudyOptions& options) {
  return Study(workload, options).document();
}

}  // namespace plexrl::sim
