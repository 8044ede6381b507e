// SPDX-License-Identifier: Apache-2.0
#include "store/blob_format.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/crc32c.h"
#include "core/byte_codec.h"

namespace plexrl::store {
namespace {

constexpr std::uint32_t kMagic = 0x42585850;  // "PXXB" in the file
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeadBytes = 4 * sizeof(std::uint32_t) + 2 * sizeof(std::uint64_t);
constexpr std::uint64_t kSumBytes = sizeof(std::uint32_t);
constexpr std::size_t kDigits = 16;
constexpr std::string_view kPrefix = "blob-";
constexpr std::string_view kSparePrefix = "spare-";
constexpr std::string_view kSuffix = ".tmp";

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

std::uint32_t sum_of(std::string_view bytes) {
  return crc32c(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
}

void put_u64(core::ByteWriter& out, std::uint64_t value) {
  out.u32(static_cast<std::uint32_t>(value));
  out.u32(static_cast<std::uint32_t>(value >> 32));
}

std::uint64_t get_u64(core::ByteReader& in) {
  const std::uint64_t low = in.u32();
  return low | std::uint64_t{in.u32()} << 32;
}

std::string numbered(std::string_view prefix, std::uint64_t number) {
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, number);
  return std::string(prefix) + digits;
}

std::optional<std::uint64_t> number_in(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix) || name.size() != prefix.size() + kDigits) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : name.substr(prefix.size())) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) return std::nullopt;
    value = value << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace

BlobShape::BlobShape(std::uint64_t blob_bytes)
    : bytes(blob_bytes),
      chunks((blob_bytes + kBlobChunkBytes - 1) / kBlobChunkBytes),
      data_bytes(padded(blob_bytes)),
      footer_bytes(padded(kHeadBytes + chunks * kSumBytes + kSumBytes)) {}

std::size_t BlobShape::chunk_bytes(std::uint64_t chunk) const {
  return std::min<std::uint64_t>(kBlobChunkBytes, bytes - chunk * kBlobChunkBytes);
}

std::size_t BlobShape::padded_bytes(std::uint64_t chunk) const {
  return padded(chunk_bytes(chunk));
}

// The footer's size depends on the number of chunks, of which only one agrees with the file's.
std::uint64_t footer_place(std::uint64_t file_bytes) {
  std::uint64_t chunks = (file_bytes + kBlobChunkBytes - 1) / kBlobChunkBytes;
  for (; chunks > 0; --chunks) {
    const BlobShape most(chunks * kBlobChunkBytes);
    if (most.file_bytes() < file_bytes) break;
    if (most.footer_bytes >= file_bytes) continue;
    const std::uint64_t place = file_bytes - most.footer_bytes;
    if (place > (chunks - 1) * kBlobChunkBytes && place % kBlobAlignment == 0) return place;
  }
  return 0;
}

std::string encode_footer(BlobId blob, const BlobShape& shape,
                          const std::vector<std::uint32_t>& checksums) {
  core::ByteWriter out;
  out.u32(kMagic);
  out.u32(kVersion);
  put_u64(out, blob.value);
  put_u64(out, shape.bytes);
  out.u32(kBlobChunkBytes);
  out.u32(static_cast<std::uint32_t>(shape.chunks));
  for (const std::uint32_t sum : checksums) out.u32(sum);
  out.u32(sum_of(out.bytes()));
  std::string footer = out.take();
  footer.resize(shape.footer_bytes, '\0');
  return footer;
}

Result<std::vector<std::uint32_t>> decode_footer(std::string_view footer, BlobId blob,
                                                 const BlobShape& shape) {
  const auto damaged = [](const char* why) { return error(Code::CORRUPT, "footer: %s", why); };
  if (footer.size() != shape.footer_bytes) return damaged("another size");
  const std::string_view body = footer.substr(0, kHeadBytes + shape.chunks * kSumBytes);
  if (core::ByteReader(footer.substr(body.size())).u32() != sum_of(body))
    return damaged("checksum");
  core::ByteReader in(body);
  if (in.u32() != kMagic) return damaged("not of a blob");
  if (in.u32() != kVersion) return damaged("not of this version");
  if (get_u64(in) != blob.value) return damaged("of another blob");
  if (get_u64(in) != shape.bytes || in.u32() != kBlobChunkBytes || in.u32() != shape.chunks)
    return damaged("another size");
  std::vector<std::uint32_t> sums(shape.chunks);
  for (std::uint32_t& sum : sums) sum = in.u32();
  if (!in.at_end()) return damaged("contradicts itself");
  return sums;
}

std::optional<BlobHead> decode_head(std::string_view footer) {
  core::ByteReader in(footer.substr(0, kHeadBytes));
  if (in.u32() != kMagic || in.u32() != kVersion) return std::nullopt;
  const BlobId blob{get_u64(in)};
  const std::uint64_t bytes = get_u64(in);
  if (!in.ok() || !blob) return std::nullopt;
  return BlobHead{blob, bytes};
}

std::string spare_file_name(std::uint64_t number) { return numbered(kSparePrefix, number); }

bool is_spare_file_name(std::string_view name) { return number_in(kSparePrefix, name).has_value(); }

std::string blob_file_name(BlobId blob) { return numbered(kPrefix, blob.value); }

std::string temporary_file_name(BlobId blob) { return blob_file_name(blob) + std::string(kSuffix); }

BlobId blob_of_file_name(std::string_view name, bool* temporary) {
  *temporary = name.ends_with(kSuffix);
  if (*temporary) name.remove_suffix(kSuffix.size());
  return BlobId{number_in(kPrefix, name).value_or(0)};
}

}  // namespace plexrl::store
