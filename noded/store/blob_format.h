// SPDX-License-Identifier: Apache-2.0
// The file of a blob: its bytes in chunks of kBlobChunkBytes, padded to kBlobAlignment, and behind
// them the footer, which says what they must be. doc/state.md has the table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/blob_store.h"

namespace plexrl::store {

struct BlobShape {
  explicit BlobShape(std::uint64_t blob_bytes);

  std::uint64_t bytes;         // of the blob
  std::uint64_t chunks;        // the last one may be shorter
  std::uint64_t data_bytes;    // padded: where the footer begins
  std::uint64_t footer_bytes;  // padded
  [[nodiscard]] std::uint64_t file_bytes() const { return data_bytes + footer_bytes; }
  [[nodiscard]] std::size_t chunk_bytes(std::uint64_t chunk) const;   // without padding
  [[nodiscard]] std::size_t padded_bytes(std::uint64_t chunk) const;  // what is read and written
};

// `checksums`: CRC-32C of each chunk as it lies in the file, padding included.
[[nodiscard]] std::string encode_footer(BlobId blob, const BlobShape& shape,
                                        const std::vector<std::uint32_t>& checksums);
// The checksums. CORRUPT when it is damaged, of another version, blob or size.
[[nodiscard]] Result<std::vector<std::uint32_t>> decode_footer(std::string_view footer, BlobId blob,
                                                               const BlobShape& shape);

// Where the footer begins in a file of so many bytes; 0: no blob's file has so many.
[[nodiscard]] std::uint64_t footer_place(std::uint64_t file_bytes);
// What a footer says of itself, before anything of it is checked; none when it is no footer.
struct BlobHead {
  BlobId blob;
  std::uint64_t bytes = 0;
};
[[nodiscard]] std::optional<BlobHead> decode_head(std::string_view footer);

[[nodiscard]] std::string spare_file_name(std::uint64_t number);  // "spare-" and 16 digits
[[nodiscard]] bool is_spare_file_name(std::string_view name);
[[nodiscard]] std::string blob_file_name(BlobId blob);       // "blob-" and 16 hexadecimal digits
[[nodiscard]] std::string temporary_file_name(BlobId blob);  // ".tmp" behind it
// The number of such a name; none for other names.
[[nodiscard]] BlobId blob_of_file_name(std::string_view name, bool* temporary);

}  // namespace plexrl::store
