// SPDX-License-Identifier: Apache-2.0
#include "wire/reap_message.h"

namespace plexrl::wire {
namespace {

constexpr std::string_view kMagic = "PXR1";
constexpr std::size_t kWord = 4;

void put(std::string& out, std::uint32_t value) {
  for (unsigned shift = 0; shift < 32; shift += 8)
    out.push_back(static_cast<char>(static_cast<unsigned char>(value >> shift)));
}

// The caller has checked the size.
std::uint32_t word(std::string_view bytes, std::size_t index) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < kWord; ++i)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[index * kWord + i]))
             << (8 * i);
  return value;
}

}  // namespace

std::string encode(const ReapRequest& request) {
  std::string out(kMagic);
  put(out, request.job_id);
  put(out, request.uid);
  put(out, static_cast<std::uint32_t>(request.pids.size()));
  for (const pid_t pid : request.pids) put(out, static_cast<std::uint32_t>(pid));
  return out;
}

std::string encode(const ReapAnswer& answer) {
  std::string out(kMagic);
  for (const std::uint32_t value : {answer.stopped, answer.gone, answer.refused}) put(out, value);
  return out;
}

Result<std::size_t> reap_body_bytes(std::string_view head) {
  if (head.size() != kReapHeadBytes || head.substr(0, kMagic.size()) != kMagic)
    return error(Code::PROTOCOL, "not a request to plexrl-reap");
  const std::uint32_t count = word(head, 3);
  if (count > kMaxReapPids)
    return error(Code::PROTOCOL, "%u pids in one request, the limit is %u", count, kMaxReapPids);
  return count * kWord;
}

Result<ReapRequest> decode_reap_request(std::string_view bytes) {
  PLEXRL_ASSIGN(const std::size_t body, reap_body_bytes(bytes.substr(0, kReapHeadBytes)));
  if (bytes.size() != kReapHeadBytes + body)
    return error(Code::PROTOCOL, "a request to plexrl-reap of %zu bytes", bytes.size());
  ReapRequest request;
  request.job_id = word(bytes, 1);
  request.uid = word(bytes, 2);
  for (std::size_t i = 0; i < body / kWord; ++i)
    request.pids.push_back(static_cast<pid_t>(word(bytes, 4 + i)));
  return request;
}

Result<ReapAnswer> decode_reap_answer(std::string_view bytes) {
  if (bytes.size() != kReapAnswerBytes || bytes.substr(0, kMagic.size()) != kMagic)
    return error(Code::PROTOCOL, "not an answer of plexrl-reap");
  return ReapAnswer{word(bytes, 1), word(bytes, 2), word(bytes, 3)};
}

}  // namespace plexrl::wire
