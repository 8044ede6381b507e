// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <ctime>

namespace plexrl {
namespace {

class SystemClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return {static_cast<std::int64_t>(t.tv_sec) * kSecond.ns + t.tv_nsec};
  }
};

}  // namespace

const Clock& system_clock() noexcept {
  static const SystemClock clock;
  return clock;
}

}  // namespace plexrl
