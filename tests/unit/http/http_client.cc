// SPDX-License-Identifier: Apache-2.0
#include "http_client.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cctype>
#include <cerrno>

#include "wire/unix_socket.h"

namespace plexrl::http {

HttpClient::HttpClient(const std::string& socket) {
  auto fd = wire::connect_unix(socket, system_clock().now() + Duration{10 * kSecond.ns});
  if (!fd) return;
  fd_ = *std::move(fd);
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  (void)::fcntl(fd_.get(), F_SETFL, flags & ~O_NONBLOCK);
  be_patient();
}

HttpClient::HttpClient(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  fd_ = std::move(fd);
  be_patient();
}

void HttpClient::be_patient() {
  const timeval limit{20, 0};
  (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

bool HttpClient::send(const std::string& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += static_cast<std::size_t>(now);
  }
  return true;
}

bool HttpClient::more() {
  char part[4096];
  const ssize_t got = ::recv(fd_.get(), part, sizeof part, 0);
  if (got <= 0) return false;
  buffer_.append(part, static_cast<std::size_t>(got));
  return true;
}

bool HttpClient::ended() {
  char byte = 0;
  const ssize_t got = ::recv(fd_.get(), &byte, 1, 0);
  return buffer_.empty() && (got == 0 || (got < 0 && errno == ECONNRESET));
}

std::optional<HttpReply> HttpClient::read() {
  std::size_t end = std::string::npos;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!more()) return std::nullopt;
  const std::string head = buffer_.substr(0, end + 2);
  HttpReply reply;
  if (head.rfind("HTTP/1.1 ", 0) != 0) return std::nullopt;
  reply.status = std::atoi(head.c_str() + 9);
  for (std::size_t line = head.find("\r\n") + 2; line < head.size();) {
    const std::size_t stop = head.find("\r\n", line);
    const std::size_t colon = head.find(": ", line);
    std::string name = head.substr(line, colon - line);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    reply.headers[name] = head.substr(colon + 2, stop - colon - 2);
    line = stop + 2;
  }
  const std::size_t bytes =
      reply.headers.contains("content-length") ? std::stoul(reply.headers["content-length"]) : 0;
  while (buffer_.size() < end + 4 + bytes)
    if (!more()) return std::nullopt;
  reply.body = buffer_.substr(end + 4, bytes);
  buffer_.erase(0, end + 4 + bytes);
  return reply;
}

std::optional<HttpReply> HttpClient::get(const std::string& path, const std::string& headers) {
  (void)send(get_request(path, headers));
  return read();
}

std::optional<HttpReply> HttpClient::post(const std::string& path, const std::string& body,
                                          const std::string& headers) {
  (void)send(post_request(path, body, headers));
  return read();
}

std::string get_request(const std::string& path, const std::string& headers) {
  return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
}

std::string post_request(const std::string& path, const std::string& body,
                         const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

}  // namespace plexrl::http
