// SPDX-License-Identifier: Apache-2.0
#include "store/blob_format.h"

#include <gtest/gtest.h>

namespace plexrl::store {
namespace {

TEST(BlobFormat, ShapesAreMultiplesOfTheAlignment) {
  const BlobShape shape(kBlobChunkBytes * 2 + 5000);
  EXPECT_EQ(shape.chunks, 3u);
  EXPECT_EQ(shape.chunk_bytes(0), kBlobChunkBytes);
  EXPECT_EQ(shape.chunk_bytes(2), 5000u);
  EXPECT_EQ(shape.padded_bytes(2), 8192u);
  EXPECT_EQ(shape.data_bytes, kBlobChunkBytes * 2 + 8192);
  EXPECT_EQ(shape.footer_bytes, kBlobAlignment);
  EXPECT_EQ(BlobShape(kMaxBlobBytes).footer_bytes % kBlobAlignment, 0u);
}

TEST(BlobFormat, TheSizeOfAFileGivesThePlaceOfItsFooter) {
  // From 1,015 chunks on it takes a second page.
  for (const std::uint64_t chunks : {1U, 2U, 7U, 1013U, 1014U, 1015U, 1016U, 5000U, 100'000U}) {
    for (const std::uint64_t less : {std::uint64_t{0}, kBlobAlignment, kBlobChunkBytes - 1}) {
      const BlobShape shape(chunks * kBlobChunkBytes - less);
      EXPECT_EQ(footer_place(shape.file_bytes()), shape.data_bytes) << chunks << " " << less;
    }
  }
  for (const std::uint64_t bytes : {0U, 1U, 4096U, 4097U, 8191U})
    EXPECT_EQ(footer_place(bytes), 0u);
}

TEST(BlobFormat, AFooterComesBackAndNoChangedByteIsAccepted) {
  const BlobShape shape(kBlobChunkBytes * 2 + 1);
  const std::vector<std::uint32_t> sums = {1, 0xFFFFFFFF, 7};
  const std::string footer = encode_footer(BlobId{42}, shape, sums);
  ASSERT_EQ(footer.size(), shape.footer_bytes);
  EXPECT_EQ(decode_footer(footer, BlobId{42}, shape).value(), sums);
  for (std::size_t i = 0; i < 32 + 3 * 4 + 4; ++i) {
    std::string damaged = footer;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_EQ(decode_footer(damaged, BlobId{42}, shape).error().code(), Code::CORRUPT) << i;
  }
  EXPECT_EQ(decode_footer(footer, BlobId{43}, shape).error().code(), Code::CORRUPT);
  EXPECT_EQ(decode_footer(footer, BlobId{42}, BlobShape(kBlobChunkBytes * 2 + 2)).error().code(),
            Code::CORRUPT);
  EXPECT_EQ(decode_footer(footer.substr(1), BlobId{42}, shape).error().code(), Code::CORRUPT);
}

TEST(BlobFormat, NamesAreTheirNumbersAndOthersAreNotTouched) {
  bool temporary = true;
  EXPECT_EQ(blob_of_file_name(blob_file_name(BlobId{0xABC}), &temporary), BlobId{0xABC});
  EXPECT_FALSE(temporary);
  EXPECT_EQ(blob_of_file_name(temporary_file_name(BlobId{7}), &temporary), BlobId{7});
  EXPECT_TRUE(temporary);
  for (const char* name : {"blob-1", "blob-00000000000000AA", "blob-000000000000000g", "x", "",
                           "blob-0000000000000001.tmp.tmp", "blob-00000000000000010"})
    EXPECT_FALSE(blob_of_file_name(name, &temporary)) << name;
  EXPECT_TRUE(is_spare_file_name(spare_file_name(0xABC)));
  EXPECT_FALSE(blob_of_file_name(spare_file_name(7), &temporary)) << "no blob of any version";
  for (const char* name : {"spare-1", "blob-0000000000000001", "spare-000000000000000g", ""})
    EXPECT_FALSE(is_spare_file_name(name)) << name;
}

}  // namespace
}  // namespace plexrl::store
