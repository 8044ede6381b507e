// SPDX-License-Identifier: Apache-2.0
// An EngineServer on its own thread with fake model mathematics and a backend with faults on
// demand, and the part of plexrld: one connection, pools, and requests with deadlines.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/host_pool.h"
#include "engine_torch/engine_server.h"
#include "fakes/fake_backend.h"
#include "fakes/fake_model_code.h"
#include "wire/blocking.h"
#include "wire/message.h"

namespace plexrl::worker {

class ServerHarness {
 public:
  static constexpr std::size_t kChunk = 4096;
  static constexpr std::uint32_t kDeviceChunks = 64;
  static constexpr std::uint32_t kHostChunks = 128;
  static constexpr std::uint64_t kSegmentBytes = FakeModelCode::kElements * sizeof(float);
  static constexpr std::uint32_t kSegmentChunks = 3;

  explicit ServerHarness(wire::TrainMode mode = wire::TrainMode::Full);
  ~ServerHarness();

  // ---- connection
  void connect();  // takes the hello
  void disconnect();
  [[nodiscard]] const wire::EngineHelloT& hello() const { return hello_; }
  [[nodiscard]] const std::vector<UniqueFd>& hello_fds() const { return hello_fds_; }

  template <class BodyT>
  std::uint64_t send(BodyT body, std::vector<UniqueFd> fds = {}) {
    const std::uint64_t id = next_id_++;
    auto message = wire::engine_message(id, std::move(body));
    EXPECT_TRUE(
        wire::send_until(*channel_, wire::encode(message), std::move(fds), deadline()).ok());
    return id;
  }
  [[nodiscard]] wire::EngineBodyUnion wait(std::uint64_t id);
  template <class BodyT>
  [[nodiscard]] wire::EngineBodyUnion ask(BodyT body, std::vector<UniqueFd> fds = {}) {
    return wait(send(std::move(body), std::move(fds)));
  }
  [[nodiscard]] wire::Channel& channel() { return *channel_; }

  // ---- what most tests begin with
  // Without a device pool: as plexrld does where the device's memory is no pool.
  void attach(bool with_device_pool = true);
  // Places of the five segments of a model: device chunks from `device`, host chunks from `host`
  // for the kinds in `with_host`.
  [[nodiscard]] static std::vector<std::unique_ptr<wire::SegmentPlaceT>> places(
      std::uint32_t device, std::uint32_t host, const std::vector<wire::SegmentKind>& with_host);
  [[nodiscard]] static wire::EngineResumeT resume(std::uint64_t model, std::uint32_t device);
  [[nodiscard]] static wire::EngineRunOpT op(std::uint64_t op, std::uint64_t model,
                                             wire::OpArgsUnion args, std::uint64_t seq = 0);
  [[nodiscard]] static wire::OpArgsUnion forward_backward(std::vector<std::int32_t> tokens);
  [[nodiscard]] static wire::OpArgsUnion optim(double rate);
  [[nodiscard]] static wire::OpArgsUnion publish();
  [[nodiscard]] static wire::EngineRunOpT generate(std::uint64_t op, std::uint64_t model,
                                                   std::uint32_t device, std::uint32_t tokens);
  // The floats of a segment in host chunks host, host + 1, ...
  [[nodiscard]] std::vector<float> host_floats(std::uint32_t host);
  void fill_host(std::byte value);
  [[nodiscard]] std::byte host_byte(std::size_t offset);
  // As earlier tenants might have left the pools: every byte of both is `value`.
  void fill_pools(std::byte value);
  // Bytes of `value` in `count` chunks of a pool from `first` on, at least a run of eight: single
  // ones may be anything.
  [[nodiscard]] std::size_t found_in_device(std::byte value, std::uint32_t first,
                                            std::uint32_t count);
  [[nodiscard]] std::size_t found_in_host(std::byte value, std::uint32_t first,
                                          std::uint32_t count);

  [[nodiscard]] FakeModelCode& code() { return code_; }
  [[nodiscard]] device::FakeBackend& device() { return *backend_; }
  void wait_for_steps(int count);
  // What the server ended with by itself.
  [[nodiscard]] Status ended();

 private:
  [[nodiscard]] static TimePoint deadline() {
    return system_clock().now() + Duration{10 * kSecond.ns};
  }

  std::string directory_;
  std::string path_;
  FakeModelCode code_;
  device::FakeBackend* backend_ = nullptr;  // of the server, once attached
  UniqueFd device_pool_;
  UniqueFd host_pool_;
  std::unique_ptr<EngineServer> server_;
  std::thread thread_;
  Status served_;  // once thread_ is joined
  std::unique_ptr<wire::Channel> channel_;
  wire::EngineHelloT hello_;
  std::vector<UniqueFd> hello_fds_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, wire::EngineBodyUnion>
      early_;  // replies that came before they were asked
};

// The failure's code; OK when the reply is not a Failure.
[[nodiscard]] inline Code failure_code(const wire::EngineBodyUnion& body) {
  const auto* const failure = body.AsFailure();
  return failure == nullptr ? Code::OK : code_from_wire(failure->code);
}

}  // namespace plexrl::worker
