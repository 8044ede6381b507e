// SPDX-License-Identifier: Apache-2.0
#include "device/cpu_backend.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace plexrl::device {
namespace {

// Filling a page takes about 3.5 us, and copying what is in it 50 to 100 (2 cores, Linux 6.18,
// 2026-11): with more pages it is less of the whole, and what an op would wait for becomes more.
constexpr std::size_t kFilledLater = std::size_t{4} << 20;

}  // namespace

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
  bool filled_ = true;              // so are the page tables
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

void CpuBackend::begin_whole_mapping() {
  if (pages_ != AddressRange::Pages::kHuge) return;
  auto whole =
      MappedPool::start(nullptr, {"device", pool_.get(), chunk_bytes_, used_.size(), pages_});
  if (whole)
    whole_ = *std::move(whole);
  else
    PLEXRL_LOG(kWarning, "device memory is not mapped for good, small moves are slower: %s",
               whole.error().to_string().c_str());
}

Status CpuBackend::await_whole_mapping() { return whole_ == nullptr ? Status() : whole_->wait(); }

Status CpuBackend::map_run(AddressRange& range, const ChunkRun& run, Fill fill) {
  const std::size_t at = run.at * chunk_bytes_;
  const std::size_t bytes = run.count * chunk_bytes_;
  const off_t offset = static_cast<off_t>(run.first) * static_cast<off_t>(chunk_bytes_);
  constexpr auto kAccess = AddressRange::Access::kReadWrite;
  return fill == Fill::kLater ? range.map_lazily(at, pool_.get(), offset, bytes, kAccess)
                              : range.map(at, pool_.get(), offset, bytes, kAccess, pages_);
}

Status CpuBackend::map_all(AddressRange& range, std::span<const ChunkIndex> chunks, Fill fill) {
  for (std::size_t at = 0; at < chunks.size();) {
    const ChunkRun run = run_at(chunks, at);
    PLEXRL_TRY(map_run(range, run, fill));
    at += run.count;
  }
  return {};
}

Status CpuBackend::map(Reservation& where, std::span<const ChunkIndex> chunks) {
  return map_with(where, chunks, Fill::kNow);
}

Status CpuBackend::map_to_copy(Reservation& where, std::span<const ChunkIndex> chunks) {
  const bool later = where.bytes() <= kFilledLater && whole_ != nullptr && whole_->holds(chunks);
  return map_with(where, chunks, later ? Fill::kLater : Fill::kNow);
}

Status CpuBackend::map_with(Reservation& where, std::span<const ChunkIndex> chunks, Fill fill) {
  auto& place = static_cast<CpuReservation&>(where);
  if (place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is already mapped");
  if (chunks.size() * chunk_bytes_ != place.range_.bytes())
    return error(Code::INVALID_ARGUMENT, "segment of %zu bytes needs %zu chunks, %zu were given",
                 place.bytes_, place.range_.bytes() / chunk_bytes_, chunks.size());
  PLEXRL_TRY(check_chunks(chunks, used_.size()));
  PLEXRL_TRY(claim(chunks));
  marks_.raise(chunks, place.bytes_);
  if (Status status = map_all(place.range_, chunks, fill); !status.ok()) {
    // When even this fails the chunks stay claimed: they may still be reachable here.
    PLEXRL_TRY(place.range_.clear());
    release(chunks);
    return status;
  }
  place.chunks_.assign(chunks.begin(), chunks.end());
  place.filled_ = fill == Fill::kNow;
  return {};
}

Status CpuBackend::unmap(Reservation& where) {
  auto& place = static_cast<CpuReservation&>(where);
  if (!place.mapped()) return error(Code::INVALID_ARGUMENT, "segment is not mapped");
  PLEXRL_TRY(place.range_.clear());
  release(place.chunks_);
  place.chunks_.clear();
  place.filled_ = true;
  return {};
}

Status CpuBackend::copy_into(Reservation& where, std::size_t at, const std::byte* host,
                             std::size_t bytes) {
  const auto& place = static_cast<CpuReservation&>(where);
  if (place.filled_) return copy_in(place.data() + at, host, bytes);
  PLEXRL_CHECK(at <= place.bytes_ && bytes <= place.bytes_ - at, "a copy into a segment fits");
  while (bytes > 0) {
    const ChunkRun run = run_at(place.chunks_, at / chunk_bytes_);
    const std::size_t inside = at % chunk_bytes_;
    const std::size_t part = std::min(bytes, run.count * chunk_bytes_ - inside);
    stream_copy(whole_->at(run.first) + inside, host, part, path_);
    at += part;
    host += part;
    bytes -= part;
  }
  return {};
}

void CpuBackend::settle(Reservation& where) {
  auto& place = static_cast<CpuReservation&>(where);
  if (place.mapped() && !place.filled_) place.range_.populate();
  place.filled_ = true;
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
  const ChunkIndex chunk = place.chunks_.back();
  std::byte* const data = place.filled_ ? place.range_.data() + last : whole_->at(chunk);
  marks_.clean(chunk, data, place.bytes_ - last);
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
  auto backend =
      std::make_unique<CpuBackend>(std::move(pool), chunk_bytes, chunk_count, std::move(marks));
  backend->begin_whole_mapping();
  return std::unique_ptr<DeviceBackend>(std::move(backend));
}

}  // namespace plexrl::device
