// SPDX-License-Identifier: Apache-2.0
// OpMeter: where the time of a step went. `busy` is the time in which the step's ops ran on the
// device, `blocked` the wall time spent waiting for results; blocked - busy is the wait for others,
// for the switch and for the protocol. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "cli/train/service.h"

namespace plexrl::cli {

struct OpTimes {
  double busy_s = 0.0;
  double blocked_s = 0.0;
  double other_tenants_s = 0.0;  // summed over ops; ops that wait together count each
  double switch_s = 0.0;
  OpTimes& operator+=(const OpTimes& other) {
    busy_s += other.busy_s;
    blocked_s += other.blocked_s;
    other_tenants_s += other.other_tenants_s;
    switch_s += other.switch_s;
    return *this;
  }
  [[nodiscard]] double wait_s() const { return std::max(0.0, blocked_s - busy_s); }
};

class OpMeter {
 public:
  explicit OpMeter(const Clock& clock) : clock_(clock) {}

  template <class T>
  [[nodiscard]] Result<T> wait(Future<T>& future) {
    const TimePoint start = clock_.now();
    auto result = future.wait();
    times_.blocked_s += seconds((clock_.now() - start).ns);
    if (!result.has_value()) return result.error();
    add(result->timing);
    return std::move(result->value);
  }
  [[nodiscard]] OpTimes take() { return std::exchange(times_, OpTimes{}); }

 private:
  [[nodiscard]] static double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }
  void add(const OpTiming& timing) {
    times_.busy_s += seconds(static_cast<std::int64_t>(timing.run_ns));
    times_.other_tenants_s += seconds(static_cast<std::int64_t>(timing.other_tenants_ns));
    times_.switch_s += seconds(static_cast<std::int64_t>(timing.switch_ns));
  }

  const Clock& clock_;
  OpTimes times_;
};

}  // namespace plexrl::cli
