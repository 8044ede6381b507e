// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_backend.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/chunk_pool.h"
#include "device/cuda_device.h"

namespace plexrl::device {
namespace {

cuda::DevicePtr address(const std::byte* at) { return reinterpret_cast<cuda::DevicePtr>(at); }

// The range of `ranges` that holds `at`, else its end.
auto range_of(const std::map<const std::byte*, std::size_t>& ranges, const std::byte* at) {
  auto next = ranges.upper_bound(at);
  if (next == ranges.begin()) return ranges.end();
  --next;
  return at < next->first + next->second ? next : ranges.end();
}

// Free memory is told in pages of the driver, and other processes take and give a little.
std::uint64_t tolerance(std::uint64_t released) {
  return std::min<std::uint64_t>(released / 8, std::uint64_t{32} << 20);
}

void nap(Duration time) {
  const timespec left{0, time.ns};
  ::nanosleep(&left, nullptr);
}

}  // namespace

class CudaReservation final : public Reservation {
 public:
  CudaReservation(CudaBackend& owner, cuda::DevicePtr at, std::size_t reserved, std::size_t bytes)
      : owner_(owner), at_(at), reserved_(reserved), bytes_(bytes) {}
  ~CudaReservation() override { owner_.release(*this); }
  CudaReservation(const CudaReservation&) = delete;
  CudaReservation& operator=(const CudaReservation&) = delete;

  [[nodiscard]] std::byte* data() const noexcept override {
    // The driver's addresses are integers. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<std::byte*>(at_);
  }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] bool mapped() const noexcept override { return mapped_; }

 private:
  friend class CudaBackend;
  struct Part {
    ChunkIndex chunk = 0;
    std::size_t at = 0;  // position in the range, in chunks
    cuda::MemHandle handle = 0;
    bool mapped = false;
  };
  CudaBackend& owner_;
  cuda::DevicePtr at_;
  std::size_t reserved_;
  std::size_t bytes_;
  std::vector<Part> parts_;  // what is held now; without mapped_, what could not be given back
  bool mapped_ = false;
};

class CudaPin final : public HostPin {
 public:
  CudaPin(CudaBackend& owner, std::byte* host) : owner_(owner), host_(host) {}
  ~CudaPin() override { owner_.unpin(host_); }
  CudaPin(const CudaPin&) = delete;
  CudaPin& operator=(const CudaPin&) = delete;

 private:
  CudaBackend& owner_;
  std::byte* host_;
};

// ---- opening
// -------------------------------------------------------------------------------------

CudaBackend::CudaBackend(CudaOptions options, std::unique_ptr<CudaDevice> device)
    : options_(std::move(options)), device_(std::move(device)) {}

Result<std::unique_ptr<CudaBackend>> CudaBackend::open(const CudaOptions& options) {
  if (options.chunk_count == 0)
    return error(Code::INVALID_ARGUMENT, "a device of no chunks is not possible");
  PLEXRL_ASSIGN(auto device, CudaDevice::open(options.library, options.device, options.rdma));
  if (options.chunk_bytes == 0 || options.chunk_bytes % device->granularity() != 0)
    return error(Code::INVALID_ARGUMENT, "chunk size %zu: %s needs a multiple of %zu",
                 options.chunk_bytes, device->name().c_str(), device->granularity());
  CudaOptions settled = options;
  settled.rdma = device->rdma();
  std::unique_ptr<CudaBackend> backend(new CudaBackend(std::move(settled), std::move(device)));
  PLEXRL_ASSIGN(const DeviceMemory memory, backend->memory());
  if (options.chunk_count > memory.total_bytes / options.chunk_bytes)
    return error(Code::NO_CAPACITY, "%s has %llu bytes, %zu chunks of %zu bytes are configured",
                 backend->device_name().c_str(),
                 static_cast<unsigned long long>(memory.total_bytes), options.chunk_count,
                 options.chunk_bytes);
  backend->claimed_.assign(options.chunk_count, false);
  PLEXRL_TRY(backend->open_lane(backend->in_));
  PLEXRL_TRY(backend->open_lane(backend->out_));
  return backend;
}

Result<std::unique_ptr<DeviceBackend>> open_cuda_backend(const CudaOptions& options) {
  PLEXRL_ASSIGN(auto backend, CudaBackend::open(options));
  return std::unique_ptr<DeviceBackend>(std::move(backend));
}

CudaBackend::~CudaBackend() {
  close_lane(in_);
  close_lane(out_);
}

Status CudaBackend::open_lane(Lane& lane) {
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  PLEXRL_TRY(PLEXRL_CUDA(device_->driver(), stream_create, &lane.stream, cuda::kStreamNonBlocking));
  return PLEXRL_CUDA(device_->driver(), event_create, &lane.event,
                     cuda::kEventBlockingSync | cuda::kEventDisableTiming);
}

void CudaBackend::close_lane(Lane& lane) {
  const CudaDevice::Entered entered(*device_);
  if (!entered.status().ok()) return;
  if (lane.event != nullptr) device_->driver().call().event_destroy(lane.event);
  if (lane.stream != nullptr) device_->driver().call().stream_destroy(lane.stream);
}

const std::string& CudaBackend::device_name() const noexcept { return device_->name(); }

std::uint64_t CudaBackend::unproven_releases() const {
  const std::scoped_lock lock(mutex_);
  return unproven_;
}

// ---- reserving and mapping
// -----------------------------------------------------------------------

Result<std::unique_ptr<Reservation>> CudaBackend::reserve(std::size_t bytes) {
  const std::size_t capacity = options_.chunk_bytes * options_.chunk_count;
  if (bytes == 0 || bytes > capacity)
    return error(Code::NO_CAPACITY, "segment of %zu bytes: the device has %zu bytes", bytes,
                 capacity);
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  const std::size_t chunks = (bytes + options_.chunk_bytes - 1) / options_.chunk_bytes;
  const std::size_t reserved = chunks * options_.chunk_bytes;
  cuda::DevicePtr at = 0;
  PLEXRL_TRY(PLEXRL_CUDA(device_->driver(), address_reserve, &at, reserved, 0, 0, 0));
  return std::unique_ptr<Reservation>(
      std::make_unique<CudaReservation>(*this, at, reserved, bytes));
}

Status CudaBackend::claim(std::span<const ChunkIndex> chunks) {
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!claimed_[chunks[i]]) {
      claimed_[chunks[i]] = true;
      continue;
    }
    for (std::size_t undo = 0; undo < i; ++undo) claimed_[chunks[undo]] = false;
    return error(Code::INVALID_ARGUMENT, "chunk %u is already mapped", chunks[i]);
  }
  return {};
}

void CudaBackend::unclaim(ChunkIndex chunk) {
  const std::scoped_lock lock(mutex_);
  claimed_[chunk] = false;
}

Status CudaBackend::map_one(CudaReservation& place, std::size_t at) {
  CudaReservation::Part& part = place.parts_[at];
  const CudaDriver& driver = device_->driver();
  PLEXRL_TRY(PLEXRL_CUDA(driver, memory_create, &part.handle, options_.chunk_bytes,
                         &device_->memory(), 0));
  {
    const std::scoped_lock lock(mutex_);
    created_bytes_ += options_.chunk_bytes;
  }
  PLEXRL_TRY(PLEXRL_CUDA(driver, memory_map, place.at_ + at * options_.chunk_bytes,
                         options_.chunk_bytes, 0, part.handle, 0));
  part.mapped = true;
  return {};
}

Status CudaBackend::map_all(CudaReservation& place, std::span<const ChunkIndex> chunks) {
  for (const ChunkIndex chunk : chunks) place.parts_.push_back({chunk, place.parts_.size()});
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  for (std::size_t at = 0; at < chunks.size(); ++at) PLEXRL_TRY(map_one(place, at));
  return PLEXRL_CUDA(device_->driver(), set_access, place.at_, place.reserved_, &device_->access(),
                     1);
}

Status CudaBackend::map(Reservation& where, std::span<const ChunkIndex> chunks) {
  auto& place = static_cast<CudaReservation&>(where);
  if (place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is already mapped");
  if (chunks.size() * options_.chunk_bytes != place.reserved_)
    return error(Code::INVALID_ARGUMENT, "segment of %zu bytes needs %zu chunks, %zu were given",
                 place.bytes_, place.reserved_ / options_.chunk_bytes, chunks.size());
  PLEXRL_TRY(check_chunks(chunks, options_.chunk_count));
  PLEXRL_TRY(give_back(place).within("left over from an earlier failure"));
  PLEXRL_TRY(claim(chunks));
  if (Status status = map_all(place, chunks); !status.ok()) {
    // What cannot be given back stays claimed: the device still has it in use.
    if (const Status undo = give_back(place); !undo.ok())
      PLEXRL_LOG(kError, "memory of a failed mapping stays in use: %s", undo.text().c_str());
    return status;
  }
  place.mapped_ = true;
  const std::scoped_lock lock(mutex_);
  mapped_.emplace(place.data(), place.reserved_);
  return {};
}

// Goes on after an error, so that as much as possible becomes free, and returns the first.
Status CudaBackend::give_back(CudaReservation& place) {
  if (place.parts_.empty()) return {};
  const CudaDriver& driver = device_->driver();
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  Status first;
  const auto give = [&](CudaReservation::Part& part) {
    Status status;
    if (part.mapped)
      status = PLEXRL_CUDA(driver, memory_unmap, place.at_ + part.at * options_.chunk_bytes,
                           options_.chunk_bytes);
    part.mapped = part.mapped && !status.ok();
    if (status.ok() && part.handle != 0) status = PLEXRL_CUDA(driver, memory_release, part.handle);
    if (!status.ok() && first.ok()) first = status;
    if (status.ok()) unclaim(part.chunk);
    return status.ok();
  };
  std::erase_if(place.parts_, give);
  return first;
}

Status CudaBackend::unmap(Reservation& where) {
  auto& place = static_cast<CudaReservation&>(where);
  if (!place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is not mapped");
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  {
    const std::scoped_lock lock(mutex_);
    mapped_.erase(place.data());
  }
  // A kernel on any stream may still use the range (unmapping races it otherwise).
  PLEXRL_TRY(PLEXRL_CUDA(device_->driver(), context_synchronize));
  const Result<DeviceMemory> before = memory();
  const Release release = {before ? before->free_bytes : 0, created_bytes(),
                           place.parts_.size() * options_.chunk_bytes};
  PLEXRL_TRY(give_back(place));
  place.mapped_ = false;
  if (before) prove_free(release);
  return {};
}

std::uint64_t CudaBackend::created_bytes() const {
  const std::scoped_lock lock(mutex_);
  return created_bytes_;
}

void CudaBackend::prove_free(const Release& release) {
  const TimePoint deadline = system_clock().now() + options_.prove_free_within;
  const auto proven = [&](const Result<DeviceMemory>& now) {
    const std::uint64_t taken = created_bytes() - release.created_before;
    return now && now->free_bytes + taken + tolerance(release.bytes) >=
                      release.free_before + release.bytes;
  };
  Result<DeviceMemory> now = memory();
  Duration pause{50'000};
  while (now && !proven(now) && system_clock().now() < deadline) {
    nap(pause);
    pause.ns = std::min(2 * pause.ns, kMillisecond.ns);
    now = memory();
  }
  if (proven(now)) return;
  PLEXRL_LOG(kWarning, "%s: %llu bytes were released; free memory went from %llu to %llu bytes",
             device_name().c_str(), static_cast<unsigned long long>(release.bytes),
             static_cast<unsigned long long>(release.free_before),
             static_cast<unsigned long long>(now ? now->free_bytes : 0));
  const std::scoped_lock lock(mutex_);
  ++unproven_;
}

// Of a reservation that goes away. A lost device keeps everything until the process ends.
void CudaBackend::release(CudaReservation& place) {
  if (place.mapped())
    if (const Status status = unmap(place); !status.ok())
      PLEXRL_LOG(kError, "device memory stays in use: %s", status.text().c_str());
  const CudaDevice::Entered entered(*device_);
  if (!entered.status().ok() || !give_back(place).ok()) return;
  if (const Status status =
          PLEXRL_CUDA(device_->driver(), address_free, place.at_, place.reserved_);
      !status.ok())
    PLEXRL_LOG(kError, "address space stays in use: %s", status.text().c_str());
}

// ---- copies
// --------------------------------------------------------------------------------------

Status CudaBackend::check_mapped(const std::byte* device, std::size_t bytes) const {
  const std::scoped_lock lock(mutex_);
  const auto range = range_of(mapped_, device);
  if (range != mapped_.end() &&
      bytes <= range->second - static_cast<std::size_t>(device - range->first))
    return {};
  return error(Code::INVALID_ARGUMENT, "%zu bytes at %p are not mapped device memory", bytes,
               static_cast<const void*>(device));
}

// The driver refuses copies that cross from one registration into another.
std::size_t CudaBackend::piece_at(const std::byte* host, std::size_t bytes) const {
  const std::scoped_lock lock(mutex_);
  const auto range = range_of(pinned_, host);
  if (range != pinned_.end())
    return std::min(bytes, static_cast<std::size_t>(range->first + range->second - host));
  const auto next = pinned_.lower_bound(host);
  return next == pinned_.end() ? bytes
                               : std::min(bytes, static_cast<std::size_t>(next->first - host));
}

Status CudaBackend::wait_for(const Lane& lane) const {
  const CudaDriver& driver = device_->driver();
  const TimePoint until = system_clock().now() + options_.poll_for;
  while (system_clock().now() < until) {
    const cuda::Result state = driver.call().event_query(lane.event);
    if (state != cuda::kNotReady) return driver.check(state, cuda::symbol::event_query);
  }
  return PLEXRL_CUDA(driver, event_synchronize, lane.event);
}

// Whatever was issued is waited for, also after an error: the caller may free the memory then.
template <class Issue>
Status CudaBackend::on_lane(Lane& lane, const std::byte* device, std::size_t bytes, Issue&& issue) {
  if (bytes == 0) return {};
  PLEXRL_TRY(check_mapped(device, bytes));
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  const CudaDriver& driver = device_->driver();
  const std::scoped_lock lock(lane.mutex);
  Status issued = issue(driver, lane.stream);
  Status ended = PLEXRL_CUDA(driver, event_record, lane.event, lane.stream);
  if (ended.ok()) ended = wait_for(lane);
  if (!ended.ok() && driver.lost().ok()) driver.call().context_synchronize();
  return issued.ok() ? ended : issued;
}

Status CudaBackend::copy_in(std::byte* device, const std::byte* host, std::size_t bytes) {
  return on_lane(in_, device, bytes, [&](const CudaDriver& driver, cuda::Stream stream) -> Status {
    for (std::size_t at = 0, piece = 0; at < bytes; at += piece) {
      piece = piece_at(host + at, bytes - at);
      PLEXRL_TRY(PLEXRL_CUDA(driver, copy_in, address(device + at), host + at, piece, stream));
    }
    return {};
  });
}

Status CudaBackend::copy_out(std::byte* host, const std::byte* device, std::size_t bytes) {
  return on_lane(out_, device, bytes, [&](const CudaDriver& driver, cuda::Stream stream) -> Status {
    for (std::size_t at = 0, piece = 0; at < bytes; at += piece) {
      piece = piece_at(host + at, bytes - at);
      PLEXRL_TRY(PLEXRL_CUDA(driver, copy_out, host + at, address(device + at), piece, stream));
    }
    return {};
  });
}

Status CudaBackend::zero(std::byte* device, std::size_t bytes) {
  return on_lane(in_, device, bytes, [&](const CudaDriver& driver, cuda::Stream stream) {
    return PLEXRL_CUDA(driver, fill_bytes, address(device), 0, bytes, stream);
  });
}

// ---- host and device memory
// ----------------------------------------------------------------------

Result<DeviceMemory> CudaBackend::memory() {
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  std::size_t free = 0;
  std::size_t total = 0;
  PLEXRL_TRY(PLEXRL_CUDA(device_->driver(), memory_info, &free, &total));
  return DeviceMemory{free, total};
}

Result<std::unique_ptr<HostPin>> CudaBackend::pin(std::span<std::byte> host) {
  if (host.empty()) return error(Code::INVALID_ARGUMENT, "no host memory to pin");
  const CudaDevice::Entered entered(*device_);
  PLEXRL_TRY(entered.status());
  PLEXRL_TRY(PLEXRL_CUDA(device_->driver(), host_register, host.data(), host.size(),
                         cuda::kHostRegisterPortable));
  {
    const std::scoped_lock lock(mutex_);
    pinned_.emplace(host.data(), host.size());
  }
  return std::unique_ptr<HostPin>(std::make_unique<CudaPin>(*this, host.data()));
}

void CudaBackend::unpin(std::byte* host) {
  {
    const std::scoped_lock lock(mutex_);
    pinned_.erase(host);
  }
  const CudaDevice::Entered entered(*device_);
  if (!entered.status().ok()) return;
  if (const Status status = PLEXRL_CUDA(device_->driver(), host_unregister, host); !status.ok())
    PLEXRL_LOG(kError, "host memory stays registered: %s", status.text().c_str());
}

}  // namespace plexrl::device
