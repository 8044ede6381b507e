// SPDX-License-Identifier: Apache-2.0
// How a subcommand of `plexrl` is made. Each lives in its own file pair NAME_command.{h,cc} with
// one function `void add_NAME(CLI::App& app, Run& chosen)` that declares the subcommand and its
// options and, when the user picks it, stores in `chosen` what to do. The table in commands.cc
// lists them all.
//
// Exit status: 0 ok, 1 failed (the Status goes to stderr, so its text says what to do), 2 usage.
// With --json a command prints one JSON document on stdout and nothing else; progress goes to
// stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "base/status.h"

namespace plexrl::cli {

using Run = std::function<Status()>;

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Stores `run(options)` as the choice when `command` is parsed. The options outlive the parse.
template <class Options, class Function>
void on_chosen(CLI::App& command, Run& chosen, std::shared_ptr<Options> options, Function run) {
  command.callback([&chosen, options, run] { chosen = [options, run] { return run(*options); }; });
}

}  // namespace plexrl::cli
