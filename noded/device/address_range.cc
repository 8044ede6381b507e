// SPDX-License-Identifier: Apache-2.0
#include "device/address_range.h"

#include <sys/mman.h>
#include <sys/resource.h>
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

bool aligned(const void* at, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(at) % alignment == 0;
}

// `alignment`: a multiple of the page size, as `bytes` is.
Result<std::byte*> aligned_nothing(std::size_t bytes, std::size_t alignment) {
  void* got = map_nothing(nullptr, bytes, 0);
  // So in kernels that align large mappings themselves (Linux 6.7). Else a larger one is cut.
  if (got != MAP_FAILED && aligned(got, alignment)) return static_cast<std::byte*>(got);
  if (got != MAP_FAILED) ::munmap(got, bytes);
  got = map_nothing(nullptr, bytes + alignment, 0);
  if (got == MAP_FAILED)
    return errno_error(Code::NO_CAPACITY, errno, "reserve %zu bytes of address space", bytes);
  auto* const start = static_cast<std::byte*>(got);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(got) % alignment;
  if (before > 0) ::munmap(start, before);
  if (alignment > before) ::munmap(start + before + bytes, alignment - before);
  return start + before;
}

// A read fault maps all pages of the pool around it that are in memory (fault_around_bytes, 64 KiB
// by default). With small pages this costs about 15 % less than MAP_POPULATE, which faults page by
// page (A/B on 512 MiB, shared machine, Linux 6.18, 2026-11). Where the kernel maps less, the rest
// faults when it is used.
constexpr std::size_t kFaultAround = std::size_t{64} * 1024;

// Sanitizers would fault their own memory in beside it, which maps_huge_pages would count.
[[gnu::no_sanitize("address", "thread")]] void touch(const std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kFaultAround)
    static_cast<void>(*static_cast<const volatile std::byte*>(data + at));
}

long faults_of_this_thread() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// Whether a second place of the page at `data` was there after the first one was touched.
bool maps_huge_pages(const std::byte* data) {
  touch(data, 1);
  const long before = faults_of_this_thread();
  touch(data + kFaultAround, 1);
  return faults_of_this_thread() == before;
}

// Fills the page tables of what may be small pages, by touching them. Huge ones are filled in one
// by one in the kernel, at two thirds of the cost of that and without a cache miss for each 64 KiB.
void fault_in(std::byte* data, std::size_t bytes, AddressRange::Pages pages) {
  const bool huge =
      bytes >= kHugePage && pages == AddressRange::Pages::kUnknown && maps_huge_pages(data);
  if (!huge || ::madvise(data, bytes, MADV_POPULATE_READ) != 0) touch(data, bytes);
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
  AddressRange range;
  PLEXRL_ASSIGN(range.data_, aligned_nothing(rounded, rounded < kHugePage ? page : kHugePage));
  range.bytes_ = rounded;
  return range;
}

Status AddressRange::map_with(int flags, std::size_t at, int fd, off_t offset, std::size_t bytes,
                              Access access) {
  if (at > bytes_ || bytes > bytes_ - at)
    return error(Code::INVALID_ARGUMENT, "%zu bytes at %zu do not fit in %zu reserved bytes", bytes,
                 at, bytes_);
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  const void* const got =
      ::mmap(data_ + at, bytes, protection, MAP_SHARED | MAP_FIXED | flags, fd, offset);
  if (got != MAP_FAILED) return {};
  return errno_error(Code::NO_CAPACITY, errno, "map %zu bytes of the pool", bytes);
}

Status AddressRange::map_lazily(std::size_t at, int fd, off_t offset, std::size_t bytes,
                                Access access) {
  return map_with(0, at, fd, offset, bytes, access);
}

Status AddressRange::map(std::size_t at, int fd, off_t offset, std::size_t bytes, Access access,
                         Pages pages) {
  // By the call that maps them: 7.4 us for one after work that has emptied the caches, 7.7 with
  // another call, 8.4 when it is touched (Linux 6.18, 2026-11). What that leaves out faults later.
  if (pages == Pages::kHuge) return map_with(MAP_POPULATE, at, fd, offset, bytes, access);
  PLEXRL_TRY(map_lazily(at, fd, offset, bytes, access));
  fault_in(data_ + at, bytes, pages);
  return {};
}

void AddressRange::populate() const noexcept {
  static_cast<void>(::madvise(data_, bytes_, MADV_POPULATE_READ));
}

AddressRange::Pages AddressRange::pages_of(int fd, std::size_t bytes) {
  if (bytes < kHugePage) return Pages::kSmall;
  auto range = reserve(kHugePage);
  if (!range || !range->map_lazily(0, fd, 0, kHugePage, Access::kRead).ok()) return Pages::kUnknown;
  return maps_huge_pages(range->data()) ? Pages::kHuge : Pages::kSmall;
}

Status AddressRange::clear() {
  if (bytes_ != 0 && map_nothing(data_, bytes_, MAP_FIXED) == MAP_FAILED)
    return errno_error(Code::IO, errno, "unmap %zu bytes of the pool", bytes_);
  return {};
}

}  // namespace plexrl::device
