// SPDX-License-Identifier: Apache-2.0
// ProcessEngine: the Engine that is a process, plexrl-engine. on_engine_down comes when the process
// is gone, so that device chunks may be given to another engine. Destroying the object kills the
// process and waits for its end, unless it was detached.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "loop/event_loop.h"

namespace plexrl::engine {

// From start to the hello. LibTorch takes a second, touching the activation arena 0.3 s per GiB,
// and an engine that is being re-attached first ends the move under way.
inline constexpr Duration kHelloTimeout{120 * kSecond.ns};

// `program`: see find_engine_program. `loop` and `listener` must live longer.
[[nodiscard]] std::unique_ptr<Engine> make_process_engine(loop::EventLoop& loop,
                                                          std::string program, EngineSpec spec,
                                                          EngineListener& listener,
                                                          Duration hello_timeout = kHelloTimeout);

}  // namespace plexrl::engine
