// SPDX-License-Identifier: Apache-2.0
// Errors as clients of OpenAI's API read them:
//   {"error":{"message":"...","type":"BadRequestError","param":"max_tokens"|null,"code":"..."}}
// `code` is the name of our own code (libplexrl(3)).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "http/exchange.h"

namespace plexrl::http {

// 200 for OK. AUTH 401, NOT_FOUND 404, BUSY 429, what may be retried 503, what is wrong 400.
[[nodiscard]] int http_status(Code code);
// `retry_after_ms` 0: a second, where a retry helps. `field`: of the request, or "".
[[nodiscard]] Response error_response(const Status& status, std::uint32_t retry_after_ms = 0,
                                      const std::string& field = "");
[[nodiscard]] Response error_response(int http_status, Code code, const std::string& text,
                                      const std::string& field = "");
// As a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace plexrl::http
