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

// Of the memfd: hugetlb mappings begin and end at huge pages only. A plain one may name more than
// its pages need, which is harmless when chunks are as large.
std::size_t page_bytes_of(int pool, std::size_t chunk_bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  struct stat info {};
  if (::fstat(pool, &info) != 0 || info.st_blksize <= 0) return page;
  const auto block = static_cast<std::size_t>(info.st_blksize);
  return block > page && chunk_bytes % block == 0 ? block : page;
}

}  // namespace

MemfdMemory::MemfdMemory(int pool, std::size_t chunk_bytes, std::vector<std::uint32_t> chunks)
    : pool_(pool),
      chunk_bytes_(chunk_bytes),
      page_bytes_(page_bytes_of(pool, chunk_bytes)),
      chunks_(std::move(chunks)) {}

std::size_t MemfdMemory::rounded(std::size_t bytes) const {
  return (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
}

// Where a huge page is larger than what is asked for, the mapping begins before it. The address
// that is handed out then lies inside the page, which unmap undoes: addresses of such mappings are
// made multiples of page_bytes_.
Result<std::byte*> MemfdMemory::map(std::uint64_t offset, std::size_t bytes, Access access) {
  const std::size_t before = offset % page_bytes_;
  const std::size_t length = rounded(before + bytes);
  PLEXRL_CHECK(offset - before + length <= chunks_.size() * chunk_bytes_,
               "a blob's memory holds the blob");
  // Room for the alignment that huge pages need.
  const std::size_t room = length + page_bytes_;
  void* const got =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED)
    return errno_error(Code::NO_CAPACITY, errno, "reserve %zu bytes of address space", room);
  auto* const first = static_cast<std::byte*>(got);
  const std::size_t skew = reinterpret_cast<std::uintptr_t>(first) % page_bytes_;
  const std::size_t head = skew == 0 ? 0 : page_bytes_ - skew;
  std::byte* const at = first + head;
  if (head > 0) ::munmap(first, head);
  ::munmap(at + length, room - head - length);
  if (const Status status = map_pieces(at, offset - before, length, access); !status.ok()) {
    ::munmap(at, length);
    return status;
  }
  return at + before;
}

// Chunks that follow each other in the pool are one mapping.
Status MemfdMemory::map_pieces(std::byte* at, std::uint64_t offset, std::size_t bytes,
                               Access access) const {
  // Pages that the kernel's direct I/O is to write are faulted in for writing at once; for reading,
  // the checksum or the I/O itself maps them in larger steps.
  const bool write = access == Access::kWrite;
  const int protection = write ? PROT_READ | PROT_WRITE : PROT_READ;
  const int flags = MAP_SHARED | MAP_FIXED | (write ? MAP_POPULATE : 0);
  while (bytes > 0) {
    const std::size_t chunk = offset / chunk_bytes_;
    const std::size_t inside = offset % chunk_bytes_;
    std::size_t count = 1;
    while (count * chunk_bytes_ < inside + bytes &&
           chunks_[chunk + count] == chunks_[chunk] + count)
      ++count;
    const std::size_t piece = std::min(bytes, count * chunk_bytes_ - inside);
    const std::uint64_t from = std::uint64_t{chunks_[chunk]} * chunk_bytes_ + inside;
    if (::mmap(at, piece, protection, flags, pool_, static_cast<off_t>(from)) == MAP_FAILED)
      return errno_error(Code::NO_CAPACITY, errno, "map %zu bytes of the host pool", piece);
    at += piece;
    offset += piece;
    bytes -= piece;
  }
  return {};
}

void MemfdMemory::unmap(std::byte* at, std::size_t bytes) {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(at) % page_bytes_;
  ::munmap(at - before, rounded(before + bytes));
}

}  // namespace plexrl::store
