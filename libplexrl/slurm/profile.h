// SPDX-License-Identifier: Apache-2.0
// Profile: what earlier runs of a job tell about its next one. plexrld learns profiles from what it
// accounts, `plexrl profiles export` writes them to a file, and rewrite() takes a job's share from
// there. Pure functions.
//
// The file is text, a line per profile under a first line with the version, fields with single
// blanks between:
//   plexrl-profiles 1
//   UID POOL MODE MODEL[,MODEL...] NAME RUNS BUSY ROLLOUT TRAINING
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "slurm/grant.h"

namespace plexrl::slurm {

// Jobs that are taken for runs of the same one.
struct ProfileKey {
  std::uint32_t uid = 0;
  std::string pool;
  std::string train_mode;
  std::vector<std::string> models;
  std::string name;  // of the Slurm job, see profile_name()
  friend auto operator<=>(const ProfileKey&, const ProfileKey&) = default;
};

// Of the time that the job would have taken alone, in percent: how long its ops ran, all of them
// and by class.
struct Profile {
  std::uint32_t runs = 0;
  std::uint32_t busy_percent = 0;  // 1..100
  std::uint32_t rollout_percent = 0;
  std::uint32_t training_percent = 0;
  friend bool operator==(const Profile&, const Profile&) = default;
};

using Profiles = std::map<ProfileKey, Profile>;

// A job's name with '_' for what a name may not hold, cut at 64 characters; empty stays empty.
[[nodiscard]] std::string profile_name(std::string_view job_name);
[[nodiscard]] ProfileKey profile_key(std::uint32_t uid, const Grant& grant);
// The share that such a job needs, in steps of 5 so that shares fill a group.
[[nodiscard]] std::uint32_t learnt_share(const Profile& profile);

// Both of at most this size.
constexpr std::size_t kMaxProfilesText = 1U << 20;

struct ProfilesText {
  std::string text;
  std::size_t left_out = 0;  // did not fit; those with the fewest runs
};
[[nodiscard]] ProfilesText format_profiles(const Profiles& profiles);

struct ParsedProfiles {
  Profiles profiles;
  std::size_t ignored = 0;  // lines that are none
  std::size_t first_ignored = 0;
};
// TOO_LARGE; CORRUPT: the first line is not that of such a file.
[[nodiscard]] Result<ParsedProfiles> parse_profiles(std::string_view text);

}  // namespace plexrl::slurm
