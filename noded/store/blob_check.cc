// SPDX-License-Identifier: Apache-2.0
#include "store/blob_check.h"

#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/crc32c.h"
#include "store/blob_format.h"

namespace plexrl::store {
namespace {

// Fewer bytes than asked for: the file ends there, or the disk refuses them.
std::string read_at(int fd, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(fd, text.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

std::optional<BlobHead> head_of(int fd, std::uint64_t file_bytes) {
  const std::uint64_t at = footer_place(file_bytes);
  if (at == 0) return std::nullopt;
  const auto head = decode_head(read_at(fd, at, kBlobAlignment));
  if (!head || head->bytes == 0 || head->bytes > kMaxBlobBytes) return std::nullopt;
  return head;
}

}  // namespace

BlobId whole_blob_in(int fd, std::uint64_t file_bytes) {
  const auto head = head_of(fd, file_bytes);
  if (!head) return {};
  const BlobShape shape(head->bytes);
  if (shape.file_bytes() != file_bytes) return {};
  const auto sums =
      decode_footer(read_at(fd, shape.data_bytes, shape.footer_bytes), head->blob, shape);
  if (!sums) return {};
  for (std::uint64_t chunk = 0; chunk < shape.chunks; ++chunk) {
    const std::size_t bytes = shape.padded_bytes(chunk);
    const std::string text = read_at(fd, chunk * kBlobChunkBytes, bytes);
    if (text.size() == bytes &&
        crc32c(reinterpret_cast<const std::byte*>(text.data()), bytes) != (*sums)[chunk])
      return {};
  }
  return head->blob;
}

}  // namespace plexrl::store
