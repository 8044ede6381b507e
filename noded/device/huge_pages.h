// SPDX-License-Identifier: Apache-2.0
// Huge pages of shared memory, 2 MiB on x86-64. A mapping of them costs one page table entry per
// 2 MiB instead of 512, which is what makes moves as fast as the copy alone (doc/state.md).
#pragma once

#include <cstddef>

namespace plexrl::device {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Asks the kernel to hold the shared memory mapped at [at, at + bytes) in huge pages, where whole
// ones fit, each with one of its pages in memory already. Needs neither reserved pages nor a system
// setting (MADV_COLLAPSE, Linux 6.1). Where the kernel has none to give the small pages stay: less
// speed, nothing else. When free memory is in pieces this takes long: it ends after three seconds
// and 16 ms more for each huge page, after a minute in any case. Any thread.
void gather_huge_pages(std::byte* at, std::size_t bytes);

// Of the bytes mapped at `at`, which is the start of a mapping: how many are mapped by huge pages.
// 0 when the kernel does not tell. Reads /proc/self/smaps.
[[nodiscard]] std::size_t bytes_in_huge_pages(const void* at);

}  // namespace plexrl::device
