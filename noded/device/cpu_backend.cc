// SPDX-License-Identifier: Apache-2.0
#include "device/cpu_backend.h"

#include <algorithm>
#include <utility>

namespace plexrl::device {

class CpuReservation final : public Reservation {
 public:
  CpuReservation(CpuBackend& owner, AddressRange range, std::size_t bytes)
      : owner_(owner), range_(std::move(range)), bytes_(bytes) {}
  ~CpuReservation() override { owner_.release(chunks_); }
  CpuReservation(const CpuReservation&) = delete;
  CpuReservation& operator=(const CpuReservation&) = delete;

  [[nodiscard]] std::byte* data() const noexcept override { return range_.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return bytes_; }
  [[nodiscard]] bool mapped() const noexcept override { return !chunks_.empty(); }

 private:
  friend class CpuBackend;
  CpuBackend& owner_;
  AddressRange range_;
  std::size_t bytes_;
  std::vector<ChunkIndex> chunks_;  // those mapped now
};

CpuBackend::CpuBackend(UniqueFd pool, std::size_t chunk_bytes, std::size_t chunk_count,
                       PoolMarks marks)
    : pool_(std::move(pool)),
      chunk_bytes_(chunk_bytes),
      pages_(AddressRange::pages_of(pool_.get(), chunk_bytes * chunk_count)),
      marks_(std::move(marks)),
      used_(chunk_count, false) {}

Result<std::unique_ptr<Reservation>> CpuBackend::reserve(std::size_t bytes) {
  if (bytes == 0 || bytes > chunk_bytes_ * used_.size())
    return error(Code::NO_CAPACITY, "segment of %zu bytes: the device has %zu bytes", bytes,
                 chunk_bytes_ * used_.size());
  const std::size_t chunks = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  PLEXRL_ASSIGN(auto range, AddressRange::reserve(chunks * chunk_bytes_));
  return std::unique_ptr<Reservation>(
      std::make_unique<CpuReservation>(*this, std::move(range), bytes));
}

Status CpuBackend::claim(std::span<const ChunkIndex> chunks) {
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

void CpuBackend::release(std::span<const ChunkIndex> chunks) {
  const std::scoped_lock lock(mutex_);
  for (const ChunkIndex chunk : chunks) used_[chunk] = false;
}

Status CpuBackend::map_run(AddressRange& range, const ChunkRun& run) {
  return range.map(run.at * chunk_bytes_, pool_.get(),
                   static_cast<off_t>(run.first) * static_cast<off_t>(chunk_bytes_),
                   run.count * chunk_bytes_, AddressRange::Access::kReadWrite, pages_);
}

Status CpuBackend::map_all(AddressRange& range, std::span<const ChunkIndex> chunks) {
  for (std::size_t at = 0; at < chunks.size();) {
    const ChunkRun run = run_at(chunks, at);
    PLEXRL_TRY(map_run(range, run));
    at += run.count;
  }
  return {};
}

Status CpuBackend::map(Reservation& where, std::span<const ChunkIndex> chunks) {
  auto& place = static_cast<CpuReservation&>(where);
  if (place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is already mapped");
  if (chunks.size() * chunk_bytes_ != place.range_.bytes())
    return error(Code::INVALID_ARGUMENT, "segment of %zu bytes needs %zu chunks, %zu were given",
                 place.bytes_, place.range_.bytes() / chunk_bytes_, chunks.size());
  PLEXRL_TRY(check_chunks(chunks, used_.size()));
  PLEXRL_TRY(claim(chunks));
  marks_.raise(chunks, place.bytes_);
  if (Status status = map_all(place.range_, chunks); !status.ok()) {
    // When even this fails the chunks stay claimed: they may still be reachable here.
    PLEXRL_TRY(place.range_.clear());
    release(chunks);
    return status;
  }
  place.chunks_.assign(chunks.begin(), chunks.end());
  return {};
}

Status CpuBackend::unmap(Reservation& where) {
  auto& place = static_cast<CpuReservation&>(where);
  if (!place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is not mapped");
  PLEXRL_TRY(place.range_.clear());
  release(place.chunks_);
  place.chunks_.clear();
  return {};
}

Status CpuBackend::copy_in(std::byte* device, const std::byte* host, std::size_t bytes) {
  stream_copy(device, host, bytes, path_);
  return {};
}

Status CpuBackend::copy_out(std::byte* host, const std::byte* device, std::size_t bytes) {
  stream_copy(host, device, bytes, path_);
  return {};
}

Status CpuBackend::zero(std::byte* device, std::size_t bytes) {
  stream_zero(device, bytes, path_);
  return {};
}

Status CpuBackend::zero_tail(Reservation& where) {
  const auto& place = static_cast<CpuReservation&>(where);
  if (!place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is not mapped");
  const std::size_t last = place.range_.bytes() - chunk_bytes_;
  marks_.clean(place.chunks_.back(), place.range_.data() + last, place.bytes_ - last);
  return {};
}

Result<DeviceMemory> CpuBackend::memory() {
  const std::scoped_lock lock(mutex_);
  const auto free = static_cast<std::size_t>(std::count(used_.begin(), used_.end(), false));
  return DeviceMemory{free * chunk_bytes_, used_.size() * chunk_bytes_};
}

Result<std::unique_ptr<DeviceBackend>> open_cpu_backend(UniqueFd pool, std::size_t chunk_bytes,
                                                        std::size_t chunk_count) {
  PLEXRL_TRY(check_pool(pool.get(), chunk_bytes, chunk_count).within("device pool"));
  PLEXRL_ASSIGN(auto marks, PoolMarks::open(pool.get(), chunk_bytes, chunk_count));
  return std::unique_ptr<DeviceBackend>(
      std::make_unique<CpuBackend>(std::move(pool), chunk_bytes, chunk_count, std::move(marks)));
}

}  // namespace plexrl::device
