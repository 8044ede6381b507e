// SPDX-License-Identifier: Apache-2.0
// WebNodeTest: a node on fake engines with its HTTP socket, and job 11 with its token. The loop
// runs in a thread of its own; everything of the node is touched there only.
#pragma once

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "../api/node_loop.h"
#include "http/front.h"
#include "http_client.h"

namespace plexrl::http {

class WebNodeTest : public NodeLoopTest {
 protected:
  WebNodeTest() { ::signal(SIGPIPE, SIG_IGN); }
  ~WebNodeTest() override {
    stop_loop([this] { http_.reset(); });
  }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "opening jobs needs root";
    const Status started = start();
    ASSERT_TRUE(started.ok()) << started.to_string();
    run_loop();
    token_ = open_job(11);
  }

  Status start() {
    PLEXRL_TRY(make_node());
    PLEXRL_ASSIGN(auto web, wire::listen_unix(dir_ + "/http.sock", 0666));
    front_ = std::make_unique<Front>(
        *node_, *server_, [this](std::function<void()> f) { loop_->post(std::move(f)); });
    PLEXRL_ASSIGN(http_, HttpServer::create(*loop_, std::move(web), *front_, {}));
    PLEXRL_TRY(front_->connect(*http_));
    node_->set_connection_hooks([this] { return http_->connected(); },
                                [this](TenantId tenant) { http_->close_tenant(tenant); });
    // Every connection by TCP is this process's: that is not what is tested with it.
    if (tcp_)
      http_->add_tcp(std::move(tcp_), [](int) -> Result<wire::PeerCredentials> {
        return wire::PeerCredentials{::geteuid(), ::getegid(), ::getpid()};
      });
    return start_node([this] { EXPECT_TRUE(http_->start().ok()); });
  }
  template <class Condition>
  void until(Condition condition) {
    for (bool now = false; !now;) {
      on_loop([&] { now = condition(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  HttpClient web() { return HttpClient(dir_ + "/http.sock"); }

  UniqueFd tcp_;  // a listener that is served too
  std::string token_;
  std::unique_ptr<Front> front_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace plexrl::http
