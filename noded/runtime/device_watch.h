// SPDX-License-Identifier: Apache-2.0
// DeviceWatch: finds processes that use the device though they are neither engines nor the holder
// of the lease. They are reported (log, status, metrics), never ended: plexrld cannot know what
// they are. One is a stranger when two looks in a row see it, so that who has just yielded has time
// to let go. Loop thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include "base/clock.h"
#include "device/device_users.h"

namespace plexrl::runtime {

class DeviceWatch {
 public:
  static constexpr Duration kEvery{10 * kSecond.ns};

  // `users`: none on a node whose driver does not say.
  explicit DeviceWatch(device::DeviceUsers* users) : users_(users) {}

  // `allowed` is asked when it is time. Returns when to call again; 0: never.
  TimePoint tick(TimePoint now, const std::function<std::set<pid_t>()>& allowed);

  // pid and uid of each, as of the last look.
  [[nodiscard]] const std::map<pid_t, std::uint32_t>& strangers() const { return strangers_; }
  [[nodiscard]] std::uint64_t found() const { return found_; }  // in all

 private:
  void look(const std::set<pid_t>& allowed);

  device::DeviceUsers* users_;
  TimePoint next_;
  std::set<pid_t> suspects_;  // of the last look
  std::map<pid_t, std::uint32_t> strangers_;
  std::uint64_t found_ = 0;
  bool failing_ = false;
};

}  // namespace plexrl::runtime
