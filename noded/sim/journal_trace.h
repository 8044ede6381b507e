// SPDX-License-Identifier: Apache-2.0
// A journal of plexrld (core/journal.h) decided again, and turned into a trace.
#pragma once

#include "core/journal.h"
#include "sim/trace.h"

namespace plexrl::sim {

struct ReplaySummary {
  std::size_t records = 0;
  std::size_t actions = 0;
  std::size_t torn_bytes = 0;  // of a last record that a crash cut off
  std::string policy;
  std::uint64_t device_bytes = 0;  // for models and KV
  Duration quantum{};
  Duration span{};  // from the first record to the last
};

// CORRUPT: damaged, or a record whose actions differ from those of plexrld; the text names it.
[[nodiscard]] Result<ReplaySummary> replay_journal(std::string_view bytes);

// One job for each model that had ops, each op with its device time, and the time from the latest
// end of an op of the same model to its arrival. What is not in the journal from arrival to end is
// left out, as are cancelled ops. A base counts to each of its adapters.
[[nodiscard]] Result<std::vector<TraceJob>> journal_jobs(std::string_view bytes,
                                                         const std::string& kind);

}  // namespace plexrl::sim
