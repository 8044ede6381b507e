// SPDX-License-Identifier: Apache-2.0
#include "slurm/profile_file.h"

#include "config/trusted_path.h"
#include "slurm/whole_file.h"

namespace plexrl::slurm {
std::string profiles_path(const std::string& site_path) {
  const std::size_t slash = site_path.rfind('/');
  return slash == std::string::npos ? "profiles" : site_path.substr(0, slash + 1) + "profiles";
}

Result<ParsedProfiles> load_profiles(const std::string& path) {
  PLEXRL_TRY(config::check_trusted_path(path));
  PLEXRL_ASSIGN(const std::string text, read_whole_file(path, kMaxProfilesText));
  auto parsed = parse_profiles(text);
  if (!parsed) return parsed.error().within("'" + path + "'");
  return parsed;
}

std::string ignored_lines_text(const std::string& path, const ParsedProfiles& parsed) {
  if (parsed.ignored == 0) return {};
  return "'" + path + "': " + std::to_string(parsed.ignored) +
         (parsed.ignored == 1 ? " line is no profile and is ignored, line "
                              : " lines are no profiles and are ignored, the first is line ") +
         std::to_string(parsed.first_ignored);
}

Status write_profiles(const std::string& path, const std::string& text) {
  return replace_file(path, text, 0644);
}

}  // namespace plexrl::slurm
