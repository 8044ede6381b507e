// SPDX-License-Identifier: Apache-2.0
// Engine: the daemon's side of one plexrl-engine, a typed asynchronous call over engine.fbs.
// Real: process_engine (starts or re-attaches the program); fake: fake_engine (no model,
// deterministic answers, faults on demand). One conformance suite runs on both. Loop thread only;
// callbacks come from the loop, never from inside a call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "base/unique_fd.h"
#include "engine_generated.h"

namespace plexrl::engine {

struct EngineSpec {
  EngineId id;
  std::string base_name;
  std::string base_path;  // directory in Hugging Face layout, from the site's registry
  wire::TrainMode mode = wire::TrainMode::Lora;  // Lora: many adapters on one base; Full: one model
  std::uint32_t threads = 1;
  std::uint64_t activation_bytes = 0;  // cap of the activation arena
  std::string device = "cpu";          // or cuda:N
  std::string dtype = "float32";       // of the weights that are multiplied by; or bfloat16
  std::string socket_path;             // <run_dir>/engines/<id>.sock
};

struct Reply {
  wire::EngineBodyUnion body;  // never Failure: that becomes the Status
  std::vector<UniqueFd> fds;
};
using ReplyHandler = std::function<void(Result<Reply>)>;

class EngineListener {
 public:
  virtual ~EngineListener() = default;
  // Connected; hello tells what it already holds (everything empty for a fresh one).
  virtual void on_engine_up(EngineId engine, const wire::EngineHelloT& hello,
                            std::vector<UniqueFd> fds) = 0;
  // Outstanding calls have failed with ENGINE_DOWN before this comes.
  virtual void on_engine_down(EngineId engine, const Status& why) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Starts the program, or attaches to the one that listens on spec.socket_path. on_engine_up or
  // on_engine_down follows. Call again after on_engine_down to restart.
  virtual void start() = 0;
  // fds are borrowed for the time of the call. After the peer went away: ENGINE_DOWN.
  virtual void call(wire::EngineBodyUnion request, std::vector<int> fds, ReplyHandler done) = 0;
  // SIGKILL; on_engine_down follows. For ops that do not yield and engines that do not answer
  // pings.
  virtual void kill() = 0;
  // EngineQuit, then SIGKILL after the grace. No callback follows.
  virtual void stop(Duration grace) = 0;
  // Drops the connection and leaves the program running, for a restart of plexrld.
  virtual void detach() = 0;
  [[nodiscard]] virtual const EngineSpec& spec() const = 0;
  [[nodiscard]] virtual int pid() const = 0;  // 0 when not running
};

}  // namespace plexrl::engine
