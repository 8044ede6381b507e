// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/http_link.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "wire/unix_socket.h"

namespace plexrl::cli {
namespace {

constexpr std::size_t kMaxHead = 16384;
constexpr std::size_t kMaxBody = 1 << 20;

struct Head {
  int status = 0;
  std::size_t bytes = 0;  // of head and body
};

// The value of a header in the lines behind the first one.
std::string_view header(std::string_view lines, std::string_view name) {
  while (!lines.empty()) {
    const std::size_t end = lines.find("\r\n");
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 2);
    if (line.size() <= name.size() || line[name.size()] != ':' ||
        ::strncasecmp(line.data(), name.data(), name.size()) != 0)
      continue;
    const std::size_t value = line.find_first_not_of(" \t", name.size() + 1);
    return value == std::string_view::npos ? std::string_view() : line.substr(value);
  }
  return {};
}

template <class Number>
bool read_number(std::string_view text, Number* number) {
  return std::from_chars(text.data(), text.data() + text.size(), *number).ec == std::errc();
}

// nullopt: it has not come whole.
Result<std::optional<Head>> parse_head(std::string_view bytes) {
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  const std::size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    if (bytes.size() > kMaxHead) return error(Code::PROTOCOL, "the head of an answer has no end");
    return std::optional<Head>();
  }
  const std::string_view head = bytes.substr(0, end);
  const std::size_t first = std::min(head.find("\r\n"), head.size());
  Head found;
  std::size_t length = 0;
  if (!head.starts_with(kVersion) || !read_number(head.substr(kVersion.size(), 3), &found.status) ||
      !read_number(header(head.substr(first), "content-length"), &length) || length > kMaxBody)
    return error(Code::PROTOCOL, "an answer is no HTTP/1.1 with its length");
  found.bytes = end + 4 + length;
  return std::optional<Head>(found);
}

class HttpLink final : public StreamLink {
 public:
  HttpLink(UniqueFd socket, std::string request)
      : StreamLink("HTTP under load", std::move(socket), std::move(request)) {}

 private:
  [[nodiscard]] Status take(std::string_view bytes, std::vector<std::size_t>& replies) override {
    come_ += bytes;
    while (true) {
      PLEXRL_ASSIGN(const auto head, parse_head(come_));
      if (!head || come_.size() < head->bytes) return {};
      if (head->status != 200)
        return error(Code::INTERNAL, "HTTP under load: status %d: %s", head->status,
                     come_.substr(come_.find("\r\n\r\n") + 4, 300).c_str());
      replies.push_back(head->bytes);
      come_.erase(0, head->bytes);
    }
  }

  std::string come_;  // of answers that are not complete; kMaxHead and kMaxBody bound it
};

}  // namespace

Result<std::unique_ptr<LoadLink>> connect_http_link(const std::string& socket,
                                                    const HttpRequest& request,
                                                    TimePoint deadline) {
  PLEXRL_ASSIGN(UniqueFd connection, wire::connect_unix(socket, deadline));
  std::string text = request.method + " " + request.path + " HTTP/1.1\r\nHost: plexrl\r\n";
  if (!request.token.empty()) text += "X-API-Key: " + request.token + "\r\n";
  if (!request.body.empty())
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(request.body.size()) +
        "\r\n";
  text += "\r\n" + request.body;
  return std::unique_ptr<LoadLink>(
      std::make_unique<HttpLink>(std::move(connection), std::move(text)));
}

}  // namespace plexrl::cli
