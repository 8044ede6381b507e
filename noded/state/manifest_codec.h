// SPDX-License-Identifier: Apache-2.0
// Manifests as stored: version, model, epoch, position, per segment kind, bytes and runs of chunks;
// then a CRC-32. doc/state.md has the layout.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "state/segment.h"

namespace plexrl::state {

// Where rows are kept; the key is the model.
inline constexpr std::string_view kManifestTable = "manifests";
inline constexpr std::uint64_t kManifestSubkey = 0;

[[nodiscard]] std::string encode_manifest(const Manifest& manifest);
// CORRUPT for anything that encode_manifest would not write, chunks from `host_chunks` on included.
[[nodiscard]] Result<Manifest> decode_manifest(std::string_view bytes, std::uint32_t host_chunks);

}  // namespace plexrl::state
