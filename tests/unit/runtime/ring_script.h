// SPDX-License-Identifier: Apache-2.0
// RingScript: which faults a run has. The seed chooses a climate, so that some runs have one kind
// of fault in plenty and others a little of everything; quiet() ends all of them. Broken keeps what
// an invariant found.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "virtual_world.h"

namespace plexrl::runtime {

class Broken {
 public:
  void add(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    if (texts.size() >= kMost) return;
    char text[700];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    texts.emplace_back(text);
  }
  static constexpr std::size_t kMost = 5;
  std::vector<std::string> texts;
};

// In millionths, for each chance that there is.
struct Faults {
  std::uint64_t die_before_op = 0;
  std::uint64_t die_in_op = 0;
  std::uint64_t die_after_op = 0;
  std::uint64_t die_before_move = 0;  // a memory command
  std::uint64_t die_after_move = 0;   // done, and nobody hears of it
  std::uint64_t torn_copy = 0;        // of a suspend or commit
  std::uint64_t fail_move = 0;
  std::uint64_t fail_start = 0;
  std::uint64_t hang = 0;
  std::uint64_t never_yield = 0;
  std::uint64_t slow_answer = 0;   // seconds, not milliseconds
  std::uint64_t slow_hello = 0;    // longer than a plexrld that starts waits for it
  std::uint64_t kill = 0;          // plexrld, at an event
  std::uint64_t stop = 0;          // and as by SIGTERM
  std::uint64_t lose_engines = 0;  // with a kill or stop
  std::uint64_t store_refuses = 0;
  std::uint64_t store_mute = 0;   // took it and could not say so
  std::uint64_t store_full = 0;   // for a while, at an event
  std::uint64_t store_picky = 0;  // likewise, for what is written of one model
  std::uint64_t blob_fails = 0;
};

class RingScript {
 public:
  explicit RingScript(VirtualWorld& world) : world_(world) {
    Random& random = world.random;
    with_disk = random.one_in(4);
    if (random.one_in(4)) engines();
    if (random.one_in(4)) daemon();
    if (random.one_in(4)) store();
    if (random.one_in(2)) {
      engines();
      daemon();
      store();
    }
    if (with_disk) faults_.blob_fails = 60'000;
  }

  [[nodiscard]] bool happens(std::uint64_t Faults::*kind) {
    return !quiet_ && world_.random.ppm(faults_.*kind);
  }
  [[nodiscard]] bool can(std::uint64_t Faults::*kind) const { return faults_.*kind != 0; }
  void quiet() { quiet_ = true; }
  [[nodiscard]] bool is_quiet() const { return quiet_; }

  bool with_disk = false;

 private:
  void engines() {
    Random& random = world_.random;
    const auto some = [&](std::uint64_t rate) { return random.one_in(2) ? rate : 0; };
    faults_.die_before_op = some(15'000);
    faults_.die_in_op = some(25'000);
    faults_.die_after_op = some(25'000);
    faults_.die_before_move = some(20'000);
    faults_.die_after_move = some(30'000);
    faults_.torn_copy = some(40'000);
    faults_.fail_move = some(60'000);
    faults_.fail_start = some(150'000);
    faults_.hang = some(4'000);
    faults_.never_yield = some(20'000);
    faults_.slow_answer = some(10'000);
  }
  void daemon() {
    Random& random = world_.random;
    faults_.kill = random.one_in(3) ? 0 : random.between(500, 4'000);
    faults_.stop = random.one_in(2) ? 0 : 700;
    faults_.lose_engines = random.one_in(2) ? 0 : 200'000;
    faults_.slow_hello = random.one_in(2) ? 0 : 150'000;
  }
  void store() {
    Random& random = world_.random;
    faults_.store_refuses = random.one_in(2) ? 0 : 20'000;
    faults_.store_mute = random.one_in(2) ? 0 : 20'000;
    faults_.store_full = random.one_in(2) ? 0 : 700;
    faults_.store_picky = random.one_in(2) ? 0 : 1'500;
  }

  VirtualWorld& world_;
  Faults faults_;
  bool quiet_ = false;
};

}  // namespace plexrl::runtime
