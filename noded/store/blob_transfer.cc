// SPDX-License-Identifier: Apache-2.0
#include "store/blob_transfer.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/crc32c.h"

namespace plexrl::store {
namespace {

using Kind = IoRequest::Kind;

BlobTransfer::AlignedBytes aligned_bytes(std::size_t bytes) {
  return BlobTransfer::AlignedBytes(
      static_cast<std::byte*>(std::aligned_alloc(kBlobAlignment, bytes)));
}

// When all is started, a write has nothing left to do before the sync. A read has checksums to take
// while the rest comes in, which are a tenth of the time.
unsigned worth_waking(Kind kind, std::size_t under_way) {
  const std::size_t part = std::max<std::size_t>(2, under_way / 2);
  return static_cast<unsigned>(kind == Kind::kWrite ? under_way : std::min(under_way, part));
}

std::string chunk_text(const char* what, std::uint64_t offset) {
  return std::string(what) + " chunk " + std::to_string(offset / kBlobChunkBytes);
}

// Fails early on a full disk, and the file lies in few pieces.
Status reserve(int fd, std::uint64_t bytes) {
  if (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 || errno == EOPNOTSUPP) return {};
  return disk_error(errno, "reserve room");
}

// Only a name that the kernel has in memory: an error otherwise, and where there is no such call
// (before Linux 5.12).
int open_without_waiting(int directory, const char* name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.resolve = RESOLVE_CACHED;
  return static_cast<int>(::syscall(SYS_openat2, directory, name, &how, sizeof how));
}

}  // namespace

void BlobTransfer::Freed::operator()(std::byte* at) const noexcept { std::free(at); }

BlobTransfer::BlobTransfer(IoQueue& queue, int directory, bool direct, const BlobRequest& request,
                           TransferControl& control)
    : queue_(queue),
      directory_(directory),
      direct_(direct),
      request_(request),
      control_(control),
      shape_(request.bytes),
      footer_(aligned_bytes(shape_.footer_bytes)),
      slots_(kBlobQueueDepth) {
  cut_into(kBlobChunkBytes);
}

void BlobTransfer::cut_into(std::size_t piece_bytes) {
  piece_bytes_ = piece_bytes;
  pieces_ = (shape_.bytes + piece_bytes - 1) / piece_bytes;
  sums_.assign(pieces_, 0);
}

std::size_t BlobTransfer::bytes_of(std::uint64_t piece) const {
  return std::min<std::uint64_t>(piece_bytes_, shape_.bytes - piece * piece_bytes_);
}

std::size_t BlobTransfer::padded_of(std::uint64_t piece) const {
  return std::min<std::uint64_t>(piece_bytes_, shape_.data_bytes - piece * piece_bytes_);
}

std::uint32_t BlobTransfer::sum_of_chunk(std::uint64_t chunk) const {
  const std::uint64_t parts = kBlobChunkBytes / piece_bytes_;
  const std::uint64_t end = std::min((chunk + 1) * parts, pieces_);
  std::uint32_t sum = sums_[chunk * parts];
  for (std::uint64_t piece = chunk * parts + 1; piece < end; ++piece)
    sum = crc32c_join(sum, sums_[piece], padded_of(piece));
  return sum;
}

// ---- write ----

// The spare's name is durable, so its contents are when they are synced; which blob they are, the
// footer says. The blob's name follows unsynced: a crash finds one or the other, and either whole.
Status BlobTransfer::write(SpareFiles& spares) {
  const std::string name = blob_file_name(request_.blob);
  if (::faccessat(directory_, name.c_str(), F_OK, 0) == 0)
    return error(Code::EXISTS, "there is one already");
  PLEXRL_ASSIGN(const SpareFiles::File file, spares.take());
  Status status = fill(file.fd.get());
  if (status.ok() && ::renameat(directory_, file.name.c_str(), directory_, name.c_str()) != 0)
    status = disk_error(errno, "rename");
  if (!status.ok()) ::unlinkat(directory_, file.name.c_str(), 0);
  return status;
}

Status BlobTransfer::fill(int fd) {
  PLEXRL_TRY(reserve(fd, shape_.file_bytes()));
  PLEXRL_TRY(all_pieces(Kind::kWrite, fd));
  if (::fsync(fd) != 0) return disk_error(errno, "sync");
  return {};
}

// ---- read ----

Status BlobTransfer::read() {
  PLEXRL_TRY(open_to_read(Wait::kYes));
  if (shape_.chunks > 1) cut_into(kBlobReadBytes);
  PLEXRL_TRY(all_pieces(Kind::kRead, file_.get()));
  return check_read();
}

Status BlobTransfer::begin_read() {
  if (footer_ == nullptr) return error(Code::NO_CAPACITY, "no memory for the footer");
  PLEXRL_TRY(open_to_read(Wait::kNo));
  return start(Kind::kRead, file_.get(), 0, 0);
}

bool BlobTransfer::go_on(const IoCompletion& done) {
  return advance(Kind::kRead, file_.get(), done, &status_);
}

Status BlobTransfer::end_read() { return status_.ok() ? check_read() : status_; }

// What the chunks must be is known when all is there: the footer comes beside them, not before.
Status BlobTransfer::check_read() {
  const std::string_view text(reinterpret_cast<const char*>(footer_.get()), shape_.footer_bytes);
  PLEXRL_ASSIGN(const auto expected, decode_footer(text, request_.blob, shape_));
  for (std::uint64_t chunk = 0; chunk < shape_.chunks; ++chunk)
    if (sum_of_chunk(chunk) != expected[chunk])
      return error(Code::CORRUPT, "chunk %" PRIu64 ": checksum", chunk);
  return request_.memory->filled(request_.bytes);
}

Status BlobTransfer::open_to_read(Wait wait) {
  const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | (direct_ ? O_DIRECT : 0);
  const std::string name = blob_file_name(request_.blob);
  file_.reset(wait == Wait::kYes ? ::openat(directory_, name.c_str(), flags)
                                 : open_without_waiting(directory_, name.c_str(), flags));
  if (!file_ && wait == Wait::kNo) return errno_error(Code::UNAVAILABLE, errno, "open");
  if (!file_) return errno_error(errno == ENOENT ? Code::NOT_FOUND : Code::IO, errno, "open");
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) return disk_error(errno, "stat");
  if (S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == shape_.file_bytes())
    return {};
  return error(Code::CORRUPT, "the file has %lld bytes, not the %" PRIu64 " of a blob of %" PRIu64,
               static_cast<long long>(info.st_size), shape_.file_bytes(), shape_.bytes);
}

// ---- pieces: chunks or their parts, and the footer as the last one ----

// After the first error nothing new is started; what is under way still uses its memory.
Status BlobTransfer::all_pieces(Kind kind, int fd) {
  if (footer_ == nullptr) return error(Code::NO_CAPACITY, "no memory for the footer");
  Status status;
  std::vector<std::size_t> idle(slots_.size());
  for (std::size_t i = 0; i < idle.size(); ++i) idle[i] = idle.size() - 1 - i;
  const std::uint64_t pieces = pieces_ + (kind == Kind::kWrite ? 1 : 0);
  for (std::uint64_t next = 0;;) {
    while (status.ok() && next < pieces && !idle.empty()) {
      status = next < pieces_ ? start(kind, fd, idle.back(), next) : write_footer(fd, idle.back());
      if (!status.ok()) break;
      idle.pop_back();
      ++next;
    }
    sum_started();
    if (idle.size() == slots_.size()) return status;
    if (next == pieces) queue_.sleep_for(worth_waking(kind, slots_.size() - idle.size()));
    const IoCompletion done = queue_.wait();
    if (!advance(kind, fd, done, &status)) idle.push_back(done.tag);
  }
}

Status BlobTransfer::start(Kind kind, int fd, std::size_t index, std::uint64_t piece) {
  if (control_.cancelled.load(std::memory_order_relaxed)) return error(Code::CANCELLED, "given up");
  Slot& slot = slots_[index];
  const bool reads_memory = kind == Kind::kWrite;
  const auto access = reads_memory ? BlobMemory::Access::kRead : BlobMemory::Access::kWrite;
  const std::size_t bytes = bytes_of(piece);
  const std::uint64_t offset = piece * piece_bytes_;
  auto at = request_.memory->map(offset, bytes, access);
  if (!at) return at.error().within(chunk_text("memory of", offset));
  slot = {*at, piece, offset, 0, padded_of(piece), 0};
  if (!reads_memory && piece + 1 == pieces_) slot.footer_bytes = shape_.footer_bytes;
  Status status = submit(kind, fd, index);
  if (!status.ok()) request_.memory->unmap(slot.at, bytes);
  if (status.ok() && reads_memory) unsummed_.push_back(index);
  return status;
}

// What is written is summed while the disk works, and before its memory is unmapped.
void BlobTransfer::sum_started() {
  for (const std::size_t index : unsummed_) {
    const Slot& piece = slots_[index];
    sums_[piece.piece] = crc32c(piece.at, piece.bytes);
  }
  unsummed_.clear();
}

// All chunks were started: a piece of a write is one.
Status BlobTransfer::write_footer(int fd, std::size_t index) {
  sum_started();
  const std::string text = encode_footer(request_.blob, shape_, sums_);
  std::memcpy(footer_.get(), text.data(), text.size());
  slots_[index] = {footer_.get(), pieces_, shape_.data_bytes, 0, shape_.footer_bytes, 0};
  return submit(Kind::kWrite, fd, index);
}

Status BlobTransfer::submit(Kind kind, int fd, std::size_t index) {
  const Slot& slot = slots_[index];
  IoRequest request{kind, fd, nullptr, 0, slot.offset + slot.moved, index, nullptr, 0};
  if (slot.moved < slot.bytes) {
    request.data = slot.at + slot.moved;
    request.bytes = slot.bytes - slot.moved;
    request.more = footer_.get();
    request.more_bytes = slot.footer_bytes;
  } else {
    request.data = footer_.get() + (slot.moved - slot.bytes);
    request.bytes = slot.all() - slot.moved;
  }
  return queue_.submit(request);
}

// True when the slot's piece is still under way.
bool BlobTransfer::advance(Kind kind, int fd, const IoCompletion& done, Status* status) {
  Slot& slot = slots_[done.tag];
  const bool has_data = slot.piece < pieces_;
  const bool in_footer = !has_data || slot.moved >= slot.bytes;
  const std::string what =
      in_footer ? "footer" : chunk_text(kind == Kind::kRead ? "read" : "write", slot.offset);
  Status failed;
  if (done.result < 0) {
    failed = disk_error(static_cast<int>(-done.result), what.c_str());
  } else if (done.result == 0) {
    failed = kind == Kind::kRead ? error(Code::CORRUPT, "%s: the file ends in it", what.c_str())
                                 : disk_error(ENOSPC, what.c_str());
  } else {
    slot.moved += static_cast<std::size_t>(done.result);
    // The kernel may move less than was asked for. What O_DIRECT cannot continue is refused by it.
    if (slot.moved < slot.all() && status->ok()) failed = submit(kind, fd, done.tag);
    if (slot.moved < slot.all() && status->ok() && failed.ok()) return true;
  }
  if (has_data) {
    if (failed.ok() && status->ok()) end(kind, slot);
    request_.memory->unmap(slot.at, bytes_of(slot.piece));
  }
  if (status->ok()) *status = std::move(failed);
  return false;
}

void BlobTransfer::end(Kind kind, const Slot& piece) {
  if (kind == Kind::kRead) sums_[piece.piece] = crc32c(piece.at, piece.bytes);
  control_.moved.fetch_add(bytes_of(piece.piece), std::memory_order_relaxed);
}

}  // namespace plexrl::store
