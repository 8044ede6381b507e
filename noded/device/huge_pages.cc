// SPDX-License-Identifier: Apache-2.0
#include "device/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "base/clock.h"

namespace plexrl::device {
namespace {

// Not in the headers of Debian 12 (Linux 6.1 has it).
constexpr int kCollapse = 25;

// The kernel makes room for a huge page by moving others, which fails now and then and works the
// next time (4 GiB beside compilers: 48 of 2,048 failed once). So many in a row mean that it has
// given up.
constexpr unsigned kMaxFailuresInARow = 32;
constexpr unsigned kRounds = 2;

// A start of the service that waits for the kernel to move memory must end. An idle machine takes
// 0.5 ms for a page, one with ten compilers on two cores 14 ms (2026-11).
constexpr Duration kLeast{3 * kSecond.ns};
constexpr Duration kPerPage{16 * kMillisecond.ns};
constexpr Duration kMost{60 * kSecond.ns};

TimePoint give_up(std::size_t bytes) {
  const auto pages = static_cast<std::int64_t>(bytes / kHugePage);
  const std::int64_t wanted = kLeast.ns + kPerPage.ns * pages;
  return system_clock().now() + Duration{std::min(wanted, kMost.ns)};
}

bool collapse(std::byte* at) { return ::madvise(at, kHugePage, kCollapse) == 0; }

}  // namespace

void gather_huge_pages(std::byte* at, std::size_t bytes) {
  // Counts where shmem_enabled is `advise`; with `never` only the collapse works.
  static_cast<void>(::madvise(at, bytes, MADV_HUGEPAGE));
  const TimePoint end = give_up(bytes);
  unsigned failures = 0, in_a_row = 0;
  for (unsigned round = 0; round < kRounds; ++round) {
    for (std::byte* page = at; page + kHugePage <= at + bytes; page += kHugePage) {
      in_a_row = collapse(page) ? 0 : in_a_row + 1;
      failures += in_a_row > 0 ? 1 : 0;
      if (in_a_row == kMaxFailuresInARow || system_clock().now() >= end) return;
    }
    if (std::exchange(failures, 0) == 0) return;
  }
}

std::size_t bytes_in_huge_pages(const void* at) {
  std::ifstream smaps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(at);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t start = 0, end = 0;
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2) {
      if (inside) break;
      inside = start == wanted;
    } else if (inside && std::sscanf(line.c_str(), "ShmemPmdMapped: %zu kB", &kib) == 1) {
      return kib * 1024;
    }
  }
  return 0;
}

}  // namespace plexrl::device
