// SPDX-License-Identifier: Apache-2.0
// Stray engines: those of an earlier plexrld that nobody will connect to any more, because their
// row in the store is gone. They would hold their memory until they notice, an hour later.
#pragma once

#include <set>
#include <string>

#include "base/strong_id.h"

namespace plexrl::engine {

// Ends every engine whose listening socket was bound in `directory` as <id>.sock and whose id is
// not in `known`, and removes the socket and pid files of such ids. A process is taken for an
// engine when it is of our uid, has the arguments of the engine with that id and holds that socket;
// it is killed by pidfd. Pid files are not believed. Blocks for a look at /proc, and for up to two
// seconds until the memory of what it killed is free. For the start of plexrld, before engines are
// started.
void end_stray_engines(const std::string& directory, const std::set<EngineId>& known);

}  // namespace plexrl::engine
