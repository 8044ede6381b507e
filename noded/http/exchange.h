// SPDX-License-Identifier: Apache-2.0
// Exchange: one HTTP request and its answer. HttpServer makes it when the head has come and hands
// it to the Application when the body has; it is gone when the answer is written or the client is.
// What may outlive it (ops, models that are being made) names it by its id. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/strong_id.h"
#include "wire/unix_socket.h"

namespace plexrl::http {

struct Request {
  std::string method;
  std::string path;                  // as it was sent, not decoded, without the query
  std::string token;                 // of X-API-Key, or of Authorization: Bearer
  std::string content_type, accept;  // "" where there is none
  // As it was sent, not decoded; values of one name are joined by commas.
  std::map<std::string, std::string> query{};
  std::string body;
  wire::PeerCredentials peer;
  bool by_tcp = false;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::uint32_t retry_after_ms = 0;  // 0: no such header
  std::string allow;                 // of a 405: the methods that the path has
};

// What runs for a request. Destroyed with the exchange, also while it waits: it then ends its op.
class Handler {
 public:
  Handler() = default;
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;
  virtual ~Handler() = default;
};

class Exchange {
 public:
  // `answered` is called once, from inside answer().
  Exchange(SessionId id, std::function<void()> answered)
      : id_(id), answered_(std::move(answered)) {}

  // Also the session of its ops (runtime/op_service.h), so that they end with it.
  [[nodiscard]] SessionId id() const { return id_; }
  [[nodiscard]] Request& request() { return request_; }
  // Once; a second answer is dropped. The handler lives on until the answer is written.
  void answer(Response response);
  [[nodiscard]] bool is_answered() const { return is_answered_; }
  [[nodiscard]] const Response& response() const { return response_; }

  // Keeps the connection's tenant, for TenantService::tick and at the end of the job.
  void belongs_to(TenantId tenant) { tenant_ = tenant; }
  [[nodiscard]] TenantId tenant() const { return tenant_; }

  void set_handler(std::unique_ptr<Handler> handler) { handler_ = std::move(handler); }
  [[nodiscard]] Handler* handler() { return handler_.get(); }

 private:
  SessionId id_;
  std::function<void()> answered_;
  Request request_;
  Response response_;
  bool is_answered_ = false;
  TenantId tenant_;
  std::unique_ptr<Handler> handler_;
};

class Application {
 public:
  virtual ~Application() = default;
  // The largest body that this request may have; its body is not there yet.
  [[nodiscard]] virtual std::size_t body_limit(const Request& request) const = 0;
  // The request is complete. Answers now or later.
  virtual void handle(Exchange& exchange) = 0;
  // What the server answers by itself, in the application's form.
  [[nodiscard]] virtual Response refusal(int status, const std::string& text) const = 0;
  // The job has ended; its requests have been answered.
  virtual void tenant_closed(TenantId) {}
};

}  // namespace plexrl::http
