// SPDX-License-Identifier: Apache-2.0
// What plexrld says to plexrl-reap: one request and one answer per connection, all numbers 32-bit
// little endian. Root parses it, so it is as plain as can be: a fixed head, then at most
// kMaxReapPids numbers.
//
//   request: "PXR1", job id, uid, count, then count pids
//   answer:  "PXR1", stopped, gone, refused        (of the pids of the request)
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plexrl::wire {

inline constexpr std::size_t kReapHeadBytes = 16;
inline constexpr std::size_t kReapAnswerBytes = 16;
inline constexpr std::uint32_t kMaxReapPids = 4096;

struct ReapRequest {
  std::uint32_t job_id = 0;
  std::uint32_t uid = 0;
  std::vector<pid_t> pids;
};
struct ReapAnswer {
  std::uint32_t stopped = 0;  // got SIGKILL
  std::uint32_t gone = 0;     // had ended already
  std::uint32_t refused = 0;  // not of that job and user
};

[[nodiscard]] std::string encode(const ReapRequest& request);
[[nodiscard]] std::string encode(const ReapAnswer& answer);
// How many bytes of pids follow the head. PROTOCOL: not a head, or more than kMaxReapPids.
[[nodiscard]] Result<std::size_t> reap_body_bytes(std::string_view head);
// PROTOCOL unless `bytes` is a head and exactly the pids that it announces.
[[nodiscard]] Result<ReapRequest> decode_reap_request(std::string_view bytes);
[[nodiscard]] Result<ReapAnswer> decode_reap_answer(std::string_view bytes);

}  // namespace plexrl::wire
