// SPDX-License-Identifier: Apache-2.0
#include "store/blob_transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "store/crc32c.h"

namespace plexrl::store {
namespace {

using Kind = IoRequest::Kind;

struct Freed {
  void operator()(std::byte* at) const noexcept { std::free(at); }
};
using AlignedBytes = std::unique_ptr<std::byte, Freed>;

AlignedBytes aligned_bytes(std::size_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(std::aligned_alloc(kBlobAlignment, bytes)));
}

Status io_error(int number, const char* what) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  return errno_error(full ? Code::NO_CAPACITY : Code::IO, number, "%s", what);
}

std::string chunk_text(const char* what, std::uint64_t chunk) {
  return std::string(what) + " chunk " + std::to_string(chunk);
}

// Fails early on a full disk, and the file lies in few pieces.
Status reserve(int fd, std::uint64_t bytes) {
  if (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 || errno == EOPNOTSUPP) return {};
  return io_error(errno, "reserve room");
}

}  // namespace

BlobTransfer::BlobTransfer(IoQueue& queue, int directory, bool direct, const BlobRequest& request,
                           TransferControl& control)
    : queue_(queue),
      directory_(directory),
      direct_(direct),
      request_(request),
      control_(control),
      shape_(request.bytes),
      sums_(shape_.chunks),
      slots_(kBlobQueueDepth) {}

// ---- write ----

Status BlobTransfer::write() {
  const std::string name = blob_file_name(request_.blob);
  const std::string temporary = temporary_file_name(request_.blob);
  if (::faccessat(directory_, name.c_str(), F_OK, 0) == 0)
    return error(Code::EXISTS, "there is one already");
  const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd file(::openat(directory_, temporary.c_str(), flags | (direct_ ? O_DIRECT : 0), 0600));
  if (!file) return io_error(errno, "create");
  Status status = fill(file.get());
  if (status.ok() && ::renameat(directory_, temporary.c_str(), directory_, name.c_str()) != 0)
    status = io_error(errno, "rename");
  if (!status.ok()) {
    ::unlinkat(directory_, temporary.c_str(), 0);
    return status;
  }
  if (::fsync(directory_) == 0) return {};
  status = io_error(errno, "sync the directory");
  ::unlinkat(directory_, name.c_str(), 0);
  return status;
}

Status BlobTransfer::fill(int fd) {
  PLEXRL_TRY(reserve(fd, shape_.file_bytes()));
  PLEXRL_TRY(all_chunks(Kind::kWrite, fd));
  const AlignedBytes bytes = aligned_bytes(shape_.footer_bytes);
  if (bytes == nullptr) return error(Code::NO_CAPACITY, "no memory for the footer");
  const std::string text = encode_footer(request_.blob, shape_, sums_);
  std::memcpy(bytes.get(), text.data(), text.size());
  PLEXRL_TRY(footer(Kind::kWrite, fd, bytes.get()));
  if (::fsync(fd) != 0) return io_error(errno, "sync");
  return {};
}

// ---- read ----

Status BlobTransfer::read() {
  UniqueFd file;
  PLEXRL_TRY(open_to_read(&file));
  const AlignedBytes bytes = aligned_bytes(shape_.footer_bytes);
  if (bytes == nullptr) return error(Code::NO_CAPACITY, "no memory for the footer");
  PLEXRL_TRY(footer(Kind::kRead, file.get(), bytes.get()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.get()), shape_.footer_bytes);
  PLEXRL_ASSIGN(sums_, decode_footer(text, request_.blob, shape_));
  return all_chunks(Kind::kRead, file.get());
}

Status BlobTransfer::open_to_read(UniqueFd* file) const {
  const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (direct_ ? O_DIRECT : 0);
  file->reset(::openat(directory_, blob_file_name(request_.blob).c_str(), flags));
  if (!*file) return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "open");
  struct stat info {};
  if (::fstat(file->get(), &info) != 0) return io_error(errno, "stat");
  if (S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == shape_.file_bytes())
    return {};
  return error(Code::CORRUPT, "the file has %lld bytes, not the %" PRIu64 " of a blob of %" PRIu64,
               static_cast<long long>(info.st_size), shape_.file_bytes(), shape_.bytes);
}

// ---- chunks ----

// After the first error nothing new is started; what is under way still uses its memory.
Status BlobTransfer::all_chunks(Kind kind, int fd) {
  Status status;
  std::vector<std::size_t> idle(slots_.size());
  for (std::size_t i = 0; i < idle.size(); ++i) idle[i] = idle.size() - 1 - i;
  for (std::uint64_t next = 0;;) {
    while (status.ok() && next < shape_.chunks && !idle.empty()) {
      status = start(kind, fd, idle.back(), next);
      if (!status.ok()) break;
      idle.pop_back();
      ++next;
    }
    if (idle.size() == slots_.size()) return status;
    const IoCompletion done = queue_.wait();
    if (!advance(kind, fd, done, &status)) idle.push_back(done.tag);
  }
}

Status BlobTransfer::start(Kind kind, int fd, std::size_t index, std::uint64_t chunk) {
  if (control_.cancelled.load(std::memory_order_relaxed)) return error(Code::CANCELLED, "given up");
  Slot& slot = slots_[index];
  const bool reads_memory = kind == Kind::kWrite;
  const auto access = reads_memory ? BlobMemory::Access::kRead : BlobMemory::Access::kWrite;
  const std::size_t bytes = shape_.chunk_bytes(chunk);
  auto at = request_.memory->map(chunk * kBlobChunkBytes, bytes, access);
  if (!at) return at.error().within(chunk_text("memory of", chunk));
  slot = {*at, chunk, 0, shape_.padded_bytes(chunk)};
  Status status = submit(kind, fd, index);
  if (!status.ok()) request_.memory->unmap(slot.at, bytes);
  // While the disk works.
  if (status.ok() && reads_memory) sums_[chunk] = crc32c(slot.at, slot.bytes);
  return status;
}

Status BlobTransfer::submit(Kind kind, int fd, std::size_t index) {
  const Slot& slot = slots_[index];
  return queue_.submit({kind, fd, slot.at + slot.moved, slot.bytes - slot.moved,
                        slot.chunk * kBlobChunkBytes + slot.moved, index});
}

// True when the slot's chunk is still under way.
bool BlobTransfer::advance(Kind kind, int fd, const IoCompletion& done, Status* status) {
  Slot& slot = slots_[done.tag];
  const char* const what = kind == Kind::kRead ? "read" : "write";
  Status failed;
  if (done.result < 0) {
    failed = io_error(static_cast<int>(-done.result), chunk_text(what, slot.chunk).c_str());
  } else if (done.result == 0) {
    failed = kind == Kind::kRead
                 ? error(Code::CORRUPT, "chunk %" PRIu64 ": the file ends in it", slot.chunk)
                 : io_error(ENOSPC, chunk_text(what, slot.chunk).c_str());
  } else {
    slot.moved += static_cast<std::size_t>(done.result);
    // The kernel may move less than was asked for. What O_DIRECT cannot continue is refused by it.
    if (slot.moved < slot.bytes && status->ok()) failed = submit(kind, fd, done.tag);
    if (slot.moved < slot.bytes && status->ok() && failed.ok()) return true;
  }
  if (failed.ok() && status->ok()) failed = end(kind, slot);
  request_.memory->unmap(slot.at, shape_.chunk_bytes(slot.chunk));
  if (status->ok()) *status = std::move(failed);
  return false;
}

Status BlobTransfer::end(Kind kind, const Slot& slot) {
  if (kind == Kind::kRead && crc32c(slot.at, slot.bytes) != sums_[slot.chunk])
    return error(Code::CORRUPT, "chunk %" PRIu64 ": checksum", slot.chunk);
  control_.moved.fetch_add(shape_.chunk_bytes(slot.chunk), std::memory_order_relaxed);
  return {};
}

Status BlobTransfer::footer(Kind kind, int fd, std::byte* data) {
  for (std::uint64_t moved = 0; moved < shape_.footer_bytes;) {
    PLEXRL_TRY(queue_.submit(
        {kind, fd, data + moved, shape_.footer_bytes - moved, shape_.data_bytes + moved, 0}));
    const IoCompletion done = queue_.wait();
    if (done.result < 0) return io_error(static_cast<int>(-done.result), "footer");
    if (done.result == 0) return error(Code::CORRUPT, "footer: the file ends in it");
    moved += static_cast<std::uint64_t>(done.result);
  }
  return {};
}

}  // namespace plexrl::store
