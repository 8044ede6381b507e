// SPDX-License-Identifier: Apache-2.0
#include "slurm/controller_report.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <sstream>
#include <string_view>

#include "slurm/names.h"
#include "slurm/whole_file.h"

namespace plexrl::slurm {
namespace {

constexpr std::string_view kPrefix = "plexrl_seen.";
constexpr std::string_view kFirstLine = "plexrl-seen 1";
constexpr std::size_t kMaxReport = 64U << 10;
constexpr std::size_t kMaxHashed = 16U << 20;
constexpr std::size_t kMaxProblem = 4096;

std::string one_line(std::string text) {
  text.resize(std::min(text.size(), kMaxProblem));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

// What follows "name " in the next line.
bool take(std::istringstream* lines, std::string_view name, std::string* value) {
  std::string line;
  if (!std::getline(*lines, line) || line.substr(0, name.size()) != name ||
      line.substr(name.size(), 1) != " ")
    return false;
  *value = line.substr(name.size() + 1);
  return true;
}

bool parse(const std::string& text, ControllerReport* report) {
  std::istringstream lines(text);
  std::string line;
  return std::getline(lines, line) && line == kFirstLine && take(&lines, "host", &report->host) &&
         take(&lines, "site", &report->site.hash) &&
         take(&lines, "site-problem", &report->site.problem) &&
         take(&lines, "profiles", &report->profiles.hash) &&
         take(&lines, "profiles-problem", &report->profiles.problem);
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

// FNV-1a, 64 bit: public domain, isthe.com/chongo/tech/comp/fnv.
Result<std::string> file_hash(const std::string& path) {
  PLEXRL_ASSIGN(const std::string text, read_whole_file(path, kMaxHashed));
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return std::string(digits.data());
}

std::string controller_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  const std::string host = name.data();
  return host.substr(0, host.find('.'));
}

Status write_report(const std::string& state_dir, const ControllerReport& report) {
  if (!is_name(report.host))
    return error(Code::INVALID_ARGUMENT, "'%s' is no host name", report.host.c_str());
  const std::string text = std::string(kFirstLine) + "\nhost " + report.host + "\nsite " +
                           report.site.hash + "\nsite-problem " + one_line(report.site.problem) +
                           "\nprofiles " + report.profiles.hash + "\nprofiles-problem " +
                           one_line(report.profiles.problem) + "\n";
  return replace_file(state_dir + "/" + std::string(kPrefix) + report.host, text, 0600);
}

Result<std::vector<ControllerReport>> read_reports(const std::string& state_dir) {
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir(state_dir.c_str()));
  if (!directory) return errno_error(Code::IO, errno, "open '%s'", state_dir.c_str());
  std::vector<ControllerReport> reports;
  while (const dirent* const entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (!std::string_view(name).starts_with(kPrefix) || name.ends_with(".new")) continue;
    const std::string path = state_dir + "/" + name;
    PLEXRL_ASSIGN(const std::string text, read_whole_file(path, kMaxReport));
    ControllerReport report;
    if (!parse(text, &report) || kPrefix.data() + report.host != name)
      return error(Code::CORRUPT, "'%s' is no report of a controller: remove it", path.c_str());
    reports.push_back(std::move(report));
  }
  std::sort(reports.begin(), reports.end(),
            [](const auto& a, const auto& b) { return a.host < b.host; });
  return reports;
}

}  // namespace plexrl::slurm
