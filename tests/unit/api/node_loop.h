// SPDX-License-Identifier: Apache-2.0
// NodeLoopTest: plexrld's node and its socket on fake engines, in a loop of its own thread, and
// what a hook and a task of a job ask of it. Needs root, as jobs are opened.
#pragma once

#include <unistd.h>

#include "../loop/loop_thread.h"
#include "api/request_router.h"
#include "api/server.h"
#include "client/rpc_client.h"
#include "device/device_backend.h"
#include "engine/fake_engine.h"
#include "slurm/grant.h"
#include "store/writer_thread.h"

namespace plexrl {

inline TimePoint soon() { return system_clock().now() + Duration{10 * kSecond.ns}; }

class NodeLoopTest : public LoopThreadTest {
 protected:
  NodeLoopTest() {
    site_.cluster = "test";
    config::PoolEntry pool;
    pool.name = "rl";
    pool.nodes = {"n1"};
    pool.models = {"tiny"};
    pool.host_memory_mib = 8;
    pool.device_memory_mib = 1;
    site_.pools.push_back(pool);
    config::ModelEntry model;
    model.name = "tiny";
    model.path = "/nowhere";
    site_.models.push_back(model);
    site_.daemon.chunk_kib = 4;
  }
  ~NodeLoopTest() override {
    stop_loop();
    server_.reset();
    node_.reset();
  }

  // By site_, faults_ and hello_time_; nothing has begun then.
  Status make_node() {
    PLEXRL_ASSIGN(timer_, loop_->make_timer([this] { node_->tick(); }));
    PLEXRL_ASSIGN(node_, runtime::NodeRuntime::create(site_, {"n1", dir_, dir_, "boot"}, seams()));
    PLEXRL_ASSIGN(auto listener, wire::listen_unix(socket_, 0666));
    router_ = std::make_unique<api::RequestRouter>(*node_, socket_, [] { return Status(); });
    server_ = std::make_unique<api::Server>(*loop_, std::move(listener),
                                            site_.daemon.max_connections, *router_, hello_time_);
    router_->connect(*server_);
    node_->set_connection_hooks([this] { return server_->connected(); },
                                [this](TenantId tenant) { server_->close_tenant(tenant); });
    return {};
  }
  // `started` comes when the node is ready, from the loop.
  Status start_node(std::function<void()> started = [] {}) {
    return node_->start([this, started = std::move(started)](const Status& status) {
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(server_->start().ok());
      started();
    });
  }

  Result<client::RpcClient> connect(const std::string& token = "") {
    return client::RpcClient::connect({socket_, token, "test"}, soon());
  }
  // The token of a new job of this process.
  std::string open_job(std::uint32_t job, std::uint32_t uid = ::geteuid()) {
    slurm::Grant grant;
    grant.pool = "rl";
    grant.host_memory_mib = 2;
    grant.lora_rank = 8;
    grant.models = {"tiny"};
    grant.env = env_;
    wire::OpenJobT open;
    open.job_id = job;
    open.uid = uid;
    open.grant = slurm::format_grant(grant);
    auto hooks = connect();
    EXPECT_TRUE(hooks) << hooks.error().to_string();
    const auto opened = hooks->call<wire::DoneT>(open, soon());
    EXPECT_TRUE(opened) << opened.error().to_string();
    wire::AttachTaskT attach;
    attach.job_id = job;
    attach.uid = uid;
    attach.pid = ::getpid();
    const auto reply = hooks->call<wire::AttachReplyT>(attach, soon());
    EXPECT_TRUE(reply) << reply.error().to_string();
    EXPECT_EQ(reply ? reply->socket : "", socket_);
    return reply ? reply->token : "";
  }

  config::SiteConfig site_;
  std::vector<std::string> env_;  // of the grants of jobs that are opened
  engine::FakeEngineOptions faults_;
  engine::FakeEngine* engine_ = nullptr;  // the newest
  Duration hello_time_ = api::Server::kHelloTime;
  std::string socket_ = dir_ + "/plexrld.sock";
  std::unique_ptr<store::StateStore> store_ = store::make_memory_store();
  store::WriteQueue writes_{*store_,
                            [this](std::function<void()> f) { loop_->post(std::move(f)); }};
  std::unique_ptr<store::WriterThread> writer_ = store::WriterThread::start(writes_).value();
  loop::Timer timer_;
  std::unique_ptr<runtime::NodeRuntime> node_;
  std::unique_ptr<api::RequestRouter> router_;
  std::unique_ptr<api::Server> server_;

 private:
  runtime::NodeSeams seams() {
    return {system_clock(),
            writes_,
            [this](engine::EngineSpec spec, engine::EngineListener& listener) {
              auto made = engine::make_fake_engine(*loop_, std::move(spec), listener, faults_);
              engine_ = made.get();
              return std::unique_ptr<engine::Engine>(std::move(made));
            },
            [](const state::PoolSizes& sizes) -> Result<runtime::Pools> {
              runtime::Pools pools;
              PLEXRL_ASSIGN(pools.device,
                            device::create_cpu_pool("d", sizes.chunk_bytes, sizes.device_chunks));
              PLEXRL_ASSIGN(pools.host,
                            device::create_cpu_pool("h", sizes.chunk_bytes, sizes.host_chunks));
              return pools;
            },
            [](const engine::EngineSpec&) { return false; },
            runtime::random_token,
            [this](TimePoint when) { timer_.arm(when); }};
  }
};

}  // namespace plexrl
