// SPDX-License-Identifier: Apache-2.0
#include "device/pool_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/log.h"
#include "device/address_range.h"
#include "device/chunk_pool.h"
#include "device/huge_pages.h"

namespace plexrl::device {
namespace {

constexpr std::size_t kPage = 4096;
// Below this neither threads nor a look at the machine (hwloc: some 10 ms) pay.
constexpr std::size_t kSmallPool = std::size_t{64} << 20;

// fallocate reports a full tmpfs or cgroup as an error; a store would be killed by SIGBUS instead.
Status allocate(int fd, std::size_t at, std::size_t bytes) {
  if (::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(bytes)) == 0) return {};
  return errno_error(Code::NO_CAPACITY, errno, "allocate %zu bytes of pool memory", bytes);
}

// Allocated pages are cleared when they are first written to.
void clear_pages(std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPage) {
    volatile std::byte& first = data[at];
    first = first;
  }
}

// One page where each huge page shall be: the kernel fills the rest when it makes that page, which
// spares it to copy 511 of them together.
Status bring_in_slice(int fd, std::byte* pool, const PoolSlice& slice) {
  const std::size_t from = (slice.at + kHugePage - 1) / kHugePage * kHugePage;
  const std::size_t end = slice.at + slice.bytes;
  for (std::size_t at = from; at + kHugePage <= end; at += kHugePage)
    PLEXRL_TRY(allocate(fd, at, kPage));
  if (from < end) gather_huge_pages(pool + from, end - from);
  PLEXRL_TRY(allocate(fd, slice.at, slice.bytes));
  clear_pages(pool + slice.at, slice.bytes);
  return {};
}

std::vector<NumaNode> nodes_for(std::size_t bytes) {
  const std::vector<NumaNode> anywhere = {{}};
  if (bytes < kSmallPool) return anywhere;
  auto nodes = numa_nodes();
  if (nodes) return *std::move(nodes);
  PLEXRL_LOG(kWarning, "NUMA nodes are not looked at: %s", nodes.error().to_string().c_str());
  return anywhere;
}

void place(const std::vector<NumaRange>& ranges, const std::vector<NumaNode>& nodes,
           std::byte* pool, std::size_t chunk_bytes) {
  for (const NumaRange& range : ranges) {
    const Status status = place_on(nodes[range.node], pool + range.first_chunk * chunk_bytes,
                                   range.chunks * chunk_bytes);
    if (!status.ok()) PLEXRL_LOG(kWarning, "%s", status.to_string().c_str());
  }
}

}  // namespace

std::vector<PoolSlice> slices_of(const std::vector<NumaRange>& ranges,
                                 const std::vector<NumaNode>& nodes, std::size_t chunk_bytes) {
  std::vector<PoolSlice> slices;
  for (const NumaRange& range : ranges) {
    const std::size_t cpus = nodes[range.node].cpus.size();
    const std::size_t threads = std::clamp(cpus, std::size_t{1}, kMaxThreadsPerNode);
    const std::size_t first = range.first_chunk * chunk_bytes;
    const std::size_t end = first + range.chunks * chunk_bytes;
    const std::size_t step = (end - first + threads - 1) / threads;
    for (std::size_t at = first; at < end;) {
      const std::size_t next = std::min(end, (at + step + kHugePage - 1) / kHugePage * kHugePage);
      slices.push_back({at, next - at, range.node});
      at = next;
    }
  }
  return slices;
}

Status bring_in(const char* name, int fd, std::size_t chunk_bytes, std::size_t chunk_count) {
  const std::size_t bytes = chunk_bytes * chunk_count;
  PLEXRL_ASSIGN(auto range, AddressRange::reserve(bytes));
  PLEXRL_TRY(range.map_lazily(0, fd, 0, bytes, AddressRange::Access::kReadWrite));
  const auto nodes = nodes_for(bytes);
  const auto ranges = deal_out(chunk_count, nodes);
  const bool several = nodes.size() > 1;
  if (several) place(ranges, nodes, range.data(), chunk_bytes);
  const auto slices = slices_of(ranges, nodes, chunk_bytes);
  std::vector<Status> outcomes(slices.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < slices.size(); ++i)
    threads.emplace_back([&, i] {
      if (several) static_cast<void>(run_on(nodes[slices[i].node]));
      outcomes[i] = bring_in_slice(fd, range.data(), slices[i]);
    });
  outcomes[0] = bring_in_slice(fd, range.data(), slices[0]);
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) PLEXRL_TRY(outcome);
  PLEXRL_LOG(kInfo, "pool %s: %zu MiB on %zu NUMA nodes, %zu MiB in huge pages", name, bytes >> 20,
             ranges.size(), bytes_in_huge_pages(range.data()) >> 20);
  return {};
}

Result<UniqueFd> create_cpu_pool(const char* name, std::size_t chunk_bytes,
                                 std::size_t chunk_count) {
  PLEXRL_TRY(check_geometry(chunk_bytes, chunk_count).within(name));
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return errno_error(Code::IO, errno, "pool '%s': memfd_create", name);
  const std::size_t bytes = chunk_bytes * chunk_count;
  const std::size_t marks = marks_bytes(chunk_count);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes + marks)) != 0)
    return errno_error(Code::NO_CAPACITY, errno, "pool '%s': %zu bytes", name, bytes + marks);
  PLEXRL_TRY(allocate(fd.get(), bytes, marks).within(name));
  PLEXRL_TRY(bring_in(name, fd.get(), chunk_bytes, chunk_count).within(name));
  if (::fcntl(fd.get(), F_ADD_SEALS, kPoolSeals) != 0)
    return errno_error(Code::IO, errno, "pool '%s': seal", name);
  return fd;
}

}  // namespace plexrl::device
