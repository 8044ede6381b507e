// SPDX-License-Identifier: Apache-2.0
// What every Engine must do, whatever is behind it. An engine is described by an EngineKind; the
// suite makes pools, asks for sizes and drives the engine through the loop.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "loop/event_loop.h"

namespace plexrl::engine {

struct EngineKind {
  std::string name;
  // Null with a reason: this build cannot run it.
  std::function<std::unique_ptr<Engine>(loop::EventLoop&, EngineListener&, const std::string& dir)>
      make;
  bool survives_detach = true;  // a process of its own
  std::string skip;             // why the suite cannot run here
};

// One engine, its listener, and the pools that plexrld would own.
class EngineFixture : public EngineListener {
 public:
  explicit EngineFixture(const EngineKind& kind);
  ~EngineFixture() override;

  void on_engine_up(EngineId engine, const wire::EngineHelloT& hello,
                    std::vector<UniqueFd> fds) override;
  void on_engine_down(EngineId engine, const Status& why) override;

  // Runs the loop until it holds, at most 60 s.
  [[nodiscard]] bool wait_until(const std::function<bool()>& condition);
  void start();     // until it is up
  void recreate();  // another Engine object, as a restarted plexrld has it
  [[nodiscard]] Engine& engine() { return *engine_; }

  template <class BodyT>
  [[nodiscard]] Result<Reply> ask(BodyT body, const std::vector<int>& fds = {}) {
    wire::EngineBodyUnion any;
    any.Set(std::move(body));
    return ask_any(std::move(any), fds);
  }
  [[nodiscard]] Result<Reply> ask_any(wire::EngineBodyUnion body, const std::vector<int>& fds);
  // The reply arrives in the optional.
  [[nodiscard]] std::shared_ptr<std::optional<Result<Reply>>> send(wire::EngineRunOpT op);

  void attach();
  // Describes a full-parameter model and gives each segment chunks of both pools.
  void describe();
  [[nodiscard]] Status resume(std::uint64_t step = 0, std::uint64_t seq = 0,
                              bool from_host = false);
  [[nodiscard]] Status suspend();
  // `only`: these segments; all committed ones when empty.
  [[nodiscard]] Result<wire::EngineCommittedT> commit(std::uint64_t epoch, std::uint32_t shadow,
                                                      const std::set<wire::SegmentKind>& only = {});
  [[nodiscard]] wire::EngineRunOpT op(wire::OpArgsUnion args, std::uint64_t seq);
  [[nodiscard]] Result<wire::EngineOpDoneT> run(wire::EngineRunOpT op);
  // forward_backward and optim_step; the step's number.
  [[nodiscard]] std::uint64_t train_step(std::uint64_t seq);
  [[nodiscard]] wire::EngineRunOpT generate(std::uint32_t new_tokens);
  // Bytes of a committed segment of commit area `shadow`.
  [[nodiscard]] std::string host_bytes(wire::SegmentKind kind, std::uint32_t shadow);
  [[nodiscard]] std::string all_committed(std::uint32_t shadow);

  [[nodiscard]] static wire::OpArgsUnion forward_backward_args(std::size_t data = 1);

  std::optional<wire::EngineHelloT> hello;
  std::vector<UniqueFd> hello_fds;
  std::vector<Status> downs;

 private:
  struct Area {
    wire::SegmentKind kind = wire::SegmentKind::Weights;
    std::uint64_t bytes = 0;
    bool committed = false;
    std::vector<std::uint32_t> device;
    std::uint32_t host = 0;  // first chunk within a shadow area
    std::uint32_t chunks = 0;
  };
  [[nodiscard]] std::vector<std::unique_ptr<wire::SegmentPlaceT>> places(
      bool device, std::optional<std::uint32_t> shadow, bool committed_only) const;

  const EngineKind& kind_;
  std::string dir_;
  std::unique_ptr<loop::EventLoop> loop_;
  UniqueFd device_pool_;
  UniqueFd host_pool_;
  std::vector<Area> areas_;
  std::uint32_t shadow_chunks_ = 0;
  std::uint32_t next_device_ = 0;
  std::uint32_t max_positions_ = 0;
  std::uint64_t kv_bytes_per_position_ = 0;
  std::uint64_t next_op_ = 1;
  std::unique_ptr<Engine> engine_;
};

class EngineConformance : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override {
    if (!GetParam().skip.empty()) GTEST_SKIP() << GetParam().skip;
    fixture_ = std::make_unique<EngineFixture>(GetParam());
    fixture_->start();
  }
  void ready() {
    fixture_->attach();
    fixture_->describe();
    const Status status = fixture_->resume();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  EngineFixture& f() { return *fixture_; }

 private:
  std::unique_ptr<EngineFixture> fixture_;
};

}  // namespace plexrl::engine
