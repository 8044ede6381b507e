// SPDX-License-Identifier: Apache-2.0
#include "submitters.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace plexrl::job_submit {
namespace {

constexpr Duration kKeep{60 * kSecond.ns};
constexpr std::size_t kMaxEntries = 4096;
constexpr std::size_t kMaxGroups = 4096;

std::string group_name(gid_t gid, std::vector<char>* buffer) {
  group entry{};
  group* found = nullptr;
  const int failure = with_growing_buffer(buffer, [&](char* data, std::size_t size) {
    return ::getgrgid_r(gid, &entry, data, size, &found);
  });
  if (failure != 0 || found == nullptr) return {};
  return found->gr_name;
}

std::vector<std::string> groups_of(const char* user, gid_t primary) {
  std::vector<gid_t> ids(64);
  int count = static_cast<int>(ids.size());
  if (::getgrouplist(user, primary, ids.data(), &count) < 0) {
    ids.resize(std::min<std::size_t>(static_cast<std::size_t>(count), kMaxGroups));
    count = static_cast<int>(ids.size());
    if (::getgrouplist(user, primary, ids.data(), &count) < 0) count = static_cast<int>(ids.size());
  }
  ids.resize(static_cast<std::size_t>(count));
  std::vector<char> buffer;
  std::vector<std::string> names;
  for (const gid_t gid : ids)
    if (std::string name = group_name(gid, &buffer); !name.empty())
      names.push_back(std::move(name));
  return names;
}

slurm::Submitter look_up(std::uint32_t uid) {
  slurm::Submitter submitter{uid, {}, {}};
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer;
  const int failure = with_growing_buffer(&buffer, [&](char* data, std::size_t size) {
    return ::getpwuid_r(uid, &entry, data, size, &found);
  });
  if (failure != 0 || found == nullptr) return submitter;
  submitter.user = found->pw_name;
  submitter.groups = groups_of(found->pw_name, found->pw_gid);
  return submitter;
}

}  // namespace

const slurm::Submitter& Submitters::get(std::uint32_t uid, TimePoint now) {
  const auto found = entries_.find(uid);
  if (found != entries_.end() && now < found->second.until) return found->second.submitter;
  if (entries_.size() >= kMaxEntries) entries_.clear();
  Entry& entry = entries_[uid];
  entry = {look_up(uid), now + kKeep};
  return entry.submitter;
}

}  // namespace plexrl::job_submit
