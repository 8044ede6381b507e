// SPDX-License-Identifier: Apache-2.0
// FakeEngine: an Engine without a model, inside the process. Answers are a pure function of the
// requests: a generate's tokens come from (seed, row, position), and training changes a small
// state that lies in the chunks of the device pool, so that suspend, resume, commit and replay can
// be checked bit for bit. Faults on demand. For tests of the runtime and for `plexrld
// --fake-engine`, which measures the daemon alone.
//
// The state of a model: every committed segment is an array of 64-bit words that is a function of
// (seed, all training ops applied in order); Gradients likewise of the forward_backwards since the
// last optim_step. Segments are of fake_description()'s size. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/fake_time.h"

namespace plexrl::engine {

struct FakeEngineOptions {
  Duration op_time{0};                 // of every op; 0: answered in the next turn of the loop
  Duration yield_every{kMillisecond};  // yield points of ops that take time
  std::uint64_t segment_bytes = 4096;  // of every segment of a model
  std::uint32_t vocab_size = 32;

  // Faults. Ops are counted from 1 over the life of the engine object, across restarts.
  std::uint64_t die_at_op = 0;      // ends, as by SIGKILL, when this op starts; 0: never
  std::uint64_t die_in_op = 0;      // ends after half of its time
  std::uint64_t die_at_seed = 0;    // ends when a generate with this seed would end
  bool never_yield = false;         // EngineYield is accepted and ignored
  std::uint32_t fail_resumes = 0;   // the next N EngineResume fail with NO_CAPACITY
  std::uint32_t fail_suspends = 0;  // the next N EngineSuspend fail with IO
  std::uint32_t fail_starts = 0;    // the next N start() end in on_engine_down
  bool corrupt_commits = false;     // flips a bit of every committed copy
  bool silent = false;              // accepts calls, pings too, and answers none
  // EngineAwaitFill, and what comes after it for the memory of models, waits for end_fills().
  bool hold_fills = false;
};

class FakeEngine : public Engine {
 public:
  // Read at each call, so tests change faults while it runs.
  [[nodiscard]] virtual FakeEngineOptions& options() = 0;
  [[nodiscard]] virtual std::uint64_t ops_started() const = 0;
  virtual void end_fills() = 0;
};

// `listener` must live longer, and what `time` stands on.
[[nodiscard]] std::unique_ptr<FakeEngine> make_fake_engine(std::unique_ptr<FakeTime> time,
                                                           EngineSpec spec,
                                                           EngineListener& listener,
                                                           FakeEngineOptions options = {});
[[nodiscard]] std::unique_ptr<FakeEngine> make_fake_engine(loop::EventLoop& loop, EngineSpec spec,
                                                           EngineListener& listener,
                                                           FakeEngineOptions options = {});

// What EngineDescribe answers.
[[nodiscard]] wire::EngineDescriptionT fake_description(const FakeEngineOptions& options,
                                                        wire::TrainMode mode);

}  // namespace plexrl::engine
