// SPDX-License-Identifier: Apache-2.0
#include "http/api_error.h"

#include <cstdio>

#include "tokenizer/utf8.h"

namespace plexrl::http {
namespace {

constexpr std::uint32_t kRetryAfterMs = 1000;

const char* type_name(int status) {
  switch (status) {
    case 401:
      return "AuthenticationError";
    case 403:
      return "PermissionDeniedError";
    case 404:
      return "NotFoundError";
    case 429:
      return "RateLimitError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return status >= 500 ? "InternalServerError" : "BadRequestError";
  }
}

}  // namespace

int http_status(Code code) {
  switch (code) {
    case Code::OK:
      return 200;
    case Code::AUTH:
      return 401;
    case Code::PERMISSION:
      return 403;
    case Code::NOT_FOUND:
      return 404;
    case Code::LOST:
      return 410;
    case Code::BUSY:
      return 429;
    case Code::UNAVAILABLE:
    case Code::ENGINE_DOWN:
    case Code::TIMEOUT:
    case Code::CANCELLED:
      return 503;
    case Code::CORRUPT:
    case Code::IO:
    case Code::PROTOCOL:
    case Code::INTERNAL:
      return 500;
    default:
      return 400;
  }
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : tokenizer::replace_invalid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    char escaped[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

Response error_response(int http_status, Code code, const std::string& text,
                        const std::string& field) {
  Response response;
  response.status = http_status;
  response.body = "{\"error\":{\"message\":" + json_string(text) + ",\"type\":\"" +
                  type_name(http_status) +
                  "\",\"param\":" + (field.empty() ? "null" : json_string(field)) +
                  ",\"code\":" + json_string(code_name(code)) + "}}";
  return response;
}

Response error_response(const Status& status, std::uint32_t retry_after_ms,
                        const std::string& field) {
  Response response =
      error_response(http_status(status.code()), status.code(), status.text(), field);
  if (response.status == 429 || response.status == 503)
    response.retry_after_ms = retry_after_ms > 0 ? retry_after_ms : kRetryAfterMs;
  return response;
}

}  // namespace plexrl::http
