// SPDX-License-Identifier: Apache-2.0
#include "slurm/profile.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "slurm/names.h"

namespace plexrl::slurm {
namespace {

constexpr std::string_view kFirstLine = "plexrl-profiles 1";
constexpr std::size_t kMaxModels = 8;
constexpr std::uint32_t kMaxRuns = 1'000'000;

// Takes the text up to `separator` off the front.
std::string_view take(std::string_view* text, char separator) {
  const std::size_t end = text->find(separator);
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return part;
}

bool take_name(std::string_view* line, std::string* out) {
  const std::string_view word = take(line, ' ');
  *out = word;
  return is_name(word);
}

bool take_number(std::string_view* line, std::uint32_t least, std::uint32_t most,
                 std::uint32_t* out) {
  const std::string_view word = take(line, ' ');
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), *out);
  return failure == std::errc() && end == word.data() + word.size() && *out >= least &&
         *out <= most;
}

bool take_models(std::string_view* line, std::vector<std::string>* models) {
  std::string_view words = take(line, ' ');
  do {
    const std::string_view word = take(&words, ',');
    if (!is_name(word) || models->size() == kMaxModels) return false;
    models->emplace_back(word);
  } while (!words.empty());
  return true;
}

std::string format_line(const ProfileKey& key, const Profile& profile) {
  std::string line = std::to_string(key.uid) + " " + key.pool + " " + key.train_mode + " ";
  for (std::size_t i = 0; i < key.models.size(); ++i) line += (i == 0 ? "" : ",") + key.models[i];
  line += " " + key.name;
  for (const std::uint32_t number :
       {profile.runs, profile.busy_percent, profile.rollout_percent, profile.training_percent})
    line += " " + std::to_string(number);
  return line + "\n";
}

std::optional<std::pair<ProfileKey, Profile>> parse_line(std::string_view line) {
  ProfileKey key;
  Profile profile;
  std::string_view rest = line;
  const bool good = take_number(&rest, 0, UINT32_MAX, &key.uid) && take_name(&rest, &key.pool) &&
                    take_name(&rest, &key.train_mode) && take_models(&rest, &key.models) &&
                    take_name(&rest, &key.name) && take_number(&rest, 1, kMaxRuns, &profile.runs) &&
                    take_number(&rest, 1, 100, &profile.busy_percent) &&
                    take_number(&rest, 0, 100, &profile.rollout_percent) &&
                    take_number(&rest, 0, 100, &profile.training_percent);
  // Leading zeros, a blank at the end and the like: format_line() would not write them.
  if (!good || format_line(key, profile) != std::string(line) + "\n") return std::nullopt;
  return std::pair{std::move(key), profile};
}

}  // namespace

std::string profile_name(std::string_view job_name) {
  std::string name(job_name.substr(0, kMaxName));
  for (char& c : name)
    if (!is_name_character(c)) c = '_';
  return name;
}

ProfileKey profile_key(std::uint32_t uid, const Grant& grant) {
  return {uid, grant.pool, grant.train_mode, grant.models, grant.name};
}

std::uint32_t learnt_share(const Profile& profile) {
  constexpr std::uint32_t kStep = 5;
  const std::uint32_t busy = std::clamp<std::uint32_t>(profile.busy_percent, 1, 100);
  return (busy + kStep - 1) / kStep * kStep;
}

ProfilesText format_profiles(const Profiles& profiles) {
  std::vector<Profiles::const_iterator> order;
  for (auto it = profiles.begin(); it != profiles.end(); ++it) order.push_back(it);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a->second.runs > b->second.runs; });
  ProfilesText result{std::string(kFirstLine) + "\n"};
  for (const auto& it : order) {
    const std::string line = format_line(it->first, it->second);
    if (result.text.size() + line.size() > kMaxProfilesText)
      ++result.left_out;
    else
      result.text += line;
  }
  return result;
}

Result<ParsedProfiles> parse_profiles(std::string_view text) {
  if (text.size() > kMaxProfilesText)
    return error(Code::TOO_LARGE, "larger than %zu bytes", kMaxProfilesText);
  if (take(&text, '\n') != kFirstLine)
    return error(Code::CORRUPT, "the first line is not '%s'", std::string(kFirstLine).c_str());
  ParsedProfiles result;
  for (std::size_t number = 2; !text.empty(); ++number) {
    auto entry = parse_line(take(&text, '\n'));
    if (entry && result.profiles.insert(std::move(*entry)).second) continue;
    if (result.ignored++ == 0) result.first_ignored = number;
  }
  return result;
}

}  // namespace plexrl::slurm
