// SPDX-License-Identifier: Apache-2.0
// Time as 64-bit nanoseconds. The core takes every time as an argument; only the runtime asks a
// Clock. kSystem is CLOCK_MONOTONIC; tests use a ManualClock.
#pragma once

#include <compare>
#include <cstdint>

namespace plexrl {

struct Duration {
  std::int64_t ns = 0;
  friend auto operator<=>(const Duration&, const Duration&) = default;
};

struct TimePoint {
  std::int64_t ns = 0;
  friend auto operator<=>(const TimePoint&, const TimePoint&) = default;
  friend TimePoint operator+(TimePoint t, Duration d) { return {t.ns + d.ns}; }
  friend Duration operator-(TimePoint a, TimePoint b) { return {a.ns - b.ns}; }
};

constexpr Duration kMillisecond{1'000'000};
constexpr Duration kSecond{1'000'000'000};

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const noexcept = 0;
};

// The process-wide monotonic clock. Any thread.
[[nodiscard]] const Clock& system_clock() noexcept;

// A clock that stands still until told otherwise; for tests. One thread.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override { return now_; }
  void advance(Duration by) noexcept { now_ = now_ + by; }

 private:
  TimePoint now_{1};
};

}  // namespace plexrl
