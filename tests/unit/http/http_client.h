// SPDX-License-Identifier: Apache-2.0
// HttpClient: a connection to an HTTP socket that sends whatever bytes it is told to.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace plexrl::http {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class HttpClient {
 public:
  explicit HttpClient(const std::string& socket);
  explicit HttpClient(std::uint16_t port);  // of 127.0.0.1

  [[nodiscard]] bool connected() const { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Whether all of it was taken.
  bool send(const std::string& bytes);
  // The next answer; none when the connection ends first, or nothing comes for 20 seconds.
  std::optional<HttpReply> read();
  // Nothing comes any more.
  bool ended();
  void close() { fd_.reset(); }

  // An answer may come before all of the request was taken.
  std::optional<HttpReply> get(const std::string& path, const std::string& headers = "");
  std::optional<HttpReply> post(const std::string& path, const std::string& body,
                                const std::string& headers = "");

 private:
  void be_patient();
  bool more();
  UniqueFd fd_;
  std::string buffer_;
};

std::string get_request(const std::string& path, const std::string& headers = "");
std::string post_request(const std::string& path, const std::string& body,
                         const std::string& headers = "");

}  // namespace plexrl::http
