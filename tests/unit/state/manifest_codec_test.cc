// SPDX-License-Identifier: Apache-2.0
#include "state/manifest_codec.h"

#include <gtest/gtest.h>

#include <random>

#include "core/byte_codec.h"

namespace plexrl::state {
namespace {

constexpr std::uint32_t kChunks = 100;

Manifest example() {
  return {{7},
          12,
          {.step = 3, .version = 9, .applied_seq = 41, .gradients_pending = false},
          {{SegmentKind::kWeights, 5000, {4, 5, 6, 1, 99}, {}},
           {SegmentKind::kAdamM, 10, {0}, {}},
           {SegmentKind::kAdamV, 77, {}, BlobId{300}}}};
}

TEST(ManifestCodec, GivesBackWhatWasEncoded) {
  const auto decoded = decode_manifest(encode_manifest(example()), kChunks);
  ASSERT_TRUE(decoded.has_value()) << decoded.error().to_string();
  EXPECT_EQ(decoded->model, example().model);
  EXPECT_EQ(decoded->epoch, 12u);
  EXPECT_EQ(decoded->position, example().position);
  ASSERT_EQ(decoded->entries.size(), 3u);
  EXPECT_EQ(decoded->entries[0].host, (Chunks{4, 5, 6, 1, 99}));
  EXPECT_EQ(decoded->entries[1].kind, SegmentKind::kAdamM);
  EXPECT_EQ(decoded->entries[1].bytes, 10u);
  EXPECT_EQ(decoded->entries[1].blob, BlobId{});
  EXPECT_EQ(decoded->entries[2].blob, BlobId{300});
  EXPECT_TRUE(decoded->entries[2].host.empty());
}

TEST(ManifestCodec, ABlobIsNamedAloneAsItsCopyInHostMemoryMayGo) {
  Manifest manifest = example();
  manifest.entries[0].blob = BlobId{5};
  const auto decoded = decode_manifest(encode_manifest(manifest), kChunks);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->entries[0].blob, BlobId{5});
  EXPECT_TRUE(decoded->entries[0].host.empty());
}

// As plexrl 0.1 wrote it: model 7, epoch 12, one segment of chunks 4 and 5.
TEST(ManifestCodec, RowsWithoutBlobsAreRead) {
  core::ByteWriter row;
  row.u8(1);
  for (const std::uint64_t value : {7, 12, 3, 9, 41}) row.varint(value);
  row.flag(false);
  row.varint(1);
  row.u8(static_cast<std::uint8_t>(SegmentKind::kWeights));
  for (const std::uint64_t value : {5000, 1, 4, 2}) row.varint(value);
  row.u32(core::crc32(row.bytes()));
  const auto decoded = decode_manifest(row.bytes(), kChunks);
  ASSERT_TRUE(decoded.has_value()) << decoded.error().to_string();
  ASSERT_EQ(decoded->entries.size(), 1u);
  EXPECT_EQ(decoded->entries[0].host, (Chunks{4, 5}));
  EXPECT_FALSE(decoded->entries[0].blob);
}

TEST(ManifestCodec, RunsKeepALargeManifestSmall) {
  Manifest manifest = example();
  manifest.entries[0].host.clear();
  for (std::uint32_t chunk = 0; chunk < 100000; ++chunk) manifest.entries[0].host.push_back(chunk);
  EXPECT_LT(encode_manifest(manifest).size(), 64u);
}

TEST(ManifestCodec, DamageIsFound) {
  const std::string good = encode_manifest(example());
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_EQ(decode_manifest(bad, kChunks).error().code(), Code::CORRUPT) << at;
    EXPECT_EQ(decode_manifest(good.substr(0, at), kChunks).error().code(), Code::CORRUPT) << at;
  }
}

TEST(ManifestCodec, ChunksBeyondThePoolAreRefused) {
  EXPECT_EQ(decode_manifest(encode_manifest(example()), 99).error().code(), Code::CORRUPT);
}

// Random bytes behind a right checksum: refused or small, never a crash or a huge allocation.
TEST(ManifestCodec, HostileBytesDoNoHarm) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string body(random() % 40, '\0');
    for (char& byte : body) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 3);
    if (!body.empty()) body[0] = 1;
    core::ByteWriter crc;
    crc.u32(core::crc32(body));
    const auto decoded = decode_manifest(body + crc.bytes(), kChunks);
    if (!decoded) continue;
    for (const auto& entry : decoded->entries) EXPECT_LE(entry.host.size(), kChunks);
  }
}

}  // namespace
}  // namespace plexrl::state
