// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/server_harness.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "device/pool_marks.h"
#include "wire/unix_socket.h"

namespace plexrl::worker {
namespace {

constexpr std::array<wire::SegmentKind, 5> kKinds = {
    wire::SegmentKind::Weights, wire::SegmentKind::AdamM, wire::SegmentKind::AdamV,
    wire::SegmentKind::Gradients, wire::SegmentKind::SamplerWeights};

std::vector<std::uint32_t> chunks_from(std::uint32_t first, std::uint32_t count) {
  std::vector<std::uint32_t> chunks(count);
  std::iota(chunks.begin(), chunks.end(), first);
  return chunks;
}

void fill(int pool, std::size_t bytes, std::byte value) {
  const std::vector<std::byte> all(bytes, value);
  EXPECT_EQ(::pwrite(pool, all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
}

std::size_t found_in(int pool, std::byte value, std::size_t offset, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  EXPECT_EQ(::pread(pool, all.data(), bytes, static_cast<off_t>(offset)),
            static_cast<ssize_t>(bytes));
  std::size_t found = 0;
  std::size_t run = 0;
  for (const std::byte byte : all) {
    run = byte == value ? run + 1 : 0;
    if (run >= 8) found += run == 8 ? 8 : 1;
  }
  return found;
}

}  // namespace

ServerHarness::ServerHarness(wire::TrainMode mode) {
  std::string pattern = ::testing::TempDir() + "plexrl-engine-XXXXXX";
  directory_ = ::mkdtemp(pattern.data());
  path_ = directory_ + "/e.sock";
  auto listener = wire::listen_unix(path_, 0600).value();
  const auto factory = [this](UniqueFd pool, std::size_t bytes,
                              std::size_t count) -> Result<std::unique_ptr<device::DeviceBackend>> {
    auto backend = std::make_unique<device::FakeBackend>(std::move(pool), bytes, count);
    backend_ = backend.get();
    return std::unique_ptr<device::DeviceBackend>(std::move(backend));
  };
  server_ = std::make_unique<EngineServer>(ServerOptions{42, "fake-base", mode}, code_, factory,
                                           std::move(listener));
  thread_ = std::thread([this] { served_ = server_->serve(); });
  connect();
}

ServerHarness::~ServerHarness() {
  code_.hold = false;
  code_.hold_base = false;
  if (backend_ != nullptr) backend_->let_in(-1);
  if (thread_.joinable()) {
    if (!channel_) connect();
    send(wire::EngineQuitT());
    thread_.join();
    EXPECT_TRUE(served_.ok()) << served_.to_string();
  }
  server_.reset();
  ::unlink(path_.c_str());
  ::rmdir(directory_.c_str());
}

void ServerHarness::connect() {
  channel_ = std::make_unique<wire::Channel>(wire::connect_unix(path_, deadline()).value());
  auto frame = wire::receive_until(*channel_, deadline()).value();
  auto message = wire::decode_engine_message(frame.payload).value();
  ASSERT_NE(message.body.AsEngineHello(), nullptr);
  hello_ = *message.body.AsEngineHello();
  hello_fds_ = std::move(frame.fds);
}

void ServerHarness::disconnect() {
  channel_.reset();
  early_.clear();
}

wire::EngineBodyUnion ServerHarness::wait(std::uint64_t id) {
  while (!early_.contains(id)) {
    auto frame = wire::receive_until(*channel_, deadline());
    if (!frame) {
      ADD_FAILURE() << "request " << id << ": " << frame.error().to_string();
      return {};
    }
    auto message = wire::decode_engine_message(frame->payload).value();
    early_[message.request_id] = std::move(message.body);
  }
  return std::move(early_.extract(id).mapped());
}

void ServerHarness::attach(bool with_device_pool) {
  device_pool_ = device::create_cpu_pool("d", kChunk, kDeviceChunks).value();
  host_pool_ = device::create_cpu_pool("h", kChunk, kHostChunks).value();
  wire::EngineAttachPoolsT pools;
  pools.chunk_bytes = kChunk;
  pools.device_chunks = kDeviceChunks;
  pools.host_chunks = kHostChunks;
  std::vector<UniqueFd> fds;
  if (with_device_pool) fds.emplace_back(::dup(device_pool_.get()));
  fds.emplace_back(::dup(host_pool_.get()));
  ASSERT_NE(ask(pools, std::move(fds)).AsEngineDone(), nullptr);
}

std::vector<std::unique_ptr<wire::SegmentPlaceT>> ServerHarness::places(
    std::uint32_t device, std::uint32_t host, const std::vector<wire::SegmentKind>& with_host) {
  std::vector<std::unique_ptr<wire::SegmentPlaceT>> out;
  for (const wire::SegmentKind kind : kKinds) {
    auto place = std::make_unique<wire::SegmentPlaceT>();
    place->kind = kind;
    place->bytes = kSegmentBytes;
    const auto index = static_cast<std::uint32_t>(out.size()) * kSegmentChunks;
    place->device = chunks_from(device + index, kSegmentChunks);
    if (std::find(with_host.begin(), with_host.end(), kind) != with_host.end())
      place->host = chunks_from(host + index, kSegmentChunks);
    out.push_back(std::move(place));
  }
  return out;
}

wire::EngineResumeT ServerHarness::resume(std::uint64_t model, std::uint32_t device) {
  wire::EngineResumeT out;
  out.model = model;
  out.mode = wire::TrainMode::Full;
  out.seed = 3;
  out.segments = places(device, 0, {});
  return out;
}

wire::EngineRunOpT ServerHarness::op(std::uint64_t op, std::uint64_t model, wire::OpArgsUnion args,
                                     std::uint64_t seq) {
  wire::EngineRunOpT out;
  out.op = op;
  out.model = model;
  out.seq = seq;
  out.version_out = 100 + seq;
  out.args = std::move(args);
  return out;
}

wire::OpArgsUnion ServerHarness::forward_backward(std::vector<std::int32_t> tokens) {
  wire::ForwardBackwardArgsT args;
  for (const std::int32_t token : tokens) {
    args.data.push_back(std::make_unique<wire::DatumT>());
    args.data.back()->tokens = {token};
  }
  wire::OpArgsUnion out;
  out.Set(std::move(args));
  return out;
}

wire::OpArgsUnion ServerHarness::optim(double rate) {
  wire::OptimStepArgsT args;
  args.learning_rate = rate;
  wire::OpArgsUnion out;
  out.Set(std::move(args));
  return out;
}

wire::OpArgsUnion ServerHarness::publish() {
  wire::OpArgsUnion out;
  out.Set(wire::SaveArgsT());
  return out;
}

wire::EngineRunOpT ServerHarness::generate(std::uint64_t number, std::uint64_t model,
                                           std::uint32_t device, std::uint32_t tokens) {
  wire::GenerateArgsT args;
  args.max_new_tokens = tokens;
  args.seed = 1000;
  wire::OpArgsUnion any;
  any.Set(std::move(args));
  wire::EngineRunOpT out = op(number, model, std::move(any));
  out.kv = std::make_unique<wire::SegmentPlaceT>();
  out.kv->kind = wire::SegmentKind::Kv;
  out.kv->bytes = kChunk;
  out.kv->device = {device};
  return out;
}

std::vector<float> ServerHarness::host_floats(std::uint32_t host) {
  std::vector<float> out(FakeModelCode::kElements);
  const auto bytes = static_cast<ssize_t>(kSegmentBytes);
  EXPECT_EQ(::pread(host_pool_.get(), out.data(), kSegmentBytes, static_cast<off_t>(host * kChunk)),
            bytes);
  return out;
}

void ServerHarness::fill_host(std::byte value) {
  const auto marks = device::PoolMarks::open(host_pool_.get(), kChunk, kHostChunks).value();
  for (std::uint32_t chunk = 0; chunk < kHostChunks; ++chunk) marks.raise(chunk, kChunk);
  fill(host_pool_.get(), kChunk * kHostChunks, value);
}

void ServerHarness::fill_pools(std::byte value) {
  fill(device_pool_.get(), kChunk * kDeviceChunks, value);
  backend_->set_garbage(value);
  fill_host(value);
}

std::size_t ServerHarness::found_in_device(std::byte value, std::uint32_t first,
                                           std::uint32_t count) {
  return found_in(device_pool_.get(), value, first * kChunk, count * kChunk);
}

std::size_t ServerHarness::found_in_host(std::byte value, std::uint32_t first,
                                         std::uint32_t count) {
  return found_in(host_pool_.get(), value, first * kChunk, count * kChunk);
}

std::byte ServerHarness::host_byte(std::size_t offset) {
  std::byte out{};
  EXPECT_EQ(::pread(host_pool_.get(), &out, 1, static_cast<off_t>(offset)), 1);
  return out;
}

Status ServerHarness::ended() {
  thread_.join();
  return served_;
}

void ServerHarness::wait_for_steps(int count) {
  const TimePoint end = deadline();
  while (code_.steps < count && system_clock().now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_GE(code_.steps.load(), count);
}

}  // namespace plexrl::worker
