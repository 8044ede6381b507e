// SPDX-License-Identifier: Apache-2.0
#include "config/loopback_address.h"

#include <arpa/inet.h>

#include <charconv>

namespace plexrl::config {
namespace {

constexpr std::uint32_t kLoopbackNet = 127;  // 127.0.0.0/8

bool parse_port(std::string_view text, std::uint16_t* port) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), *port);
  return failure == std::errc() && end == text.data() + text.size() && *port != 0 &&
         text.front() != '0';
}

}  // namespace

Result<LoopbackAddress> parse_loopback(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::string shown(text.substr(0, 80));
  LoopbackAddress address;
  in_addr host{};
  if (colon == std::string_view::npos || colon + 1 == text.size() ||
      ::inet_pton(AF_INET, std::string(text.substr(0, colon)).c_str(), &host) != 1 ||
      !parse_port(text.substr(colon + 1), &address.port))
    return error(Code::INVALID_ARGUMENT,
                 "'%s' is not an IPv4 address with a port, such as 127.0.0.1:585", shown.c_str());
  address.host = ntohl(host.s_addr);
  if (address.host >> 24 == kLoopbackNet) return address;
  return error(Code::UNSUPPORTED,
               "'%s' can be reached from other machines, and this version has no TLS: write an "
               "address in 127.0.0.0/8, such as 127.0.0.1:%u",
               shown.c_str(), static_cast<unsigned>(address.port));
}

std::string to_text(const LoopbackAddress& address) {
  const in_addr host{htonl(address.host)};
  char text[INET_ADDRSTRLEN] = {};
  (void)::inet_ntop(AF_INET, &host, text, sizeof text);
  return std::string(text) + ":" + std::to_string(address.port);
}

}  // namespace plexrl::config
