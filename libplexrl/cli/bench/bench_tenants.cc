// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_tenants.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "cli/bench/bench_daemon.h"
#include "cli/bench/temporary_folder.h"
#include "cli/bench/tenants_phase.h"
#include "cli/output.h"

namespace plexrl::cli {
namespace {

// RollArt injects waits with a deviation of a tenth of the mean to all of it.
constexpr double kWaitDeviation = 0.5;

// Of a task alone and without waits, in seconds.
struct Step {
  double wall = 0, busy = 0;
};

Status check(const BenchTenantsOptions& o) {
  const bool duties = !o.duties.empty() && std::all_of(o.duties.begin(), o.duties.end(),
                                                       [](double d) { return d > 0 && d <= 1; });
  if (duties && o.tenants > 0 && o.alone > 0 && o.alone <= o.tenants && o.steps > 0 &&
      o.prompts > 0 && o.samples > 1)
    return {};
  return error(Code::INVALID_ARGUMENT,
               "bench tenants: duties above 0 to 1; tenants, steps and prompts above 0, samples "
               "above 1; alone 1 to the number of tenants");
}

double mean(const std::vector<double>& values, std::size_t count) {
  const auto end = values.begin() + static_cast<std::ptrdiff_t>(count);
  return std::accumulate(values.begin(), end, 0.0) / static_cast<double>(count);
}

class TenantsBench {
 public:
  TenantsBench(const BenchTenantsOptions& options, TenantsSite site)
      : options_(options), site_(std::move(site)) {}

  // What is made freshly knows nothing: no task would have a reward.
  Status teach_model(const std::string& folder) {
    print_progress("a supervised start of the base");
    TenantsSite one = site_;
    one.tenants = 1;
    PLEXRL_ASSIGN(site_.model, teach(one, folder));
    return {};
  }
  Status calibrate() {
    print_progress("a task without waits");
    PLEXRL_ASSIGN(const PhaseResult result, run_phase(site_, TenantsPhase{}));
    step_ = {result.train_s / options_.steps, result.busy_s / options_.steps};
    return {};
  }
  Result<nlohmann::json> measure(double duty);

 private:
  [[nodiscard]] TenantsPhase phase(double duty) const {
    TenantsPhase phase;
    // Alone a task is busy for this share of its time, unless its own work takes more already.
    phase.wait_s = duty < 1 ? std::max(step_.busy / duty - step_.wall, 0.0) : 0.0;
    phase.wait_sd_s = kWaitDeviation * phase.wait_s;
    return phase;
  }

  const BenchTenantsOptions& options_;
  TenantsSite site_;
  Step step_;
};

Result<nlohmann::json> TenantsBench::measure(double duty) {
  const std::string what = "duty " + format_fixed(duty, 2) + ": ";
  TenantsPhase one = phase(duty);
  one.tasks = options_.alone;
  print_progress(what + std::to_string(one.tasks) + " tasks one after the other");
  PLEXRL_ASSIGN(const PhaseResult alone, run_phase(site_, one));
  one.staleness = 1;
  print_progress(what + "the same with the next rollout beside the training");
  PLEXRL_ASSIGN(const PhaseResult overlapped, run_phase(site_, one));
  TenantsPhase all = phase(duty);
  all.tasks = options_.tenants;
  all.together = true;
  print_progress(what + std::to_string(all.tasks) + " tasks together");
  PLEXRL_ASSIGN(const PhaseResult together, run_phase(site_, all));

  const double tenants = options_.tenants;
  const double times = tenants / options_.alone;  // tasks differ by their seed only
  const double ratio = together.utilisation() / alone.utilisation();
  const double bound = std::min(1 / alone.utilisation(), tenants);
  return nlohmann::json{{"bench", "tenants"},
                        {"model", site_.model.name},
                        {"policy", options_.policy},
                        {"tenants", options_.tenants},
                        {"tasks_alone", options_.alone},
                        {"steps", options_.steps},
                        {"rows", options_.prompts * options_.samples},
                        {"duty", duty},
                        {"step_s", step_.wall},
                        {"step_busy_s", step_.busy},
                        {"wait_s", all.wait_s},
                        {"utilisation_alone", alone.utilisation()},
                        {"utilisation_overlapped", overlapped.utilisation()},
                        {"utilisation_together", together.utilisation()},
                        {"utilisation_ratio", ratio},
                        {"bound", bound},
                        {"share_of_bound", ratio / bound},
                        {"busy_alone_s", alone.busy_s * times},
                        {"busy_together_s", together.busy_s},
                        {"wall_alone_s", alone.wall_s * times},
                        {"wall_overlapped_s", overlapped.wall_s * times},
                        {"wall_together_s", together.wall_s},
                        {"wall_saving", 1 - together.wall_s / (alone.wall_s * times)},
                        {"reward_mean_alone", mean(alone.rewards, options_.alone)},
                        {"reward_mean_together", mean(together.rewards, options_.alone)}};
}

}  // namespace

Result<nlohmann::json> bench_tenants(const BenchTenantsOptions& options) {
  PLEXRL_TRY(check(options));
  TenantsSite site;
  site.plexrld = options.plexrld;
  if (site.plexrld.empty()) {
    PLEXRL_ASSIGN(site.plexrld, find_plexrld());
  }
  PLEXRL_ASSIGN(const std::string engine, find_engine(site.plexrld));
  std::error_code failure;
  site.plexrl = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return error(Code::IO, "read /proc/self/exe: %s", failure.message().c_str());
  PLEXRL_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make());
  PLEXRL_ASSIGN(site.model, find_bench_model(options.model, engine, folder.path()));
  std::error_code no_path;
  site.model.directory = std::filesystem::absolute(site.model.directory, no_path);
  site.policy = options.policy;
  site.tenants = options.tenants;
  site.steps = options.steps;
  site.prompts = options.prompts;
  site.samples = options.samples;
  TenantsBench bench(options, std::move(site));
  if (options.model == "tiny") PLEXRL_TRY(bench.teach_model(folder.path()));
  PLEXRL_TRY(bench.calibrate());
  nlohmann::json rows = nlohmann::json::array();
  for (const double duty : options.duties) {
    PLEXRL_ASSIGN(nlohmann::json row, bench.measure(duty));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace plexrl::cli
