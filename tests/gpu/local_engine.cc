// SPDX-License-Identifier: Apache-2.0
#include "gpu/local_engine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>

#include "device/chunk_pool.h"
#include "device/cuda_backend.h"
#include "gpu/raw_driver.h"
#include "wire/failure.h"

namespace plexrl::gpu {
namespace {

constexpr std::size_t kPage = 4096;

// `body(from, to)` on parts of [0, count) that are multiples of `step`.
template <class Body>
void share_out(std::size_t count, std::size_t step, const Body& body) {
  const std::size_t threads = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  const std::size_t part = (count / step + threads) / threads * step;
  std::vector<std::thread> all;
  for (std::size_t from = 0; from < count; from += part)
    all.emplace_back([&, from] { body(from, std::min(count, from + part)); });
  for (std::thread& thread : all) thread.join();
}

std::vector<std::uint32_t> numbers_from(std::size_t first, std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(first));
  return numbers;
}

worker::BackendFactory backend_of(const EngineSetup& setup) {
  if (setup.driver < 0) return device::open_cpu_backend;
  return [number = setup.driver, library = setup.library](
             const UniqueFd& /*pool*/, std::size_t chunk_bytes, std::size_t chunk_count) {
    device::CudaOptions options;
    options.library = library;
    options.device = number;
    options.chunk_bytes = chunk_bytes;
    options.chunk_count = chunk_count;
    return device::open_cuda_backend(options);
  };
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 29);
}

std::uint64_t hash_of(const std::byte* data, std::size_t bytes) {
  std::uint64_t hash = bytes;
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, sizeof word);
    hash = mix(hash, word);
  }
  return hash;
}

}  // namespace

Result<UniqueFd> touched_pool(std::size_t bytes) {
  UniqueFd fd(::memfd_create("gpu-check", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return errno_error(Code::NO_CAPACITY, errno, "pool of %zu bytes", bytes);
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return errno_error(Code::NO_CAPACITY, errno, "map %zu bytes", bytes);
  share_out(bytes, kPage, [&](std::size_t from, std::size_t to) {
    for (; from < to; from += kPage) static_cast<volatile std::byte*>(at)[from] = std::byte{0};
  });
  ::munmap(at, bytes);
  if (::fcntl(fd.get(), F_ADD_SEALS, device::kPoolSeals) != 0)
    return errno_error(Code::IO, errno, "seal a pool");
  return fd;
}

LocalEngine::LocalEngine(const EngineSetup& setup)
    : setup_(setup),
      base_(setup.base_dir, wire::TrainMode::Full, setup.device),
      table_(base_, backend_of(setup)) {}

Result<std::unique_ptr<LocalEngine>> LocalEngine::open(const EngineSetup& setup) {
  std::unique_ptr<LocalEngine> engine(new LocalEngine(setup));
  PLEXRL_TRY(engine->describe());
  PLEXRL_TRY(engine->attach());
  return engine;
}

std::size_t LocalEngine::chunks_of(std::uint64_t bytes) const {
  return (bytes + setup_.chunk_bytes - 1) / setup_.chunk_bytes;
}

Status LocalEngine::describe() {
  PLEXRL_ASSIGN(const auto description, base_.describe(wire::TrainMode::Full, 0));
  PLEXRL_ASSIGN(const auto layout, base_.layout(wire::TrainMode::Full, 0));
  tokenizer_ = description.tokenizer;
  parameters_ = description.parameters;
  segments_ = base_.segments(*layout);
  for (const model::SegmentBytes& segment : segments_) {
    model_chunks_ += chunks_of(segment.bytes);
    if (!segment.committed) continue;
    slot_chunks_ += chunks_of(segment.bytes);
    state_bytes_ += segment.bytes;
  }
  return {};
}

Status LocalEngine::attach() {
  wire::EngineAttachPoolsT pools;
  pools.chunk_bytes = setup_.chunk_bytes;
  pools.device_chunks = static_cast<std::uint32_t>(model_chunks_ + chunks_of(setup_.kv_bytes));
  pools.host_chunks = static_cast<std::uint32_t>(setup_.slots * slot_chunks_);
  std::vector<UniqueFd> fds;
  if (setup_.driver < 0) {
    PLEXRL_ASSIGN(auto pool, touched_pool(pools.device_chunks * setup_.chunk_bytes));
    fds.push_back(std::move(pool));
  }
  PLEXRL_ASSIGN(auto pool, touched_pool(pools.host_chunks * setup_.chunk_bytes));
  fds.push_back(std::move(pool));
  PLEXRL_TRY(table_.attach(pools, std::move(fds)));
  return table_.mapped() == nullptr ? Status() : table_.mapped()->wait();
}

// Committed segments have host chunks in the slot; gradients are nothing between steps.
void LocalEngine::add_places(std::vector<std::unique_ptr<wire::SegmentPlaceT>>& places, Host host,
                             std::size_t slot, bool with_device) const {
  std::size_t device_at = 0;
  std::size_t host_at = slot * slot_chunks_;
  for (const model::SegmentBytes& segment : segments_) {
    const std::size_t chunks = chunks_of(segment.bytes);
    auto place = std::make_unique<wire::SegmentPlaceT>();
    place->kind = segment.kind;
    place->bytes = segment.bytes;
    if (with_device) place->device = numbers_from(device_at, chunks);
    if (host == Host::kSlot && segment.committed) {
      place->host = numbers_from(host_at, chunks);
      host_at += chunks;
    }
    device_at += chunks;
    if (with_device || !place->host.empty()) places.push_back(std::move(place));
  }
}

Result<wire::EngineBodyUnion> LocalEngine::execute(worker::MemoryCommand& command) {
  PLEXRL_TRY(command.prepare());
  wire::EngineBodyUnion reply = command.finish(command.work());
  if (const auto* const failure = reply.AsFailure()) return wire::from_failure(*failure);
  if (const auto next = command.next()) PLEXRL_TRY(execute(*next).status());
  return reply;
}

// With the moments, which come after the answer.
Result<MoveCost> LocalEngine::move_in(wire::EngineResumeT request) {
  std::uint64_t bytes = 0;
  for (const auto& place : request.segments)
    if (!place->host.empty()) bytes += place->bytes;
  const double start = seconds_now();
  const auto command = worker::make_resume(table_, std::move(request));
  PLEXRL_TRY(execute(*command).status());
  return MoveCost{seconds_now() - start, bytes, 0};
}

Result<MoveCost> LocalEngine::create(std::uint64_t model) {
  wire::EngineResumeT request;
  request.model = model;
  request.mode = wire::TrainMode::Full;
  add_places(request.segments, Host::kNone, 0, true);
  return move_in(std::move(request));
}

Result<MoveCost> LocalEngine::resume(std::uint64_t model, std::size_t slot) {
  const wire::EngineMovedT& at = parked_.at(model);
  wire::EngineResumeT request;
  request.model = model;
  request.mode = wire::TrainMode::Full;
  request.step = at.step;
  request.version = at.version;
  request.seq = at.seq;
  add_places(request.segments, Host::kSlot, slot, true);
  return move_in(std::move(request));
}

Result<MoveCost> LocalEngine::suspend(std::uint64_t model, std::size_t slot) {
  PLEXRL_TRY(end_commit());
  const double start = seconds_now();
  wire::EngineSuspendT request;
  request.model = model;
  add_places(request.segments, Host::kSlot, slot, false);
  const auto command = worker::make_suspend(table_, std::move(request));
  PLEXRL_ASSIGN(const auto reply, execute(*command));
  parked_[model] = *reply.AsEngineMoved();
  return MoveCost{seconds_now() - start, 0, reply.AsEngineMoved()->bytes_out};
}

Status LocalEngine::forget(std::uint64_t model) {
  wire::EngineForgetT request;
  request.model = model;
  return execute(*worker::make_forget(table_, *this, request)).status();
}

Status LocalEngine::begin_commit(std::uint64_t model, std::size_t slot) {
  PLEXRL_TRY(end_commit());
  wire::EngineCommitT request;
  request.model = model;
  add_places(request.segments, Host::kSlot, slot, false);
  auto command = worker::make_commit(table_, *this, std::move(request));
  PLEXRL_TRY(command->prepare());
  commit_ = std::move(command);
  copying_ = std::async(std::launch::async, [this] { return commit_->work(); });
  return {};
}

Status LocalEngine::end_commit() {
  if (!commit_) return {};
  const wire::EngineBodyUnion reply = commit_->finish(copying_.get());
  commit_.reset();
  if (const auto* const failure = reply.AsFailure()) return wire::from_failure(*failure);
  const auto* const done = reply.AsEngineCommitted();
  ++commits_.count;
  commits_.bytes += done->bytes;
  commits_.copy_s += static_cast<double>(done->copy_ns) * 1e-9;
  return {};
}

Result<wire::OpValueUnion> LocalEngine::run(std::uint64_t model, wire::OpArgsUnion args,
                                            std::uint64_t version_out) {
  worker::HeldModel* const held = table_.find(model);
  if (held == nullptr || held->residency != worker::Residency::kResident)
    return error(Code::INVALID_ARGUMENT, "model %llu is not resident",
                 static_cast<unsigned long long>(model));
  worker::HeldOp op;
  op.request.op = ++last_op_;
  op.request.model = model;
  op.request.version_out = version_out;
  if (const auto* const generate = args.AsGenerateArgs()) {
    auto kv = std::make_unique<wire::SegmentPlaceT>();
    kv->kind = wire::SegmentKind::Kv;
    PLEXRL_ASSIGN(kv->bytes, model::kv_bytes(held->layout->config, *generate));
    kv->device = numbers_from(model_chunks_, chunks_of(kv->bytes));
    op.request.kv = std::move(kv);
  }
  op.request.args = std::move(args);
  op.writes_committed = base_.writes_committed_state(op.request.args);
  if (op.writes_committed) {
    const double start = seconds_now();
    PLEXRL_TRY(end_commit());
    commits_.stall_s += seconds_now() - start;
  }
  if (std::exchange(last_model_, model) != model) base_.wipe_activations();
  held->running_op = op.request.op;
  std::atomic<std::uint64_t> progress{0};
  worker::OpOutcome outcome = worker::run_op(table_, *held, op, progress);
  held->running_op = 0;
  if (outcome.kind != worker::OpOutcome::Kind::kFinished) return outcome.error;
  worker::note_position(*held, op);
  return std::move(outcome.value);
}

Result<std::uint64_t> LocalEngine::hash(std::size_t slot) const {
  const std::vector<std::uint32_t> chunks = numbers_from(slot * slot_chunks_, slot_chunks_);
  PLEXRL_ASSIGN(const auto range, table_.host().map(chunks, device::AddressRange::Access::kRead));
  std::vector<std::uint64_t> parts(chunks.size());
  share_out(chunks.size(), 1, [&](std::size_t from, std::size_t to) {
    for (; from < to; ++from)
      parts[from] = hash_of(range.data() + from * setup_.chunk_bytes, setup_.chunk_bytes);
  });
  return hash_of(reinterpret_cast<const std::byte*>(parts.data()), parts.size() * sizeof parts[0]);
}

}  // namespace plexrl::gpu
