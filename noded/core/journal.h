// SPDX-License-Identifier: Apache-2.0
// Journal: the scheduler's events as bytes, so that a run can be decided again: `plexrl sim
// --replay`.
//
// A segment is a header and records. The header holds a snapshot of the scheduler, the policy and a
// hash of the configuration; each record holds one event, its time, and a CRC of the actions that
// it gave. Header and records are framed as length (4 bytes, little endian), CRC-32 of the payload
// (4 bytes), payload. doc/scheduling.md has the layout. Pure: the caller writes and reads the
// bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/scheduler.h"

namespace plexrl::core {

// A record is some tens of bytes; a header holds a snapshot, about 60 bytes per op and model.
constexpr std::size_t kMaxJournalFrame = std::size_t{64} << 20;

struct JournalHeader {
  std::uint64_t config_hash = 0;  // of the site configuration, for people; not checked by replay
  SchedulerConfig config;  // what the scheduler was made with; `policy` points into the input
  std::string snapshot;    // empty: a new scheduler
};

struct JournalRecord {
  Event event;
  TimePoint at;
  std::uint32_t actions_crc = 0;
};

struct JournalSegment {
  JournalHeader header;
  std::vector<JournalRecord> records;
  std::size_t torn_bytes = 0;  // of a last frame that was not written whole
};

[[nodiscard]] std::string encode_header(const JournalHeader& header);
[[nodiscard]] std::string encode_record(const Event& event, TimePoint at, const Actions& actions);
// Covers the list and the wakeup.
[[nodiscard]] std::uint32_t actions_crc(const Actions& actions);

// CORRUPT, with the byte, when a whole frame is damaged; a torn last frame is what a crash leaves
// and no error. `bytes` must outlive the result.
[[nodiscard]] Result<JournalSegment> decode_segment(std::string_view bytes);

// Decides the segment again. CORRUPT, with the record's number and event, at the first record whose
// actions differ; events that contradict each other abort, as in plexrld.
[[nodiscard]] Result<std::vector<Actions>> replay(const JournalSegment& segment);

}  // namespace plexrl::core
