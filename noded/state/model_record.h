// SPDX-License-Identifier: Apache-2.0
// ModelRecord: what the StateManager knows about one model.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/result.h"
#include "state/segment.h"

namespace plexrl::state {

enum class Tier : std::uint8_t { kParked, kResuming, kResident, kSuspending };
[[nodiscard]] const char* tier_name(Tier tier);
[[nodiscard]] const char* kind_name(SegmentKind kind);

struct ModelRecord {
  TenantId tenant;
  std::vector<SegmentSpec> segments;
  bool park_commits = false;
  std::uint64_t admitted_chunks = 0;  // of the tenant's reservation

  Tier tier = Tier::kParked;
  std::map<SegmentKind, Chunks> device;  // while not parked

  Manifest manifest;
  std::uint64_t last_epoch = 0;  // of plans; one epoch is never planned twice
  Position now;                  // of the state on the device, else of the manifest
  std::set<SegmentKind> dirty;   // committed segments that changed since they were last copied

  // A copy under way, of a commit or of a suspend.
  struct Copy {
    std::uint64_t epoch = 0;
    std::vector<Manifest::Entry> entries;
  };
  std::optional<Copy> copy;

  // The manifest of a finished copy on its way to the disk; `copy` stays until it is there.
  struct Flip {
    Manifest next;
    Chunks replaced;  // free when `next` is true
    std::vector<BlobId> replaced_blobs;
  };
  std::optional<Flip> flip;

  // A suspend that ended while the manifest of the commit before it was on its way: nothing had
  // changed since that copy, so it made none of its own. It is told what becomes of that manifest.
  struct Parking {
    Position position;
    std::function<void(const Status&)> flipped;
  };
  std::optional<Parking> parking;

  // Gradients are parked beside the manifest, not in it: a crash finds the manifest alone. In host
  // chunks or in a blob.
  Chunks gradients;
  BlobId gradients_blob;
  [[nodiscard]] bool gradients_parked() const { return !gradients.empty() || gradients_blob; }

  struct Kv {
    std::uint64_t bytes = 0;
    Chunks device;
    Chunks host;
    BlobId blob;                   // parked in the disk tier; then not in `host`
    bool leaving = false;          // freed while it moves
    std::uint64_t retired_as = 0;  // leaving, and the engine has not answered the drop
  };
  std::optional<Kv> kv;
  // Device chunks of KV that the engine was asked to drop, until it has answered.
  std::map<std::uint64_t, Chunks> retired;

  // The write of a manifest failed: the store may have it or not, so nobody gets its new chunks,
  // if any, until the store has said again what is true.
  bool in_doubt = false;
  Chunks doubtful;

  std::vector<BlobId> doubtful_blobs;  // likewise

  bool pinned = false;          // the engine still copies in from its host chunks
  std::uint64_t last_used = 0;  // counts resumes of all models
  bool unreadable = false;      // a prefetch failed: only who needs it tries again
  // Nothing of it moves, so its host chunks and its manifest stay as they are.
  [[nodiscard]] bool at_rest() const;

  [[nodiscard]] const SegmentSpec* find(SegmentKind kind) const;
  [[nodiscard]] const Manifest::Entry* committed(SegmentKind kind) const;
  // Committed segments that the next manifest must get new copies of. Empty: nothing changed.
  [[nodiscard]] std::vector<SegmentSpec> to_copy() const;
  // Sampler weights hold nothing before the first version is published: they are not copied, and a
  // manifest of such a position may do without them.
  [[nodiscard]] static bool holds_nothing(SegmentKind kind, const Position& position);
  void note(const Position& position);  // mark_dirty
};

}  // namespace plexrl::state
