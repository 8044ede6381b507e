// SPDX-License-Identifier: Apache-2.0
// The engine's protocol: hello, pools, bad input, loss of the connection, quit.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine_torch/server_harness.h"
#include "wire/unix_socket.h"

namespace plexrl::worker {
namespace {

TEST(ServerProtocol, AFreshEngineHoldsNothing) {
  ServerHarness engine;
  EXPECT_EQ(engine.hello().protocol, wire::kEngineProtocolVersion);
  EXPECT_EQ(engine.hello().engine, 42U);
  EXPECT_EQ(engine.hello().base, "fake-base");
  EXPECT_EQ(engine.hello().mode, wire::TrainMode::Full);
  EXPECT_EQ(engine.hello().pid, ::getpid());
  EXPECT_TRUE(engine.hello().models.empty());
  EXPECT_EQ(engine.hello().running_op, 0U);
  EXPECT_TRUE(engine.hello_fds().empty());
}

TEST(ServerProtocol, DescribesAModel) {
  ServerHarness engine;
  wire::EngineDescribeT ask;
  ask.mode = wire::TrainMode::Full;
  const auto reply = engine.ask(ask);
  ASSERT_NE(reply.AsEngineDescription(), nullptr);
  EXPECT_EQ(reply.AsEngineDescription()->segments.size(), 5U);
  ask.lora_rank = 999;
  EXPECT_EQ(failure_code(engine.ask(ask)), Code::INVALID_ARGUMENT);
}

TEST(ServerProtocol, TheNextConnectionGetsThePoolsBack) {
  ServerHarness engine;
  engine.attach();
  engine.disconnect();
  engine.connect();
  EXPECT_EQ(engine.hello().chunk_bytes, ServerHarness::kChunk);
  EXPECT_EQ(engine.hello().device_chunks, ServerHarness::kDeviceChunks);
  EXPECT_EQ(engine.hello().host_chunks, ServerHarness::kHostChunks);
  ASSERT_EQ(engine.hello_fds().size(), 2U);
  EXPECT_TRUE(device::check_pool(engine.hello_fds()[0].get(), ServerHarness::kChunk,
                                 ServerHarness::kDeviceChunks)
                  .ok());
  EXPECT_TRUE(device::check_pool(engine.hello_fds()[1].get(), ServerHarness::kChunk,
                                 ServerHarness::kHostChunks)
                  .ok());
}

TEST(ServerProtocol, PoolsAreAttachedOnceAndChecked) {
  ServerHarness engine;
  wire::EngineAttachPoolsT pools;
  pools.chunk_bytes = ServerHarness::kChunk;
  pools.device_chunks = pools.host_chunks = 4;
  EXPECT_EQ(failure_code(engine.ask(pools)), Code::INVALID_ARGUMENT);  // no fds
  std::vector<UniqueFd> wrong;
  wrong.emplace_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
  wrong.emplace_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_NE(failure_code(engine.ask(pools, std::move(wrong))), Code::OK);
  engine.attach();
  std::vector<UniqueFd> again;
  again.push_back(device::create_cpu_pool("d", ServerHarness::kChunk, 4).value());
  again.push_back(device::create_cpu_pool("h", ServerHarness::kChunk, 4).value());
  EXPECT_EQ(failure_code(engine.ask(pools, std::move(again))), Code::EXISTS);
}

TEST(ServerProtocol, ARequestThatItDoesNotKnowIsUnsupported) {
  ServerHarness engine;
  EXPECT_EQ(failure_code(engine.ask(wire::EngineHelloT())), Code::UNSUPPORTED);
  EXPECT_NE(engine.ask(wire::EnginePingT()).AsEnginePong(), nullptr);
}

TEST(ServerProtocol, GarbageEndsTheConnectionOnly) {
  ServerHarness engine;
  engine.attach();
  const std::string garbage(4096, 'x');
  ASSERT_GT(::send(engine.channel().fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  EXPECT_FALSE(wire::receive_until(engine.channel(), system_clock().now() + kSecond).has_value());
  engine.disconnect();
  engine.connect();
  EXPECT_EQ(engine.hello_fds().size(), 2U);
}

TEST(ServerProtocol, ADeviceWithoutAPoolGivesBackTheHostPoolAlone) {
  ServerHarness engine;
  engine.attach(/*with_device_pool=*/false);
  engine.disconnect();
  engine.connect();
  EXPECT_EQ(engine.hello().device_chunks, ServerHarness::kDeviceChunks);
  ASSERT_EQ(engine.hello_fds().size(), 1U);
  EXPECT_TRUE(device::check_pool(engine.hello_fds()[0].get(), ServerHarness::kChunk,
                                 ServerHarness::kHostChunks)
                  .ok());
}

TEST(ServerProtocol, ARequestWithoutANumberEndsTheConnection) {
  ServerHarness engine;
  ASSERT_TRUE(wire::send_until(engine.channel(),
                               wire::encode(wire::engine_message(0, wire::EnginePingT())), {},
                               system_clock().now() + kSecond)
                  .ok());
  EXPECT_FALSE(wire::receive_until(engine.channel(), system_clock().now() + kSecond).has_value());
  engine.disconnect();
}

TEST(ServerProtocol, AnEngineThatNobodyComesForEndsItself) {
  const std::string path = ::testing::TempDir() + "plexrl-orphan.sock";
  FakeModelCode code;
  ServerOptions options{1, "fake-base", wire::TrainMode::Full};
  options.orphan_after = Duration{50 * kMillisecond.ns};
  const auto no_device = [](UniqueFd, std::size_t,
                            std::size_t) -> Result<std::unique_ptr<device::DeviceBackend>> {
    return error(Code::INTERNAL, "unused");
  };
  EngineServer server(options, code, no_device, wire::listen_unix(path, 0600).value());
  const TimePoint start = system_clock().now();
  EXPECT_EQ(server.serve().code(), Code::UNAVAILABLE);
  EXPECT_GE((system_clock().now() - start).ns, options.orphan_after.ns);
  ::unlink(path.c_str());
}

TEST(ServerProtocol, PingAnswersWhileAnOpStandsStill) {
  ServerHarness engine;
  engine.attach();
  ASSERT_NE(engine.ask(ServerHarness::resume(1, 0)).AsEngineMoved(), nullptr);
  engine.code().hold = true;
  const auto op = engine.send(ServerHarness::op(9, 1, ServerHarness::forward_backward({1, 2}), 1));
  wire::EnginePingT ping;
  ping.nonce = 77;
  const auto reply = engine.ask(ping);
  ASSERT_NE(reply.AsEnginePong(), nullptr);
  EXPECT_EQ(reply.AsEnginePong()->nonce, 77U);
  EXPECT_EQ(reply.AsEnginePong()->running_op, 9U);
  EXPECT_EQ(reply.AsEnginePong()->activation_bytes, 4711U);
  EXPECT_EQ(reply.AsEnginePong()->resident_bytes, 15 * ServerHarness::kChunk);
  engine.code().hold = false;
  EXPECT_NE(engine.wait(op).AsEngineOpDone(), nullptr);
}

}  // namespace
}  // namespace plexrl::worker
