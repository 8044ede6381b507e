// SPDX-License-Identifier: Apache-2.0
// The server alone, with an application that echoes, on a real socket with raw bytes. The loop runs
// in a thread of its own.
#include "http/http_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "../loop/loop_thread.h"
#include "http_client.h"

namespace plexrl::http {
namespace {

constexpr std::size_t kLimit = 100000;

// Counts the handlers that are there.
class Counted final : public Handler {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() override { --count_; }

 private:
  std::atomic<int>& count_;
};

// "/echo" answers with method and body, "/wait" when it is told to.
class EchoApp final : public Application {
 public:
  std::size_t body_limit(const Request&) const override { return kLimit; }
  void handle(Exchange& exchange) override {
    exchange.belongs_to(TenantId{7});
    exchange.set_handler(std::make_unique<Counted>(handlers));
    order += exchange.request().token;
    if (exchange.request().path == "/wait") {
      waiting.push_back(exchange.id());
      ++waits;
      return;
    }
    Response response;
    response.body = exchange.request().method + " " + exchange.request().path + " " +
                    exchange.request().token + " " + exchange.request().body;
    exchange.answer(std::move(response));
  }
  Response refusal(int status, const std::string& text) const override {
    Response response;
    response.status = status;
    response.body = text;
    return response;
  }

  std::vector<SessionId> waiting;  // of the loop's thread
  std::string order;
  std::atomic<int> waits{0};
  std::atomic<int> handlers{0};
};

class HttpServerTest : public LoopThreadTest {
 protected:
  HttpServerTest() { ::signal(SIGPIPE, SIG_IGN); }
  ~HttpServerTest() override {
    stop_loop([this] { server_.reset(); });
  }
  void start(HttpLimits limits = {}) {
    auto listener = wire::listen_unix(socket_, 0666);
    ASSERT_TRUE(listener) << listener.error().to_string();
    auto server = HttpServer::create(*loop_, *std::move(listener), app_, limits);
    ASSERT_TRUE(server) << server.error().to_string();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->start().ok());
    run_loop();
  }
  HttpCounts counts() {
    HttpCounts counts;
    on_loop([&] { counts = server_->counts(); });
    return counts;
  }
  // Until `true_now` is; a test that never gets there is ended by its runner.
  template <class Condition>
  void until(Condition true_now) {
    while (!true_now()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::string socket_ = dir_ + "/http.sock";
  EchoApp app_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AConnectionTakesOneRequestAfterTheOther) {
  start();
  HttpClient client(socket_);
  const auto first = client.get("/echo", "X-API-Key: key\r\n");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->status, 200);
  EXPECT_EQ(first->body, "GET /echo key ");
  EXPECT_EQ(first->headers.at("content-type"), "application/json");
  const auto second = client.post("/echo", "hello", "authorization: bearer other\r\n");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->body, "POST /echo other hello");
  EXPECT_EQ(counts().accepted, 1U);
  EXPECT_EQ(counts().answers.at(200), 2U);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  HttpClient client(socket_);
  ASSERT_TRUE(
      client.send(get_request("/echo?a") + post_request("/echo", "two") + get_request("/three")));
  EXPECT_EQ(client.read()->body, "GET /echo  ");
  EXPECT_EQ(client.read()->body, "POST /echo  two");
  EXPECT_EQ(client.read()->body, "GET /three  ");
}

TEST_F(HttpServerTest, PathsAreKeptAsTheyWereSent) {
  start();
  HttpClient client(socket_);
  EXPECT_EQ(client.get("/../%2e%2e/%00/x//y")->body, "GET /../%2e%2e/%00/x//y  ");
}

TEST_F(HttpServerTest, ABodyOfTheLimitIsTakenAndAByteMoreIsNot) {
  start();
  const std::string most(kLimit, 'x');
  HttpClient client(socket_);
  EXPECT_EQ(client.post("/echo", most)->body, "POST /echo  " + most);
  const auto refused = client.post("/echo", most + "x");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 413);
  EXPECT_NE(refused->body.find("100000 bytes"), std::string::npos);
  EXPECT_TRUE(client.ended());
  // Before any of it is there.
  HttpClient announced(socket_);
  ASSERT_TRUE(
      announced.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"));
  EXPECT_EQ(announced.read()->status, 413);
}

TEST_F(HttpServerTest, ABodyInChunksHasTheSameLimit) {
  start();
  const std::string chunk(0x8000, 'x');
  const auto request = [&](int chunks) {
    std::string text = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < chunks; ++i) text += "8000\r\n" + chunk + "\r\n";
    return text + "0\r\n\r\n";
  };
  HttpClient good(socket_);
  ASSERT_TRUE(good.send(request(3)));
  EXPECT_EQ(good.read()->body.size(), std::string("POST /echo  ").size() + 3 * chunk.size());
  HttpClient large(socket_);
  ASSERT_TRUE(large.send(request(5)));
  EXPECT_EQ(large.read()->status, 413);
  // One that does not end is cut off.
  HttpClient endless(socket_);
  (void)endless.send(request(64));
  EXPECT_FALSE(endless.read());
}

TEST_F(HttpServerTest, AFloodOfHeadersIsRefused) {
  start();
  HttpClient client(socket_);
  std::string flood = "GET /echo HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 2000; ++i)
    flood += "X-" + std::to_string(i) + ": " + std::string(64, 'y') + "\r\n";
  (void)client.send(flood + "\r\n");
  const auto refused = client.read();
  EXPECT_TRUE(!refused || refused->status == 431 || refused->status == 413) << refused->status;
  HttpClient longer(socket_);
  (void)longer.send("GET /" + std::string(100000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto uri = longer.read();
  EXPECT_TRUE(!uri || uri->status == 414) << uri->status;
  HttpClient after(socket_);
  EXPECT_EQ(after.get("/echo")->status, 200);
}

TEST_F(HttpServerTest, GarbageEndsThatConnectionOnly) {
  start();
  HttpClient bystander(socket_);
  const std::string garbage[] = {
      "x\r\n\r\n",
      "GET\r\n\r\n",
      "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1x\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "GET /echo HTTP/1.1\r\n\r\n"};
  for (const std::string& bytes : garbage) {
    HttpClient client(socket_);
    (void)client.send(bytes);
    ::shutdown(client.fd(), SHUT_WR);
    const auto reply = client.read();
    EXPECT_TRUE(!reply || reply->status >= 400) << bytes << reply->status;
  }
  EXPECT_EQ(bystander.get("/echo")->status, 200);
}

TEST_F(HttpServerTest, ATruncatedRequestNeverReachesTheApplication) {
  start();
  HttpClient head(socket_);
  ASSERT_TRUE(head.send("POST /wait HTTP/1.1\r\nHost: x\r\nContent-Le"));
  head.close();
  HttpClient client(socket_);
  ASSERT_TRUE(client.send("POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"));
  client.close();
  until([&] { return counts().connections == 0; });
  EXPECT_EQ(app_.waits, 0);
}

TEST_F(HttpServerTest, WhatComesTooSlowlyIsEnded) {
  HttpLimits limits;
  limits.head_time = limits.body_time = Duration{50 * kMillisecond.ns};
  start(limits);
  HttpClient head(socket_);
  ASSERT_TRUE(head.send("GET /echo HT"));
  HttpClient body(socket_);
  ASSERT_TRUE(body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"));
  HttpClient zeros(socket_);
  ASSERT_TRUE(zeros.send(std::string(100, '\0')));
  HttpClient idle(socket_);
  EXPECT_FALSE(head.read());
  EXPECT_FALSE(body.read());
  EXPECT_FALSE(zeros.read());
  EXPECT_TRUE(idle.ended());
  EXPECT_EQ(counts().late, 4U);
  EXPECT_EQ(app_.waits, 0);
}

TEST_F(HttpServerTest, ARequestThatWaitsHasNoTimeLimit) {
  HttpLimits limits;
  limits.head_time = limits.body_time = Duration{20 * kMillisecond.ns};
  start(limits);
  HttpClient client(socket_);
  ASSERT_TRUE(client.send(get_request("/wait")));
  until([&] { return app_.waits == 1; });
  HttpClient idle(socket_);
  EXPECT_TRUE(idle.ended());  // so the time is over
  EXPECT_EQ(app_.handlers, 1);
  on_loop([&] {
    Response response;
    response.body = "now";
    server_->find(app_.waiting[0])->answer(std::move(response));
  });
  EXPECT_EQ(client.read()->body, "now");
  EXPECT_EQ(app_.handlers, 0);
}

TEST_F(HttpServerTest, AClientThatGoesAwayEndsItsHandler) {
  start();
  HttpClient client(socket_);
  ASSERT_TRUE(client.send(get_request("/wait")));
  until([&] { return app_.handlers == 1; });
  client.close();
  until([&] { return app_.handlers == 0; });
  on_loop([&] { EXPECT_EQ(server_->find(app_.waiting[0]), nullptr); });
  until([&] { return counts().connections == 0; });
}

TEST_F(HttpServerTest, AClientThatHasOnlyFinishedSendingIsAnswered) {
  start();
  HttpClient client(socket_);
  ASSERT_TRUE(client.send(get_request("/wait")));
  ::shutdown(client.fd(), SHUT_WR);
  until([&] { return app_.waits == 1; });
  on_loop([&] { server_->find(app_.waiting[0])->answer({}); });
  EXPECT_EQ(client.read()->status, 200);
}

TEST_F(HttpServerTest, ConnectionsAreBounded) {
  HttpLimits limits;
  limits.connections = 8;
  start(limits);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<HttpClient>(socket_));
  for (auto& client : clients) ASSERT_TRUE(client->get("/echo"));
  HttpClient more(socket_);
  EXPECT_FALSE(more.get("/echo"));
  EXPECT_EQ(counts().refused, 1U);
  clients.pop_back();
  until([&] { return counts().connections == 3; });
  HttpClient room(socket_);
  EXPECT_TRUE(room.get("/echo"));
}

TEST_F(HttpServerTest, BytesOfBodiesAreBounded) {
  HttpLimits limits;
  limits.body_bytes = 1000;
  start(limits);
  HttpClient client(socket_);
  EXPECT_EQ(client.post("/echo", std::string(500, 'x'))->status, 200);
  const auto refused = client.post("/echo", std::string(501, 'x'));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 429);
  // What is held by a request that waits counts.
  HttpClient waits(socket_);
  ASSERT_TRUE(waits.send(post_request("/wait", std::string(400, 'x'))));
  until([&] { return app_.waits == 1; });
  HttpClient next(socket_);
  EXPECT_EQ(next.post("/echo", std::string(200, 'x'))->status, 429);
  waits.close();
  until([&] { return app_.handlers == 0; });
  HttpClient after(socket_);
  until([&] { return counts().under_way == 0; });
  EXPECT_EQ(after.post("/echo", std::string(200, 'x'))->status, 200);
}

TEST_F(HttpServerTest, ThousandsOfRequestsWaitAndAreAnswered) {
  start();
  constexpr std::size_t kMany = 500;
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (std::size_t i = 0; i < kMany; ++i) {
    clients.push_back(std::make_unique<HttpClient>(socket_));
    ASSERT_TRUE(clients.back()->send(get_request("/wait")));
  }
  until([&] { return app_.waits == kMany; });
  on_loop([&] {
    for (const SessionId id : app_.waiting) server_->find(id)->answer({});
  });
  for (auto& client : clients) ASSERT_EQ(client->read()->status, 200);
}

TEST_F(HttpServerTest, AnEndedJobsRequestsAreToldAndItsConnectionsGo) {
  start();
  HttpClient waits(socket_);
  ASSERT_TRUE(waits.send(get_request("/wait")));
  HttpClient idle(socket_);
  ASSERT_TRUE(idle.get("/echo"));
  until([&] { return app_.waits == 1; });
  on_loop([&] {
    EXPECT_EQ(server_->connected(), std::set<TenantId>{TenantId{7}});
    server_->close_tenant(TenantId{7});
  });
  EXPECT_EQ(waits.read()->status, 401);
  EXPECT_TRUE(idle.ended());
}

TEST_F(HttpServerTest, ADrainEndsWhatIsIdleAndAnswersWhatWaits) {
  start();
  HttpClient idle(socket_);
  ASSERT_TRUE(idle.get("/echo"));
  HttpClient waits(socket_);
  ASSERT_TRUE(waits.send(get_request("/wait")));
  until([&] { return app_.waits == 1; });
  on_loop([&] { server_->drain(); });
  EXPECT_TRUE(idle.ended());
  on_loop([&] {
    EXPECT_FALSE(server_->idle());
    server_->refuse_waiting(error(Code::UNAVAILABLE, "later"));
  });
  const auto reply = waits.read();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 503);
  EXPECT_EQ(reply->headers.at("connection"), "close");
  EXPECT_TRUE(waits.ended());
  until([&] {
    bool idle_now = false;
    on_loop([&] { idle_now = server_->idle(); });
    return idle_now;
  });
}

TEST_F(HttpServerTest, ItMayStopWhileRequestsWait) {
  start();
  HttpClient waits(socket_);
  ASSERT_TRUE(waits.send(get_request("/wait")));
  HttpClient half(socket_);
  ASSERT_TRUE(half.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"));
  until([&] { return app_.waits == 1; });
  on_loop([&] { server_.reset(); });
  EXPECT_FALSE(waits.read());
  EXPECT_EQ(app_.handlers, 0);
}

}  // namespace
}  // namespace plexrl::http
