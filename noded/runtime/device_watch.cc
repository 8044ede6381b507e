// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_watch.h"

#include <sys/stat.h>

#include <string>

#include "base/log.h"

namespace plexrl::runtime {
namespace {

std::uint32_t uid_of(pid_t pid) {
  struct stat info {};
  const std::string path = "/proc/" + std::to_string(pid);
  return ::stat(path.c_str(), &info) == 0 ? info.st_uid : 0xffffffff;
}

}  // namespace

TimePoint DeviceWatch::tick(TimePoint now, const std::function<std::set<pid_t>()>& allowed) {
  if (users_ == nullptr) return {};
  if (now < next_) return next_;
  next_ = now + kEvery;
  look(allowed());
  return next_;
}

void DeviceWatch::look(const std::set<pid_t>& allowed) {
  const auto pids = users_->pids();
  if (!pids) {
    if (!failing_) PLEXRL_LOG(kWarning, "device: %s", pids.error().to_string().c_str());
    failing_ = true;
    return;
  }
  failing_ = false;
  std::set<pid_t> suspects;
  std::map<pid_t, std::uint32_t> strangers;
  for (const pid_t pid : *pids) {
    if (allowed.count(pid) != 0) continue;
    suspects.insert(pid);
    if (suspects_.count(pid) == 0) continue;
    const auto known = strangers_.find(pid);
    const std::uint32_t uid = known != strangers_.end() ? known->second : uid_of(pid);
    strangers.emplace(pid, uid);
    if (known != strangers_.end()) continue;
    ++found_;
    PLEXRL_LOG(kWarning, "process %d of uid %u uses the device without a lease", pid, uid);
  }
  suspects_ = std::move(suspects);
  strangers_ = std::move(strangers);
}

}  // namespace plexrl::runtime
