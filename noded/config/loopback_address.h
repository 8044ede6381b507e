// SPDX-License-Identifier: Apache-2.0
// LoopbackAddress: where plexrld serves HTTP by TCP, as plexrl.yaml has it: "127.0.0.1:585".
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace plexrl::config {

struct LoopbackAddress {
  std::uint32_t host = 0;  // IPv4, in the order of this machine
  std::uint16_t port = 0;
  friend bool operator==(const LoopbackAddress&, const LoopbackAddress&) = default;
};

// UNSUPPORTED: an address that other machines reach. Without TLS whoever is in between would read
// tokens, and the peer's uid, which is half of who may use a token, is known of this machine only.
[[nodiscard]] Result<LoopbackAddress> parse_loopback(std::string_view text);
[[nodiscard]] std::string to_text(const LoopbackAddress& address);

}  // namespace plexrl::config
