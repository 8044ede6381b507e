// SPDX-License-Identifier: Apache-2.0
// VirtualWorld: time that passes only between events. Events happen in the order of (time, number);
// everything random in a run comes from the one seed, so a seed repeats a run to the last bit. What
// happens is noted (in the log, where it takes kDebug), and a hash of all notes tells two runs
// apart.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "engine/fake_time.h"

namespace plexrl::runtime {

constexpr Duration operator*(Duration d, std::int64_t times) { return {d.ns * times}; }

class Random {
 public:
  explicit Random(std::uint64_t seed) : source_(seed) {}
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return source_() % bound; }
  [[nodiscard]] std::uint64_t between(std::uint64_t first, std::uint64_t last) {
    return first + below(last - first + 1);
  }
  // True that many times in a million.
  [[nodiscard]] bool ppm(std::uint64_t rate) { return below(1'000'000) < rate; }
  [[nodiscard]] bool one_in(std::uint64_t count) { return below(count) == 0; }
  [[nodiscard]] Duration up_to(Duration longest) {
    return {static_cast<std::int64_t>(below(static_cast<std::uint64_t>(longest.ns) + 1))};
  }

 private:
  std::mt19937_64 source_;
};

class VirtualWorld final : public Clock {
 public:
  using EventId = std::pair<std::int64_t, std::uint64_t>;  // time, number

  explicit VirtualWorld(std::uint64_t seed) : random(seed) {}
  [[nodiscard]] TimePoint now() const noexcept override { return now_; }

  // Never from inside the call; what lies in the past happens next.
  EventId at(TimePoint when, std::function<void()> what) {
    const EventId id{std::max(when, now_).ns, ++last_};
    events_.emplace(id, std::move(what));
    return id;
  }
  EventId after(Duration time, std::function<void()> what) {
    return at(now_ + time, std::move(what));
  }
  void cancel(EventId event) { events_.erase(event); }

  // The next event; false when none is left.
  bool turn() {
    if (events_.empty()) return false;
    auto next = events_.extract(events_.begin());
    now_ = TimePoint{next.key().first};
    mix(next.key().second);
    mix(static_cast<std::uint64_t>(now_.ns));
    next.mapped()();
    ++turns_;
    return true;
  }
  [[nodiscard]] std::uint64_t turns() const { return turns_; }

  void note(std::string_view what, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0) {
    PLEXRL_LOG(kDebug, "%.6f s: %.*s %llu %llu %llu",
               static_cast<double>(now_.ns) / static_cast<double>(kSecond.ns),
               static_cast<int>(what.size()), what.data(), static_cast<unsigned long long>(a),
               static_cast<unsigned long long>(b), static_cast<unsigned long long>(c));
    for (const char letter : what) mix(static_cast<unsigned char>(letter));
    mix(static_cast<std::uint64_t>(now_.ns));
    for (const std::uint64_t value : {a, b, c}) mix(value);
  }
  [[nodiscard]] std::uint64_t trace() const { return trace_; }

  Random random;

 private:
  void mix(std::uint64_t value) {
    trace_ = (trace_ ^ value) * 0x9E3779B97F4A7C15ULL;
    trace_ ^= trace_ >> 29;
  }

  TimePoint now_{kSecond.ns};
  std::uint64_t last_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t trace_ = 0;
  std::map<EventId, std::function<void()>> events_;
};

// The world as a fake engine sees it.
class VirtualTime final : public engine::FakeTime {
 public:
  explicit VirtualTime(VirtualWorld& world) : world_(world) {}
  [[nodiscard]] TimePoint now() const override { return world_.now(); }
  void post(std::function<void()> callback) override { world_.after({}, std::move(callback)); }
  std::unique_ptr<Alarm> call_at(TimePoint when, std::function<void()> callback) override {
    return std::make_unique<Pending>(world_, world_.at(when, std::move(callback)));
  }

 private:
  class Pending final : public Alarm {
   public:
    Pending(VirtualWorld& world, VirtualWorld::EventId event) : world_(world), event_(event) {}
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    ~Pending() override { world_.cancel(event_); }

   private:
    VirtualWorld& world_;
    VirtualWorld::EventId event_;
  };
  VirtualWorld& world_;
};

}  // namespace plexrl::runtime
