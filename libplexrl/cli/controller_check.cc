// SPDX-License-Identifier: Apache-2.0
#include "cli/controller_check.h"

#include <algorithm>
#include <sstream>

#include "cli/bounded_command.h"
#include "config/site_config.h"
#include "slurm/controller_report.h"
#include "slurm/profile_file.h"

namespace plexrl::cli {
namespace {

constexpr Duration kScontrolLimit{20 * kSecond.ns};
constexpr std::size_t kMaxScontrolBytes = 1U << 20;

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// One of the two files, as this host has it.
struct LocalFile {
  std::string path;
  std::string hash;  // empty: there is none
  std::string problem;
};

LocalFile look_at_site(const std::string& path) {
  LocalFile file{path, {}, config::load_site_config(path, true).status().text()};
  if (const auto hash = slurm::file_hash(path); hash) file.hash = *hash;
  return file;
}

// A site need not have any.
LocalFile look_at_profiles(const std::string& path) {
  LocalFile file{path, {}, {}};
  const auto hash = slurm::file_hash(path);
  if (hash) file.hash = *hash;
  if (!hash && hash.error().code() == Code::NOT_FOUND) return file;
  const auto parsed = slurm::load_profiles(path);
  if (!parsed)
    file.problem = parsed.error().text();
  else
    file.problem = slurm::ignored_lines_text(path, *parsed);
  return file;
}

nlohmann::json file_json(const LocalFile& file) {
  return {{"file", file.path},
          {"present", !file.hash.empty()},
          {"hash", file.hash},
          {"error", file.problem}};
}

class Comparison {
 public:
  Comparison(const LocalFile& site, const LocalFile& profiles, ControllerFindings* findings)
      : site_(site), profiles_(profiles), findings_(findings) {}

  void report(const slurm::ControllerReport& seen) {
    const bool site = one(seen.host, seen.site, site_);
    const bool profiles = one(seen.host, seen.profiles, profiles_);
    list_.push_back({{"host", seen.host},
                     {"site_hash", seen.site.hash},
                     {"profiles_hash", seen.profiles.hash},
                     {"same", site && profiles}});
  }
  [[nodiscard]] nlohmann::json list() const { return list_; }

 private:
  bool one(const std::string& host, const slurm::FileSeen& seen, const LocalFile& local) {
    if (seen.hash != local.hash)
      mistake(host, seen.hash.empty() ? "had no '" + local.path + "' when it last looked"
                    : local.hash.empty()
                        ? "has a '" + local.path + "', this host has none"
                        : "last read another '" + local.path + "' than this host's");
    else if (!seen.problem.empty() && seen.problem != local.problem)
      mistake(host, "does not take '" + local.path + "': " + seen.problem);
    return seen.hash == local.hash && seen.problem.empty();
  }
  void mistake(const std::string& host, const std::string& what) {
    findings_->mistakes.push_back("controller " + host + " " + what);
  }

  const LocalFile& site_;
  const LocalFile& profiles_;
  ControllerFindings* findings_;
  nlohmann::json list_ = nlohmann::json::array();
};

void check_local(const LocalFile& file, ControllerFindings* findings) {
  if (!file.problem.empty()) findings->mistakes.push_back(file.problem);
}

}  // namespace

// Lines "SlurmctldHost[0]        = ctl(10.0.0.1)" and "StateSaveLocation       = /var/spool/slurm".
Result<Controllers> parse_controllers(const std::string& show_config) {
  Controllers controllers;
  std::istringstream lines(show_config);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = trimmed(line.substr(0, equals));
    std::string value = trimmed(line.substr(equals + 1));
    if (name == "StateSaveLocation") controllers.state_dir = value;
    if (name.starts_with("SlurmctldHost[")) {
      value.resize(std::min(value.find_first_of("(. "), value.size()));
      controllers.hosts.push_back(value);
    }
  }
  if (controllers.state_dir.empty() || controllers.hosts.empty())
    return error(Code::PROTOCOL, "'scontrol show config' names no controller");
  return controllers;
}

Result<Controllers> find_controllers(const std::string& scontrol) {
  const auto result =
      run_bounded("exec " + scontrol + " show config", "", kScontrolLimit, kMaxScontrolBytes);
  if (!result) return result.error().within("scontrol show config");
  if (result->exit_status != 0)
    return error(Code::IO, "scontrol show config: exit status %d", result->exit_status);
  return parse_controllers(result->output);
}

ControllerFindings check_controllers(const std::string& site_path, const Controllers& controllers) {
  ControllerFindings findings;
  const LocalFile site = look_at_site(site_path);
  const LocalFile profiles = look_at_profiles(slurm::profiles_path(site_path));
  check_local(site, &findings);
  check_local(profiles, &findings);
  Comparison comparison(site, profiles, &findings);
  const auto reports = slurm::read_reports(controllers.state_dir);
  if (!reports)
    findings.notes.push_back("what the controllers have read cannot be seen: " +
                             reports.error().text() + ": run this as root on a controller");
  for (const std::string& host : controllers.hosts) {
    if (!reports) break;
    const auto seen = std::find_if(reports->begin(), reports->end(),
                                   [&](const auto& report) { return report.host == host; });
    if (seen != reports->end())
      comparison.report(*seen);
    else
      findings.notes.push_back("controller " + host +
                               " has not told what it reads: its slurmctld has not loaded the "
                               "job_submit hook");
  }
  findings.document = {{"file", site_path},
                       {"ok", findings.mistakes.empty()},
                       {"errors", site.problem},
                       {"site", file_json(site)},
                       {"profiles", file_json(profiles)},
                       {"controllers", comparison.list()},
                       {"mistakes", findings.mistakes},
                       {"notes", findings.notes}};
  return findings;
}

}  // namespace plexrl::cli
