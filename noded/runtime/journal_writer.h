// SPDX-License-Identifier: Apache-2.0
// JournalWriter: the scheduler's events and decisions as journal segments (core/journal.h) in
// <dir>/<number>.journal, for `plexrl sim --replay`. Events are buffered and written from flush();
// a crash loses at most the buffer. A disk that refuses ends the segment, never the service: the
// journal explains, nothing is restored from it. The newest kKeptSegments segments are kept. Loop
// thread only.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "core/journal.h"

namespace plexrl::runtime {

class JournalWriter {
 public:
  static constexpr std::size_t kBufferBytes = 256U << 10;
  static constexpr std::uint64_t kSegmentBytes = 64ULL << 20;
  static constexpr std::size_t kKeptSegments = 4;

  explicit JournalWriter(std::string dir) : dir_(std::move(dir)) {}
  ~JournalWriter() { flush(); }
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  // Begins a segment with the scheduler's snapshot; `header.snapshot` is filled in.
  [[nodiscard]] Status begin(core::JournalHeader header, const core::Scheduler& scheduler);
  void record(const core::Event& event, TimePoint at, const core::Actions& actions);
  // The segment is full: the caller begins another one, between two events.
  [[nodiscard]] bool wants_new_segment() const { return written_ >= kSegmentBytes; }
  void flush();

 private:
  void prune();
  std::string dir_;
  UniqueFd file_;
  std::string buffer_;
  std::uint64_t written_ = 0;
};

}  // namespace plexrl::runtime
