// SPDX-License-Identifier: Apache-2.0
// A LoadLink of HTTP/1.1 requests over one connection that stays open, to plexrld's http.sock. It
// reads no more of an answer than status and length, so that the load costs little itself.
#pragma once

#include <string>

#include "cli/bench/load_link.h"

namespace plexrl::cli {

struct HttpRequest {
  std::string method = "POST";
  std::string path;
  std::string token;  // X-API-Key
  std::string body;   // JSON
};

// Every exchange is this request; answers come in order. An answer that is not 200 ends the load.
// PROTOCOL: it is no HTTP/1.1 with Content-Length. Errors of wire::connect_unix.
[[nodiscard]] Result<std::unique_ptr<LoadLink>> connect_http_link(const std::string& socket,
                                                                  const HttpRequest& request,
                                                                  TimePoint deadline);

}  // namespace plexrl::cli
