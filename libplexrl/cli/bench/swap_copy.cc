// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/swap_copy.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "cli/bench/op_load.h"
#include "device/huge_pages.h"
#include "device/stream_copy.h"

namespace plexrl::cli {
namespace {

// plexrld's default.
constexpr std::size_t kChunk = std::size_t{2} << 20;
// Small segments take turns in pools of this size: a switch does not find its bytes in the caches.
constexpr std::uint64_t kMinPool = std::uint64_t{256} << 20;
constexpr std::uint64_t kBytesPerRow = std::uint64_t{4} << 30;
constexpr std::uint64_t kMinRepeats = 7;
constexpr std::uint64_t kMaxRepeats = 101;

void copy_by_library(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void copy_by_stream(std::byte* to, const std::byte* from, std::size_t bytes) {
  device::stream_copy(to, from, bytes, device::best_copy_path());
}

// The faster one is the raw copy: which one that is depends on the machine and the size.
constexpr std::array<void (*)(std::byte*, const std::byte*, std::size_t), 2> kRawCopies = {
    copy_by_library, copy_by_stream};

std::size_t chunks_for(std::uint64_t bytes) { return (bytes + kChunk - 1) / kChunk; }

double seconds_since(TimePoint start) {
  return static_cast<double>((system_clock().now() - start).ns) / 1e9;
}

std::uint32_t repeats_for(std::uint64_t bytes) {
  return static_cast<std::uint32_t>(std::clamp(kBytesPerRow / bytes, kMinRepeats, kMaxRepeats));
}

// Not with zeroes, and no two alike: a machine that shares equal pages must not have any here.
void fill_chunk(std::byte* pool, std::size_t chunk) {
  constexpr std::size_t kWords = kChunk / sizeof(std::uint64_t);
  auto* const words = reinterpret_cast<std::uint64_t*>(pool + chunk * kChunk);
  std::iota(words, words + kWords, std::uint64_t{chunk + 1} * kWords);
}

Result<UniqueFd> duplicate(const UniqueFd& fd) {
  UniqueFd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) return errno_error(Code::IO, errno, "duplicate a pool's descriptor");
  return copy;
}

}  // namespace

Result<SwapCopy::Pool> SwapCopy::make_pool(const char* name, std::size_t chunks) {
  Pool pool;
  PLEXRL_ASSIGN(pool.fd, device::create_cpu_pool(name, kChunk, chunks));
  // One more than is mapped: pools at a distance of just a power of two are a special case for the
  // caches (Zen 4: the library's copy 35 % slower, the streaming one 4 % faster) that moves do not
  // have.
  PLEXRL_ASSIGN(pool.all, device::AddressRange::reserve((chunks + 1) * kChunk));
  PLEXRL_TRY(
      pool.all.map(0, pool.fd.get(), 0, chunks * kChunk, device::AddressRange::Access::kReadWrite));
  PLEXRL_ASSIGN(pool.marks, device::PoolMarks::open(pool.fd.get(), kChunk, chunks));
  for (device::ChunkIndex chunk = 0; chunk < chunks; ++chunk) pool.marks.raise(chunk, kChunk);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) fill_chunk(pool.all.data(), chunk);
  return pool;
}

Result<SwapCopy> SwapCopy::create(std::uint64_t bytes) {
  SwapCopy copy;
  // One more, for what maps the pools whole gets them side by side, as below.
  copy.chunks_ = chunks_for(std::max(bytes, kMinPool)) + 1;
  PLEXRL_ASSIGN(copy.device_pool_, make_pool("bench-device", copy.chunks_));
  PLEXRL_ASSIGN(copy.host_pool_, make_pool("bench-host", copy.chunks_));
  PLEXRL_ASSIGN(auto device_fd, duplicate(copy.device_pool_.fd));
  PLEXRL_ASSIGN(copy.device_, device::open_cpu_backend(std::move(device_fd), kChunk, copy.chunks_));
  PLEXRL_ASSIGN(auto host_fd, duplicate(copy.host_pool_.fd));
  PLEXRL_ASSIGN(auto host, device::HostPool::open(std::move(host_fd), kChunk, copy.chunks_));
  copy.host_ = std::make_unique<device::HostPool>(std::move(host));
  if (!device::MappedPool::pays(*copy.device_, *copy.host_)) return copy;
  PLEXRL_ASSIGN(copy.mapped_, device::MappedPool::start(*copy.device_, *copy.host_));
  PLEXRL_TRY(copy.mapped_->wait());
  return copy;
}

// As SuspendCommand does it.
Result<SwapCopy::Seconds> SwapCopy::move_out(device::Reservation& segment,
                                             const std::vector<device::ChunkIndex>& chunks) {
  PLEXRL_TRY(device_->map(segment, chunks));
  const TimePoint start = system_clock().now();
  PLEXRL_TRY(device::copy_to_host(*device_, *host_, segment, chunks, mapped_.get()));
  PLEXRL_TRY(device_->unmap(segment));
  return Seconds{seconds_since(start), 0};
}

// As ResumeCommand does it.
Result<SwapCopy::Seconds> SwapCopy::move_in(device::Reservation& segment,
                                            const std::vector<device::ChunkIndex>& chunks) {
  const TimePoint start = system_clock().now();
  PLEXRL_TRY(device_->map_to_copy(segment, chunks));
  PLEXRL_TRY(device::copy_from_host(*device_, *host_, segment, chunks, mapped_.get()));
  PLEXRL_TRY(device_->zero_tail(segment));
  const double seconds = seconds_since(start);
  const TimePoint told = system_clock().now();
  device_->settle(segment);
  const double filling = seconds_since(told);
  PLEXRL_TRY(device_->unmap(segment));
  return Seconds{seconds, filling};
}

// Seconds of one copy between memory that is mapped already.
double SwapCopy::raw_seconds(RawCopy copy, std::uint64_t bytes, std::size_t slot, bool out) {
  std::byte* to = host_pool_.all.data() + slot * kChunk;
  std::byte* from = device_pool_.all.data() + slot * kChunk;
  if (!out) std::swap(to, from);
  const TimePoint start = system_clock().now();
  copy(to, from, bytes);
  return seconds_since(start);
}

Result<SwapCopy::Seconds> SwapCopy::move(device::Reservation& segment,
                                         const std::vector<device::ChunkIndex>& chunks, bool out) {
  return out ? move_out(segment, chunks) : move_in(segment, chunks);
}

// As a segment that needs all of them leaves them.
void SwapCopy::fill_chunks(const std::vector<device::ChunkIndex>& chunks) {
  for (const Pool* const pool : {&device_pool_, &host_pool_})
    for (const device::ChunkIndex chunk : chunks) {
      pool->marks.raise(chunk, kChunk);
      fill_chunk(pool->all.data(), chunk);
    }
}

// The move and the raw copies take turns in every round, each the first in its turn: what else runs
// on the machine, and what the one before left in the caches, meets all of them alike.
Result<SwapSpeed> SwapCopy::measure_after(Former former, std::uint64_t bytes, bool out) {
  constexpr std::size_t kRivals = kRawCopies.size() + 1;  // the move is the last one
  const std::size_t count = chunks_for(bytes);
  const std::size_t slots = chunks_ / count;
  PLEXRL_ASSIGN(const auto segment, device_->reserve(bytes));
  std::vector<device::ChunkIndex> chunks(count);
  const auto take_slot = [&](std::size_t slot) {
    std::iota(chunks.begin(), chunks.end(), static_cast<device::ChunkIndex>(slot * count));
  };
  for (std::size_t slot = 0; slot < slots && bytes % kChunk != 0; ++slot) {
    take_slot(slot);
    fill_chunks(chunks);
    if (former == Former::kAsLarge)
      for (const bool way : {true, false}) PLEXRL_TRY(move(*segment, chunks, way).status());
  }
  std::array<std::vector<double>, kRivals> seconds;
  std::vector<double> filled;
  SwapSpeed speed{bytes, repeats_for(bytes), 0, 0, 0, 0, 0};
  for (std::uint32_t i = 0; i < speed.repeats; ++i) {
    for (std::size_t turn = 0; turn < kRivals; ++turn) {
      const std::size_t who = (i + turn) % kRivals;
      const std::size_t slot = (i + slots * turn / kRivals) % slots;
      if (who < kRawCopies.size()) {
        seconds[who].push_back(raw_seconds(kRawCopies[who], bytes, slot * count, out));
        continue;
      }
      take_slot(slot);
      PLEXRL_ASSIGN(const Seconds took, move(*segment, chunks, out));
      seconds[who].push_back(took.move);
      filled.push_back(took.move + took.filling);
    }
  }
  const std::vector<double>& moves = seconds.back();
  speed.gbps = median_gbps(bytes, moves);
  for (std::size_t k = 0; k < kRawCopies.size(); ++k) {
    const double raw_gbps = median_gbps(bytes, seconds[k]);
    if (raw_gbps <= speed.raw_gbps) continue;
    speed.raw_gbps = raw_gbps;
    speed.ratio = median_ratio(seconds[k], moves);
    speed.ratio_filled = median_ratio(seconds[k], filled);
  }
  return speed;
}

Result<SwapSpeed> SwapCopy::measure(std::uint64_t bytes, bool out) {
  PLEXRL_ASSIGN(SwapSpeed speed, measure_after(Former::kAsLarge, bytes, out));
  speed.ratio_after_larger = speed.ratio;
  if (bytes % kChunk == 0) return speed;
  PLEXRL_ASSIGN(const SwapSpeed after, measure_after(Former::kLarger, bytes, out));
  speed.ratio_after_larger = after.ratio;
  return speed;
}

double SwapCopy::raw_copy_s(std::uint64_t bytes) {
  double best = raw_seconds(kRawCopies[0], bytes, 0, true);
  for (std::size_t k = 1; k < kRawCopies.size(); ++k)
    best = std::min(best, raw_seconds(kRawCopies[k], bytes, 0, true));
  return best;
}

double SwapCopy::huge_pages() const {
  const std::size_t huge = device::bytes_in_huge_pages(device_pool_.all.data()) +
                           device::bytes_in_huge_pages(host_pool_.all.data());
  return static_cast<double>(huge) / static_cast<double>(2 * chunks_ * kChunk);
}

Result<SwapSpeed> SwapCopy::device_to_host(std::uint64_t bytes) { return measure(bytes, true); }

Result<SwapSpeed> SwapCopy::host_to_device(std::uint64_t bytes) { return measure(bytes, false); }

}  // namespace plexrl::cli
