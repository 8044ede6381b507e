// SPDX-License-Identifier: Apache-2.0
// Route: a row of the tables of Front.
#pragma once

#include <cstdint>

#include "http/model_call.h"

namespace plexrl::http {

inline constexpr std::size_t kNoBody = 4096;
inline constexpr std::size_t kTextBody = std::size_t{1} << 20;
inline constexpr const char* kProtobuf = "application/x-protobuf";

enum class Open : std::uint8_t { kHealth, kMetrics };  // routes without a token

struct Route {
  const char* method;
  const char* path;  // "/*" at the end: whatever follows
  std::size_t body_limit;
  void (*begin)(HttpContext&, Exchange&, TenantId);  // nullptr: `open`
  Open open;
  std::size_t message_limit = 0;  // of a protobuf body, where one is possible
  bool while_draining = false;    // goes on waiting then
};

}  // namespace plexrl::http
