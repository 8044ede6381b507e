// SPDX-License-Identifier: Apache-2.0
#include "core/journal.h"

#include "core/byte_codec.h"
#include "core/event_codec.h"

namespace plexrl::core {
namespace {

constexpr std::string_view kMagic = "PXJ3";
constexpr std::size_t kFrameHead = 8;

std::string frame(std::string_view payload) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(payload.size()));
  out.u32(crc32(payload));
  return out.take().append(payload);
}

Status damaged(std::size_t at, const char* what) {
  return error(Code::CORRUPT, "journal: byte %zu: %s; what is before it can be replayed alone", at,
               what);
}

// Takes frames off the front. A frame that reaches past the end was torn by a crash.
class Frames {
 public:
  explicit Frames(std::string_view bytes) : bytes_(bytes) {}

  // False at the end, whole or torn.
  [[nodiscard]] Result<bool> next(std::string_view* payload) {
    const std::string_view left = bytes_.substr(at_);
    if (left.size() < kFrameHead) return false;
    ByteReader head(left);
    const std::size_t size = head.u32();
    const std::uint32_t crc = head.u32();
    if (size > kMaxJournalFrame) return damaged(at_, "a frame is over the limit");
    if (left.size() - kFrameHead < size) return false;
    *payload = left.substr(kFrameHead, size);
    if (crc32(*payload) != crc) return damaged(at_, "checksum");
    last_ = at_;
    at_ += kFrameHead + size;
    return true;
  }
  [[nodiscard]] std::size_t last() const { return last_; }  // where the last frame begins
  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t last_ = 0;
};

Result<JournalHeader> decode_header(std::string_view payload) {
  ByteReader in(payload);
  if (in.text() != kMagic) return damaged(0, "not a journal of this version");
  JournalHeader header;
  header.config_hash = in.varint();
  header.config.device_capacity_bytes = in.varint();
  header.config.policy = in.text();
  header.config.quantum.ns = static_cast<std::int64_t>(in.varint());
  header.snapshot = std::string(in.text());
  if (!in.at_end()) return damaged(0, "the header contradicts itself");
  return header;
}

}  // namespace

std::string encode_header(const JournalHeader& header) {
  ByteWriter out;
  out.text(kMagic);
  out.varint(header.config_hash);
  out.varint(header.config.device_capacity_bytes);
  out.text(header.config.policy);
  out.varint(static_cast<std::uint64_t>(header.config.quantum.ns));
  out.text(header.snapshot);
  return frame(out.bytes());
}

std::uint32_t actions_crc(const Actions& actions) {
  ByteWriter out;
  encode_actions(out, actions);
  return crc32(out.bytes());
}

std::string encode_record(const Event& event, TimePoint at, const Actions& actions) {
  ByteWriter out;
  out.varint(static_cast<std::uint64_t>(at.ns));
  encode_event(out, event);
  out.u32(actions_crc(actions));
  return frame(out.bytes());
}

Result<JournalSegment> decode_segment(std::string_view bytes) {
  Frames frames(bytes);
  std::string_view payload;
  PLEXRL_ASSIGN(const bool has_header, frames.next(&payload));
  if (!has_header) return damaged(0, "no header");
  JournalSegment segment;
  PLEXRL_ASSIGN(segment.header, decode_header(payload));
  for (;;) {
    PLEXRL_ASSIGN(const bool more, frames.next(&payload));
    if (!more) break;
    ByteReader in(payload);
    JournalRecord record;
    record.at.ns = static_cast<std::int64_t>(in.varint());
    record.event = decode_event(in);
    record.actions_crc = in.u32();
    if (!in.at_end()) return damaged(frames.last(), "a record contradicts itself");
    segment.records.push_back(std::move(record));
  }
  segment.torn_bytes = frames.left();
  return segment;
}

Result<std::vector<Actions>> replay(const JournalSegment& segment) {
  const JournalHeader& header = segment.header;
  PLEXRL_ASSIGN(auto scheduler, header.snapshot.empty()
                                    ? Scheduler::create(header.config)
                                    : Scheduler::restore(header.config, header.snapshot));
  std::vector<Actions> all;
  for (const JournalRecord& record : segment.records) {
    all.push_back(scheduler->step(record.event, record.at));
    if (actions_crc(all.back()) != record.actions_crc)
      return error(Code::CORRUPT, "journal: record %zu (event kind %zu) gave other actions",
                   all.size(), record.event.index());
  }
  return all;
}

}  // namespace plexrl::core
