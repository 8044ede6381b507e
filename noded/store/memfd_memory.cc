// SPDX-License-Identifier: Apache-2.0
#include "store/memfd_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace plexrl::store {
namespace {

// A mapping that holds whole huge pages costs one fault for each, not one for every few small pages
// (A/B on 1 MiB: 5 against 100 to 190 us with the unmapping, Linux 6.18, 2026-11).
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Of the memfd: hugetlb mappings begin and end at huge pages only. A plain one may name more than
// its pages need, which is harmless when chunks are as large.
std::size_t page_bytes_of(int pool, std::size_t chunk_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t plain = chunk_bytes % kHugePage == 0 ? kHugePage : page;
  struct stat info {};
  if (::fstat(pool, &info) != 0 || info.st_blksize <= 0) return plain;
  const auto block = static_cast<std::size_t>(info.st_blksize);
  return block > plain && chunk_bytes % block == 0 ? block : plain;
}

void* map_nothing(std::size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

// Address space at a multiple of `alignment`. Newer kernels give it (Linux 6.7); else more is
// reserved and cut.
Result<std::byte*> reserve(std::size_t bytes, std::size_t alignment) {
  void* got = map_nothing(bytes);
  if (got != MAP_FAILED && reinterpret_cast<std::uintptr_t>(got) % alignment == 0)
    return static_cast<std::byte*>(got);
  if (got != MAP_FAILED) ::munmap(got, bytes);
  got = map_nothing(bytes + alignment);
  if (got == MAP_FAILED)
    return errno_error(Code::NO_CAPACITY, errno, "reserve %zu bytes of address space", bytes);
  auto* const first = static_cast<std::byte*>(got);
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(first) % alignment;
  if (head > 0) ::munmap(first, head);
  if (alignment > head) ::munmap(first + head + bytes, alignment - head);
  return first + head;
}

}  // namespace

MemfdMemory::MemfdMemory(int pool, std::size_t chunk_bytes, std::vector<std::uint32_t> chunks,
                         ChunkHooks hooks, std::shared_ptr<std::byte> mapped)
    : pool_(pool),
      chunk_bytes_(chunk_bytes),
      page_bytes_(page_bytes_of(pool, chunk_bytes)),
      chunks_(std::move(chunks)),
      hooks_(std::move(hooks)),
      mapped_(std::move(mapped)) {}

std::size_t MemfdMemory::rounded(std::size_t bytes) const {
  return (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
}

// Whether it lies in one piece in the pool.
bool MemfdMemory::together(std::uint64_t offset, std::size_t bytes) const {
  const std::size_t first = offset / chunk_bytes_;
  const std::size_t last = (offset + bytes - 1) / chunk_bytes_;
  PLEXRL_CHECK(bytes > 0 && last < chunks_.size(), "a blob's memory holds the blob");
  for (std::size_t chunk = first; chunk < last; ++chunk)
    if (chunks_[chunk + 1] != chunks_[chunk] + 1) return false;
  return true;
}

// Where a huge page is larger than what is asked for, the mapping begins before it. The address
// that is handed out then lies inside the page, which unmap undoes: addresses of such mappings are
// made multiples of page_bytes_.
Result<std::byte*> MemfdMemory::map(std::uint64_t offset, std::size_t bytes, Access access) {
  if (access == Access::kWrite && hooks_.before_write) tell(offset, bytes);
  if (mapped_ != nullptr && together(offset, bytes)) {
    const std::size_t chunk = chunks_[offset / chunk_bytes_];
    std::byte* const at = mapped_.get() + chunk * chunk_bytes_ + offset % chunk_bytes_;
    lent_.insert(at);
    return at;
  }
  const std::size_t before = offset % page_bytes_;
  const std::size_t length = rounded(before + bytes);
  PLEXRL_CHECK(offset - before + length <= chunks_.size() * chunk_bytes_,
               "a blob's memory holds the blob");
  PLEXRL_ASSIGN(std::byte* const at, reserve(length, page_bytes_));
  if (const Status status = map_pieces(at, offset - before, length, access); !status.ok()) {
    ::munmap(at, length);
    return status;
  }
  // Pages that the kernel's direct I/O is to write are faulted in at once; for reading, the
  // checksum or the I/O itself maps them in larger steps. An older kernel (before Linux 5.14)
  // leaves all to the I/O.
  if (access == Access::kWrite)
    static_cast<void>(::madvise(at + before, bytes, MADV_POPULATE_READ));
  return at + before;
}

// Padding is written too.
void MemfdMemory::tell(std::uint64_t offset, std::size_t bytes) const {
  const std::uint64_t end = (offset + bytes + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
  for (std::size_t chunk = offset / chunk_bytes_; chunk * chunk_bytes_ < end; ++chunk)
    hooks_.before_write(
        chunks_[chunk],
        std::min<std::uint64_t>(chunk_bytes_, end - std::uint64_t{chunk} * chunk_bytes_));
}

// Chunks that follow each other in the pool are one mapping.
Status MemfdMemory::map_pieces(std::byte* at, std::uint64_t offset, std::size_t bytes,
                               Access access) const {
  const int protection = access == Access::kWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  while (bytes > 0) {
    const std::size_t chunk = offset / chunk_bytes_;
    const std::size_t inside = offset % chunk_bytes_;
    std::size_t count = 1;
    while (count * chunk_bytes_ < inside + bytes &&
           chunks_[chunk + count] == chunks_[chunk] + count)
      ++count;
    const std::size_t piece = std::min(bytes, count * chunk_bytes_ - inside);
    const std::uint64_t from = std::uint64_t{chunks_[chunk]} * chunk_bytes_ + inside;
    if (::mmap(at, piece, protection, MAP_SHARED | MAP_FIXED, pool_, static_cast<off_t>(from)) ==
        MAP_FAILED)
      return errno_error(Code::NO_CAPACITY, errno, "map %zu bytes of the host pool", piece);
    at += piece;
    offset += piece;
    bytes -= piece;
  }
  return {};
}

void MemfdMemory::unmap(std::byte* at, std::size_t bytes) {
  if (lent_.erase(at) > 0) return;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(at) % page_bytes_;
  ::munmap(at - before, rounded(before + bytes));
}

Status MemfdMemory::filled(std::uint64_t bytes) {
  if (!hooks_.filled) return {};
  const std::size_t last = (bytes - 1) / chunk_bytes_;
  const std::size_t used = bytes - last * chunk_bytes_;
  PLEXRL_CHECK(last < chunks_.size(), "a blob's memory holds the blob");
  if (mapped_ != nullptr) {
    hooks_.filled(chunks_[last], mapped_.get() + chunks_[last] * chunk_bytes_, used);
    return {};
  }
  PLEXRL_ASSIGN(std::byte* const at, reserve(chunk_bytes_, page_bytes_));
  Status status = map_pieces(at, last * chunk_bytes_, chunk_bytes_, Access::kWrite);
  if (status.ok()) hooks_.filled(chunks_[last], at, used);
  ::munmap(at, chunk_bytes_);
  return status;
}

}  // namespace plexrl::store
