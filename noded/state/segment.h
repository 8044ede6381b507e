// SPDX-License-Identifier: Apache-2.0
// Segments: the pieces of a model's state that move as a whole, and where they are.
#pragma once

#include <cstdint>
#include <vector>

#include "base/strong_id.h"

namespace plexrl::state {

// Numbers equal wire::SegmentKind.
enum class SegmentKind : std::uint8_t {
  kWeights,
  kAdamM,
  kAdamV,
  kGradients,
  kSamplerWeights,
  kKv,
  kBase
};

struct SegmentSpec {
  SegmentKind kind = SegmentKind::kWeights;
  std::uint64_t bytes = 0;
  bool committed = true;  // part of a commit; others are parked only while needed (gradients, kv)
};

using Chunks = std::vector<std::uint32_t>;

// One segment in a plan. Empty `device`: not mapped by this plan. Empty `host`: nothing is copied.
struct SegmentMove {
  SegmentKind kind = SegmentKind::kWeights;
  std::uint64_t bytes = 0;
  Chunks device;
  Chunks host;
};

// The training position that a state has; what the manifest holds atomically with the chunks.
struct Position {
  std::uint64_t step = 0;     // optimizer steps applied
  std::uint64_t version = 0;  // newest published version in the SamplerWeights segment; 0 = none
  std::uint64_t applied_seq = 0;  // highest training sequence number applied
  bool gradients_pending = false;
  friend bool operator==(const Position&, const Position&) = default;
};

// A committed state of a model in the host or disk tier. Replaced as a whole, never changed in
// place.
struct Manifest {
  ModelId model;
  std::uint64_t epoch = 0;  // 0: nothing committed yet, initialise from the base
  Position position;
  struct Entry {
    SegmentKind kind = SegmentKind::kWeights;
    std::uint64_t bytes = 0;
    // Where it is: in a blob, in host chunks, or both. With a blob the stored row names that alone,
    // and the host chunks are a copy that may go at any time.
    Chunks host;
    BlobId blob;
  };
  std::vector<Entry> entries;
};

}  // namespace plexrl::state
