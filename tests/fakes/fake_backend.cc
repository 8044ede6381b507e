// SPDX-License-Identifier: Apache-2.0
#include "fakes/fake_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "device/chunk_pool.h"

namespace plexrl::device {

class FakeReservation final : public Reservation {
 public:
  FakeReservation(FakeBackend& owner, AddressRange range, std::size_t bytes)
      : owner_(owner), range_(std::move(range)), bytes_(bytes) {}
  ~FakeReservation() override { owner_.release(*this); }
  FakeReservation(const FakeReservation&) = delete;
  FakeReservation& operator=(const FakeReservation&) = delete;

  [[nodiscard]] std::byte* data() const noexcept override { return range_.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] bool mapped() const noexcept override { return !chunks_.empty(); }

 private:
  friend class FakeBackend;
  FakeBackend& owner_;
  AddressRange range_;
  std::size_t bytes_;
  std::vector<ChunkIndex> chunks_;
};

class FakePin final : public HostPin {
 public:
  explicit FakePin(FakeBackend& owner) : owner_(owner) { ++owner_.pins_; }
  ~FakePin() override { --owner_.pins_; }
  FakePin(const FakePin&) = delete;
  FakePin& operator=(const FakePin&) = delete;

 private:
  FakeBackend& owner_;
};

Result<std::unique_ptr<FakeBackend>> FakeBackend::create(std::size_t chunk_bytes,
                                                         std::size_t chunk_count) {
  UniqueFd memory(::memfd_create("fake-device", MFD_CLOEXEC));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(chunk_bytes * chunk_count)) != 0)
    return errno_error(Code::IO, errno, "memory of the fake device");
  return std::make_unique<FakeBackend>(std::move(memory), chunk_bytes, chunk_count);
}

Status FakeBackend::strike(std::atomic<int>& countdown, const char* what) {
  if (lost_) return error(Code::LOST, "%s: the device is lost", what);
  if (countdown == 0 || --countdown != 0) return {};
  return error(Code::IO, "%s: fault on demand", what);
}

void FakeBackend::spend(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  spent_ns_ += static_cast<std::int64_t>(bytes * 1'000'000'000 / bytes_per_second);
}

Result<std::unique_ptr<Reservation>> FakeBackend::reserve(std::size_t bytes) {
  PLEXRL_TRY(strike(faults_.reserve, "reserve"));
  const std::size_t capacity = chunk_bytes_ * used_.size();
  if (bytes == 0 || bytes > capacity)
    return error(Code::NO_CAPACITY, "segment of %zu bytes: the device has %zu bytes", bytes,
                 capacity);
  const std::size_t chunks = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  PLEXRL_ASSIGN(auto range, AddressRange::reserve(chunks * chunk_bytes_));
  return std::unique_ptr<Reservation>(
      std::make_unique<FakeReservation>(*this, std::move(range), bytes));
}

Status FakeBackend::claim(std::span<const ChunkIndex> chunks) {
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!used_[chunks[i]]) {
      used_[chunks[i]] = true;
      continue;
    }
    for (std::size_t undo = 0; undo < i; ++undo) used_[chunks[undo]] = false;
    return error(Code::INVALID_ARGUMENT, "chunk %u is already mapped", chunks[i]);
  }
  return {};
}

Status FakeBackend::map_all(FakeReservation& place, std::span<const ChunkIndex> chunks) {
  for (std::size_t at = 0; at < chunks.size(); ++at) {
    PLEXRL_TRY(strike(faults_.map, "map"));
    spent_ns_ += costs_.map_chunk.ns;
    PLEXRL_TRY(place.range_.map(at * chunk_bytes_, memory_.get(),
                                static_cast<off_t>(chunks[at] * chunk_bytes_), chunk_bytes_,
                                AddressRange::Access::kReadWrite));
  }
  std::memset(place.data(), std::to_integer<int>(garbage_.load()), chunks.size() * chunk_bytes_);
  return {};
}

Status FakeBackend::map(Reservation& where, std::span<const ChunkIndex> chunks) {
  auto& place = static_cast<FakeReservation&>(where);
  if (place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is already mapped");
  if (chunks.size() * chunk_bytes_ != place.range_.bytes())
    return error(Code::INVALID_ARGUMENT, "segment of %zu bytes needs %zu chunks, %zu were given",
                 place.bytes_, place.range_.bytes() / chunk_bytes_, chunks.size());
  PLEXRL_TRY(check_chunks(chunks, used_.size()));
  PLEXRL_TRY(claim(chunks));
  Status status = map_all(place, chunks);
  if (!status.ok()) PLEXRL_TRY(place.range_.clear());
  const std::scoped_lock lock(mutex_);
  if (status.ok()) {
    place.chunks_.assign(chunks.begin(), chunks.end());
    mapped_.emplace(place.data(), place.range_.bytes());
  } else {
    for (const ChunkIndex chunk : chunks) used_[chunk] = false;
  }
  return status;
}

Status FakeBackend::unmap(Reservation& where) {
  auto& place = static_cast<FakeReservation&>(where);
  if (!place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is not mapped");
  PLEXRL_TRY(strike(faults_.unmap, "unmap"));
  release(place);
  return {};
}

void FakeBackend::release(FakeReservation& place) {
  if (!place.mapped()) return;
  spent_ns_ += costs_.unmap_chunk.ns * static_cast<std::int64_t>(place.chunks_.size());
  const Status cleared = place.range_.clear();
  PLEXRL_CHECK(cleared.ok(), cleared.text().c_str());
  const std::scoped_lock lock(mutex_);
  mapped_.erase(place.data());
  for (const ChunkIndex chunk : place.chunks_) used_[chunk] = false;
  place.chunks_.clear();
}

Status FakeBackend::check_mapped(const std::byte* device, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  auto next = mapped_.upper_bound(device);
  if (next != mapped_.begin()) {
    --next;
    if (device + bytes <= next->first + next->second) return {};
  }
  return error(Code::INVALID_ARGUMENT, "%zu bytes that are not mapped device memory", bytes);
}

Status FakeBackend::copy_in(std::byte* device, const std::byte* host, std::size_t bytes) {
  while (let_in_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (let_in_ > 0) --let_in_;
  PLEXRL_TRY(strike(faults_.copy_in, "copy in"));
  PLEXRL_TRY(check_mapped(device, bytes));
  if (bytes > 0) std::memcpy(device, host, bytes);  // no address is needed for nothing
  spend(bytes, costs_.copy_bytes_per_second);
  return {};
}

Status FakeBackend::copy_out(std::byte* host, const std::byte* device, std::size_t bytes) {
  PLEXRL_TRY(strike(faults_.copy_out, "copy out"));
  PLEXRL_TRY(check_mapped(device, bytes));
  if (bytes > 0) std::memcpy(host, device, bytes);
  spend(bytes, costs_.copy_bytes_per_second);
  return {};
}

Status FakeBackend::zero(std::byte* device, std::size_t bytes) {
  PLEXRL_TRY(strike(faults_.zero, "zero"));
  PLEXRL_TRY(check_mapped(device, bytes));
  std::memset(device, 0, bytes);
  spend(bytes, costs_.zero_bytes_per_second);
  return {};
}

Result<DeviceMemory> FakeBackend::memory() {
  if (lost_) return error(Code::LOST, "memory: the device is lost");
  const std::scoped_lock lock(mutex_);
  const auto free = static_cast<std::size_t>(std::count(used_.begin(), used_.end(), false));
  return DeviceMemory{free * chunk_bytes_, used_.size() * chunk_bytes_};
}

Result<std::unique_ptr<HostPin>> FakeBackend::pin(std::span<std::byte> host) {
  PLEXRL_TRY(strike(faults_.pin, "pin"));
  if (host.empty()) return error(Code::INVALID_ARGUMENT, "no host memory to pin");
  return std::unique_ptr<HostPin>(std::make_unique<FakePin>(*this));
}

}  // namespace plexrl::device
