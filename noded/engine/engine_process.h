// SPDX-License-Identifier: Apache-2.0
// Starts the program plexrl-engine and finds the one that an earlier plexrld left running. Loop
// thread; nothing here waits longer than a fork.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace plexrl::engine {

// The program beside this one (uninstalled), else in the libexec directory of the same prefix.
// NOT_FOUND names both places; another place is given by engine_program in plexrl.yaml.
[[nodiscard]] Result<std::string> find_engine_program();

[[nodiscard]] std::vector<std::string> engine_arguments(const EngineSpec& spec);
// Nothing of the daemon's environment but what is named here: thread settings that the maths need
// to be fast on shared cores, the allocator's tunables, and the journal's stream.
[[nodiscard]] std::vector<std::string> engine_environment(const EngineSpec& spec);

// Starts `program` in a session of its own with `listener` as descriptor 3, the null device as
// standard input and our stderr as its output. Writes its pid to <socket_path>.pid.
[[nodiscard]] Result<pid_t> spawn_engine(const std::string& program, const EngineSpec& spec,
                                         int listener);

// The descriptor at which an engine finds its listening socket.
inline constexpr int kEngineListenerFd = 3;

// The process has the arguments of the engine with that number.
[[nodiscard]] bool is_engine(pid_t pid, EngineId id);
// The process stands still by SIGSTOP (state T).
[[nodiscard]] bool is_stopped(pid_t pid);

// The pid that spawn_engine wrote, if it still is an engine with this number; else 0.
[[nodiscard]] pid_t recorded_engine(const EngineSpec& spec);

}  // namespace plexrl::engine
