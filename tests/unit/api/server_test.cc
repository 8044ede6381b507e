// SPDX-License-Identifier: Apache-2.0
// plexrld's sockets with the client library's connection, on fake engines. The loop runs in a
// thread of its own; everything of the node is touched there only.
#include "api/server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "node_loop.h"

namespace plexrl::api {
namespace {

using client::RpcClient;
using nlohmann::json;

class ServerTest : public NodeLoopTest {
 protected:
  ServerTest() { site_.daemon.max_connections = 8; }
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "opening jobs needs root";
    ASSERT_TRUE(start().ok());
    run_loop();
  }
  Status start() {
    PLEXRL_TRY(make_node());
    return start_node();
  }

  json query(wire::QueryKind kind, std::uint32_t job = 0) {
    auto client = connect();
    wire::QueryT query;
    query.kind = kind;
    query.job_id = job;
    const auto reply = client->call<wire::JsonT>(query, soon());
    EXPECT_TRUE(reply) << reply.error().to_string();
    return json::parse(reply ? reply->text : "{}");
  }
  // Sends bytes on a raw connection and says whether plexrld then closed it.
  bool closes(const std::string& bytes) {
    auto fd = wire::connect_unix(socket_, soon());
    if (!fd) return false;
    const timeval limit{5, 0};
    (void)::setsockopt(fd->get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const int flags = ::fcntl(fd->get(), F_GETFL);
    (void)::fcntl(fd->get(), F_SETFL, flags & ~O_NONBLOCK);
    (void)::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char byte = 0;
    const ssize_t got = ::recv(fd->get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
};

wire::SubmitOpT generate(std::uint64_t model) {
  auto prompt = std::make_unique<wire::PromptT>();
  prompt->tokens = {1, 2};
  wire::GenerateArgsT args;
  args.prompts.push_back(std::move(prompt));
  args.max_new_tokens = 3;
  wire::SubmitOpT submit;
  submit.model = model;
  submit.args.Set(std::move(args));
  return submit;
}

TEST_F(ServerTest, AJobFromOpenToGenerate) {
  const std::string token = open_job(11);
  auto client = connect(token);
  ASSERT_TRUE(client) << client.error().to_string();
  EXPECT_EQ(client->hello().job_id, 11U);
  EXPECT_EQ(client->hello().models, std::vector<std::string>{"tiny"});
  wire::CreateModelT create;
  create.name = "policy";
  create.mode = wire::TrainMode::Lora;
  const auto model = client->call<wire::ModelInfoT>(create, soon());
  ASSERT_TRUE(model) << model.error().to_string();
  const auto reply = client->call<wire::OpReplyT>(generate(model->model), soon());
  ASSERT_TRUE(reply) << reply.error().to_string();
  ASSERT_NE(reply->value.AsGenerateResult(), nullptr);
  EXPECT_GT(reply->timing->run_ns, 0U);
  const json jobs = query(wire::QueryKind::Jobs);
  EXPECT_EQ(jobs["jobs"][0]["job_id"], 11);
  EXPECT_EQ(jobs["jobs"][0]["models"][0]["name"], "policy");
  const json report = query(wire::QueryKind::Report, 11);
  EXPECT_EQ(report["ops_by_kind"]["generate"]["count"], 1);
}

TEST_F(ServerTest, StatusHasItsFields) {
  (void)open_job(11);
  const json status = query(wire::QueryKind::Status);
  for (const char* key : {"version", "node", "pool", "state", "engines", "device", "host",
                          "jobs_open", "ops_queued", "connections", "protocol_errors"})
    EXPECT_TRUE(status.contains(key)) << key;
  EXPECT_EQ(status["jobs_open"], 1);
  EXPECT_EQ(status["host"]["reserved_bytes"], 2 << 20);
  EXPECT_TRUE(query(wire::QueryKind::Profiles)["profiles"].is_array());
  const std::string text = query(wire::QueryKind::Metrics)["text"];
  EXPECT_NE(text.find("plexrl_connections "), std::string::npos);
}

TEST_F(ServerTest, AWrongTokenAndAnotherUsersTokenAreRefused) {
  EXPECT_EQ(connect("nonsense").error().code(), Code::AUTH);
  const std::string token = open_job(11, 54321);
  EXPECT_EQ(connect(token).error().code(), Code::AUTH);
}

TEST_F(ServerTest, WithoutATokenOnlyReadingIsAllowed) {
  auto client = connect();
  EXPECT_EQ(client->call<wire::ModelInfoT>(wire::CreateModelT{}, soon()).error().code(),
            Code::AUTH);
  EXPECT_EQ(client->call<wire::OpReplyT>(generate(1), soon()).error().code(), Code::AUTH);
}

TEST_F(ServerTest, ATokenDiesWithTheJobAndItsConnectionsAreClosed) {
  const std::string token = open_job(11);
  auto client = connect(token);
  ASSERT_TRUE(client);
  wire::CloseJobT close;
  close.job_id = 11;
  ASSERT_TRUE(connect()->call<wire::DoneT>(close, soon()));
  EXPECT_FALSE(client->call<wire::ModelInfoT>(wire::CreateModelT{}, soon()));
  EXPECT_EQ(connect(token).error().code(), Code::AUTH);
}

TEST_F(ServerTest, AttachBeforeOpenIsNotFound) {
  wire::AttachTaskT attach;
  attach.job_id = 77;
  auto hooks = connect();
  EXPECT_EQ(hooks->call<wire::AttachReplyT>(attach, soon()).error().code(), Code::NOT_FOUND);
}

TEST_F(ServerTest, GarbageClosesThatConnectionOnlyAndIsCounted) {
  auto bystander = connect();
  ASSERT_TRUE(bystander);
  EXPECT_TRUE(closes(std::string(64, 'x')));
  std::string header(24, '\0');
  header.replace(0, 4, "PXRL");
  header[4] = 1;
  header[6] = 1;
  header[8] = 16;
  EXPECT_TRUE(closes(header + std::string(16, '\xff')));
  wire::QueryT query;
  const auto status = bystander->call<wire::JsonT>(query, soon());
  ASSERT_TRUE(status) << status.error().to_string();
  EXPECT_EQ(json::parse(status->text)["protocol_errors"], 2);
}

TEST_F(ServerTest, AFrameThatIsTooLargeForAStrangerClosesIt) {
  std::string header(24, '\0');
  header.replace(0, 4, "PXRL");
  header[4] = 1;
  header[6] = 1;
  header[10] = 2;  // 128 KiB
  EXPECT_TRUE(closes(header));
}

TEST_F(ServerTest, UnknownBodiesAndAnotherProtocolAreUnsupported) {
  auto client = connect();
  EXPECT_EQ(client->call<wire::DoneT>(wire::TextT{}, soon()).error().code(), Code::UNSUPPORTED);
  wire::HelloT hello;
  hello.protocol = 99;
  EXPECT_EQ(client->call<wire::HelloReplyT>(hello, soon()).error().code(), Code::UNSUPPORTED);
}

TEST_F(ServerTest, DrainRefusesNewJobsUntilResume) {
  auto client = connect();
  wire::AdminT admin;
  admin.verb = wire::AdminVerb::Drain;
  ASSERT_TRUE(client->call<wire::DoneT>(admin, soon()));
  wire::OpenJobT open;
  open.job_id = 5;
  EXPECT_EQ(client->call<wire::DoneT>(open, soon()).error().code(), Code::UNAVAILABLE);
  EXPECT_EQ(query(wire::QueryKind::Status)["state"], "draining");
  admin.verb = wire::AdminVerb::Resume;
  ASSERT_TRUE(client->call<wire::DoneT>(admin, soon()));
  EXPECT_FALSE(open_job(5).empty());
}

TEST_F(ServerTest, WithoutDescriptorsItPausesAndGoesOnLater) {
  auto client = wire::connect_unix(socket_, soon());  // its descriptor is there already
  ASSERT_TRUE(client);
  UniqueFd waiting(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_.copy(address.sun_path, sizeof address.sun_path - 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the first one is accepted
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd lowest(::dup(0));
  const rlimit none{static_cast<rlim_t>(lowest.get()) + 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  ASSERT_EQ(::connect(waiting.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
  const std::clock_t busy = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const double burnt = static_cast<double>(std::clock() - busy) / CLOCKS_PER_SEC;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(burnt, 0.2);
  EXPECT_TRUE(connect());
  EXPECT_GE(query(wire::QueryKind::Status)["connections"], 3);  // `waiting` is one of them
}

TEST_F(ServerTest, ConnectionsAreBounded) {
  std::vector<RpcClient> clients;
  for (int i = 0; i < 8; ++i) {
    auto client = connect();
    ASSERT_TRUE(client) << i;
    clients.push_back(std::move(*client));
  }
  EXPECT_FALSE(connect());
  clients.pop_back();
  EXPECT_TRUE(RpcClient::connect_when_up({socket_, "", "test"}, soon()));
}

class HelloTimeTest : public ServerTest {
 protected:
  // Long enough for a client that is slow for want of a processor.
  HelloTimeTest() { hello_time_ = kSecond; }

  // Sends `bytes` one by one until plexrld closes the connection; false when it never does.
  bool closes_on_drip(const std::string& bytes) {
    const auto fd = wire::connect_unix(socket_, soon());
    if (!fd) return false;
    for (const char byte : bytes) {
      if (::send(fd->get(), &byte, 1, MSG_NOSIGNAL) < 0) return errno == EPIPE;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
};

TEST_F(HelloTimeTest, AConnectionThatSaysNothingIsClosed) {
  EXPECT_TRUE(closes(""));
  EXPECT_EQ(query(wire::QueryKind::Status)["connections"], 1);
}

TEST_F(HelloTimeTest, BytesWithoutAHelloDoNotExtendTheTime) {
  const auto header = wire::encode_header({4096, 0});
  const std::string bytes(header.begin(), header.end());
  EXPECT_TRUE(closes_on_drip(bytes + std::string(76, 'x')));  // for 5 s
}

// Other requests are answered and are no hello.
TEST_F(HelloTimeTest, OtherRequestsDoNotExtendTheTime) {
  auto fd = wire::connect_unix(socket_, soon());
  ASSERT_TRUE(fd);
  wire::Channel channel(*std::move(fd));
  Status status;
  const TimePoint until = soon();
  for (std::uint64_t id = 1; status.ok() && system_clock().now() < until; ++id) {
    status = channel.send(wire::encode(wire::message(id, wire::QueryT{})));
    if (status.ok()) status = channel.receive();
    while (channel.next()) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(status.code(), Code::UNAVAILABLE) << status.to_string();
}

TEST_F(HelloTimeTest, AGreetedConnectionMayBeSilent) {
  auto client = connect();
  auto tenant = connect(open_job(5));
  ASSERT_TRUE(client);
  ASSERT_TRUE(tenant);
  EXPECT_TRUE(closes(""));  // opened later, so its end shows that the others' time is over too
  EXPECT_TRUE(client->call<wire::JsonT>(wire::QueryT{}, soon()));
  EXPECT_TRUE(tenant->call<wire::JsonT>(wire::QueryT{}, soon()));
}

}  // namespace
}  // namespace plexrl::api
