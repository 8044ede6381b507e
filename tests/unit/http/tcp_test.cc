// SPDX-License-Identifier: Apache-2.0
// HTTP by TCP: whose a connection is, where plexrld listens, and what the server does differently.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "../loop/loop_thread.h"
#include "http/http_server.h"
#include "http/tcp_listener.h"
#include "http/tcp_peers.h"
#include "web_node.h"

namespace plexrl::http {
namespace {

constexpr uid_t kOtherUid = 65534;

// Port 0: any. The socket is not blocking, as those that plexrld gets.
UniqueFd listen_on(std::uint32_t host, std::uint16_t port = 0) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(host);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(fd.get(), 128), 0);
  return fd;
}

std::uint16_t port_of(int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

// Runs `work` as another user in a process of its own; its exit status.
template <class Work>
int as_other_user(Work work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(kOtherUid) == 0 ? work() : 99);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class TcpPeersTest : public ::testing::Test {
 protected:
  UniqueFd accept() {
    UniqueFd fd;
    while (!fd) fd.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return fd;
  }
  UniqueFd listener_ = listen_on(INADDR_LOOPBACK);
  std::uint16_t port_ = port_of(listener_.get());
  Result<TcpPeers> peers_ = TcpPeers::open(listener_.get());
};

TEST_F(TcpPeersTest, TheOneWhoConnectedIsFound) {
  ASSERT_TRUE(peers_) << peers_.error().to_string();
  const HttpClient client(port_);
  const UniqueFd connection = accept();
  const auto peer = peers_->find(connection.get());
  ASSERT_TRUE(peer) << peer.error().to_string();
  EXPECT_EQ(peer->uid, ::geteuid());
  EXPECT_EQ(peer->gid, static_cast<gid_t>(-1));
  // Also when it has said all that it has to say.
  ::shutdown(client.fd(), SHUT_WR);
  EXPECT_TRUE(peers_->find(connection.get()));
}

TEST_F(TcpPeersTest, OneThatIsGoneIsNobodyAndNotRoot) {
  ASSERT_TRUE(peers_);
  for (const bool by_reset : {false, true}) {
    HttpClient client(port_);
    ASSERT_TRUE(client.send("GET / HTTP/1.1\r\n"));
    const linger at_once{1, 0};
    if (by_reset) (void)::setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client.close();
    const UniqueFd connection = accept();
    const auto peer = peers_->find(connection.get());
    ASSERT_FALSE(peer) << peer->uid;
    EXPECT_EQ(peer.error().code(), Code::AUTH);
  }
}

TEST_F(TcpPeersTest, AnotherUserIsFoundAsThat) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  ASSERT_TRUE(peers_);
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  std::thread child([&] {
    EXPECT_EQ(as_other_user([&] {
                const HttpClient client(port_);
                char byte = 0;
                return ::read(go[0], &byte, 1) == 1 ? 0 : 1;
              }),
              0);
  });
  const UniqueFd connection = accept();
  const auto peer = peers_->find(connection.get());
  EXPECT_TRUE(peer);
  EXPECT_EQ(peer ? peer->uid : 0, kOtherUid);
  EXPECT_EQ(::write(go[1], "x", 1), 1);
  child.join();
  ::close(go[0]);
  ::close(go[1]);
}

TEST_F(TcpPeersTest, AListenerOfAnotherNetworkNamespaceIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "a network namespace needs root";
  UniqueFd elsewhere;
  std::thread([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    elsewhere = listen_on(INADDR_ANY);
  }).join();
  const auto peers = TcpPeers::open(elsewhere.get());
  ASSERT_FALSE(peers);
  EXPECT_EQ(peers.error().code(), Code::UNSUPPORTED);
  EXPECT_NE(peers.error().text().find("another network namespace"), std::string::npos);
}

TEST(TcpListener, APortThatAnybodyMayTakeIsRefused) {
  const auto listener = open_tcp_listener({INADDR_LOOPBACK, 18150}, {});
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code(), Code::INVALID_ARGUMENT);
  EXPECT_NE(listener.error().text().find("127.0.0.1:18150"), std::string::npos);
  EXPECT_NE(listener.error().text().find("plexrld-http.socket"), std::string::npos);
}

TEST(TcpListener, APrivilegedPortIsTakenOnce) {
  if (::geteuid() != 0) GTEST_SKIP() << "ports below 1024 need root";
  for (std::uint16_t port = 1023; port > 600; --port) {
    const auto listener = open_tcp_listener({INADDR_LOOPBACK, port}, {});
    if (!listener && listener.error().code() == Code::EXISTS) continue;
    ASSERT_TRUE(listener) << listener.error().to_string();
    EXPECT_TRUE(TcpPeers::open(listener->get()));
    const auto again = open_tcp_listener({INADDR_LOOPBACK, port}, {});
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code(), Code::EXISTS);
    return;
  }
  FAIL() << "no free port";
}

TEST(TcpListener, APassedSocketMustBeTheOneThatIsConfigured) {
  const auto passed = [](UniqueFd fd, std::uint16_t port) {
    return open_tcp_listener({INADDR_LOOPBACK, port}, std::move(fd));
  };
  UniqueFd good = listen_on(INADDR_LOOPBACK);
  const std::uint16_t port = port_of(good.get());
  EXPECT_TRUE(passed(std::move(good), port));
  EXPECT_FALSE(passed(listen_on(INADDR_LOOPBACK), 585));
  UniqueFd everywhere = listen_on(INADDR_ANY);
  const std::uint16_t its_port = port_of(everywhere.get());
  const auto refused = passed(std::move(everywhere), its_port);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("listens at 0.0.0.0:"), std::string::npos);
  EXPECT_FALSE(passed(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), port));
  EXPECT_FALSE(passed(UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)), port));
  EXPECT_FALSE(passed(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0));
}

// Says whose the request is; "/wait" is never answered.
class WhoApp final : public Application {
 public:
  std::size_t body_limit(const Request&) const override { return 1000; }
  void handle(Exchange& exchange) override {
    if (exchange.request().path == "/wait") {
      exchange.set_handler(std::make_unique<Waiting>(waits));
      return;
    }
    Response response;
    response.body = std::to_string(exchange.request().peer.uid);
    exchange.answer(std::move(response));
  }
  Response refusal(int status, const std::string&) const override {
    Response response;
    response.status = status;
    return response;
  }
  struct Waiting final : Handler {
    explicit Waiting(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Waiting() override { --count_; }
    std::atomic<int>& count_;
  };
  std::atomic<int> waits{0};
};

class TcpServerTest : public LoopThreadTest {
 protected:
  TcpServerTest() { ::signal(SIGPIPE, SIG_IGN); }
  ~TcpServerTest() override {
    stop_loop();
    server_.reset();
  }
  void SetUp() override {
    UniqueFd tcp = listen_on(INADDR_LOOPBACK);
    port_ = port_of(tcp.get());
    auto peers = TcpPeers::open(tcp.get());
    ASSERT_TRUE(peers) << peers.error().to_string();
    peers_ = std::make_unique<TcpPeers>(*std::move(peers));
    auto unix_socket = wire::listen_unix(dir_ + "/http.sock", 0666);
    ASSERT_TRUE(unix_socket);
    auto server = HttpServer::create(*loop_, *std::move(unix_socket), app_, {});
    ASSERT_TRUE(server);
    server_ = *std::move(server);
    server_->add_tcp(std::move(tcp), [this](int connection) { return peers_->find(connection); });
    ASSERT_TRUE(server_->start().ok());
    run_loop();
  }
  HttpCounts counts() {
    HttpCounts counts;
    on_loop([&] { counts = server_->counts(); });
    return counts;
  }
  template <class Condition>
  void until(Condition true_now) {
    while (!true_now()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  WhoApp app_;
  std::uint16_t port_ = 0;
  std::unique_ptr<TcpPeers> peers_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(TcpServerTest, BothSocketsAreServed) {
  HttpClient by_tcp(port_), by_path(dir_ + "/http.sock");
  for (HttpClient* client : {&by_tcp, &by_path, &by_tcp}) {
    const auto reply = client->get("/");
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->body, std::to_string(::geteuid()));
  }
  EXPECT_EQ(counts().connections, 2U);
}

TEST_F(TcpServerTest, ARequestIsThatOfWhoMadeTheConnection) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  EXPECT_EQ(as_other_user([&] {
              const auto reply = HttpClient(port_).get("/");
              return reply && reply->body == std::to_string(kOtherUid) ? 0 : 1;
            }),
            0);
}

TEST_F(TcpServerTest, NobodysRequestIsNotServed) {
  std::promise<void> go_on;
  loop_->post([&] { go_on.get_future().wait(); });  // it accepts when the client is gone
  HttpClient client(port_);
  ASSERT_TRUE(client.send(get_request("/wait")));
  client.close();
  go_on.set_value();
  until([&] { return counts().unknown_peers == 1; });
  EXPECT_EQ(counts().accepted, 0U);
  EXPECT_EQ(app_.waits, 0);
}

TEST_F(TcpServerTest, AClientThatGoesAwayEndsItsHandler) {
  HttpClient client(port_);
  ASSERT_TRUE(client.send(get_request("/wait")));
  until([&] { return app_.waits == 1; });
  client.close();
  until([&] { return app_.waits == 0; });
  until([&] { return counts().connections == 0; });
}

class TcpJobTest : public WebNodeTest {
 protected:
  TcpJobTest() {
    tcp_ = listen_on(INADDR_LOOPBACK);
    port_ = port_of(tcp_.get());
  }
  int status(HttpClient client, const std::string& token) {
    const auto reply = client.get("/v1/models", "X-API-Key: " + token + "\r\n");
    if (reply && reply->status == 401)
      EXPECT_NE(reply->body.find("--plexrl-env"), std::string::npos);
    return reply ? reply->status : 0;
  }
  std::uint16_t port_;
};

TEST_F(TcpJobTest, OnlyAJobThatAskedForItIsServedByTcp) {
  EXPECT_EQ(status(web(), token_), 200);
  EXPECT_EQ(status(HttpClient(port_), token_), 401);
  env_ = {"openai"};
  const std::string asked = open_job(12);
  EXPECT_EQ(status(HttpClient(port_), asked), 200);
  EXPECT_EQ(status(web(), asked), 200);
}

TEST_F(TcpServerTest, TheBoundOfConnectionsMayChange) {
  on_loop([&] { server_->set_connections(2); });
  HttpClient first(port_);
  ASSERT_TRUE(first.get("/"));
  HttpClient second(port_);
  EXPECT_FALSE(second.get("/"));
  on_loop([&] { server_->set_connections(4); });
  HttpClient third(port_);
  EXPECT_TRUE(third.get("/"));
  EXPECT_TRUE(first.get("/"));
  EXPECT_EQ(counts().refused, 1U);
}

}  // namespace
}  // namespace plexrl::http
