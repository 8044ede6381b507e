// SPDX-License-Identifier: Apache-2.0
#include "state/manifest_codec.h"

#include "core/byte_codec.h"

namespace plexrl::state {
namespace {

constexpr std::uint8_t kWithoutBlobs = 1;  // rows of plexrl 0.1
constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kCrcBytes = 4;

// Chunks mostly follow each other, so runs (first, length) keep a manifest of a large model small.
void encode_chunks(core::ByteWriter& out, const Chunks& chunks) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> runs;
  for (const std::uint32_t chunk : chunks) {
    if (runs.empty() || runs.back().first + runs.back().second != chunk)
      runs.emplace_back(chunk, 0);
    ++runs.back().second;
  }
  out.varint(runs.size());
  for (const auto& [first, length] : runs) {
    out.varint(first);
    out.varint(length);
  }
}

Chunks decode_chunks(core::ByteReader& in, std::uint32_t host_chunks) {
  Chunks chunks;
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left) {
    const std::uint64_t first = in.varint();
    const std::uint64_t length = in.varint();
    if (first >= host_chunks || length == 0 || length > host_chunks - first ||
        chunks.size() + length > host_chunks) {
      in.fail();
      break;
    }
    for (std::uint64_t i = 0; i < length; ++i)
      chunks.push_back(static_cast<std::uint32_t>(first + i));
  }
  return chunks;
}

Manifest::Entry decode_entry(core::ByteReader& in, std::uint32_t host_chunks, bool blobs) {
  Manifest::Entry entry;
  const std::uint8_t kind = in.u8();
  if (kind > static_cast<std::uint8_t>(SegmentKind::kBase)) in.fail();
  entry.kind = static_cast<SegmentKind>(kind);
  entry.bytes = in.varint();
  if (blobs) entry.blob = BlobId{in.varint()};
  entry.host = decode_chunks(in, host_chunks);
  if (entry.blob && !entry.host.empty()) in.fail();
  return entry;
}

}  // namespace

std::string encode_manifest(const Manifest& manifest) {
  core::ByteWriter out;
  out.u8(kVersion);
  out.varint(manifest.model.value);
  out.varint(manifest.epoch);
  out.varint(manifest.position.step);
  out.varint(manifest.position.version);
  out.varint(manifest.position.applied_seq);
  out.flag(manifest.position.gradients_pending);
  out.varint(manifest.entries.size());
  for (const auto& entry : manifest.entries) {
    out.u8(static_cast<std::uint8_t>(entry.kind));
    out.varint(entry.bytes);
    out.varint(entry.blob.value);
    encode_chunks(out, entry.blob ? Chunks{} : entry.host);
  }
  out.u32(core::crc32(out.bytes()));
  return out.take();
}

Result<Manifest> decode_manifest(std::string_view bytes, std::uint32_t host_chunks) {
  const auto damaged = [](const char* what) {
    return error(Code::CORRUPT, "manifest: %s; the model's committed state is lost", what);
  };
  if (bytes.size() < kCrcBytes) return damaged("too short");
  const std::string_view body = bytes.substr(0, bytes.size() - kCrcBytes);
  if (core::ByteReader(bytes.substr(body.size())).u32() != core::crc32(body))
    return damaged("checksum");
  core::ByteReader in(body);
  const std::uint8_t version = in.u8();
  if (version != kVersion && version != kWithoutBlobs) return damaged("not of this version");
  Manifest manifest;
  manifest.model = ModelId{in.varint()};
  manifest.epoch = in.varint();
  manifest.position.step = in.varint();
  manifest.position.version = in.varint();
  manifest.position.applied_seq = in.varint();
  manifest.position.gradients_pending = in.flag();
  for (std::uint64_t left = in.count(); left > 0 && in.ok(); --left)
    manifest.entries.push_back(decode_entry(in, host_chunks, version == kVersion));
  if (!in.at_end() || !manifest.model || manifest.epoch == 0) return damaged("contradicts itself");
  return manifest;
}

}  // namespace plexrl::state
