// SPDX-License-Identifier: Apache-2.0
#include "state/model_record.h"

namespace plexrl::state {

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::kParked:
      return "host";
    case Tier::kResuming:
      return "resuming";
    case Tier::kResident:
      return "device";
    case Tier::kSuspending:
      return "suspending";
  }
  return "unknown";
}

const char* kind_name(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kWeights:
      return "weights";
    case SegmentKind::kAdamM:
      return "adam_m";
    case SegmentKind::kAdamV:
      return "adam_v";
    case SegmentKind::kGradients:
      return "gradients";
    case SegmentKind::kSamplerWeights:
      return "sampler_weights";
    case SegmentKind::kKv:
      return "kv";
    case SegmentKind::kBase:
      return "base";
  }
  return "unknown";
}

bool ModelRecord::at_rest() const {
  return (tier == Tier::kParked || tier == Tier::kResident) && !copy && !flip && !pinned;
}

const SegmentSpec* ModelRecord::find(SegmentKind kind) const {
  for (const SegmentSpec& spec : segments)
    if (spec.kind == kind) return &spec;
  return nullptr;
}

const Manifest::Entry* ModelRecord::committed(SegmentKind kind) const {
  for (const auto& entry : manifest.entries)
    if (entry.kind == kind) return &entry;
  return nullptr;
}

bool ModelRecord::holds_nothing(SegmentKind kind, const Position& position) {
  return kind == SegmentKind::kSamplerWeights && position.version == 0;
}

// The first manifest has no clean segments to share, so it gets all of them. Without a shadow the
// chunks of the first one are those of all later ones, so it gets those that hold nothing, too.
std::vector<SegmentSpec> ModelRecord::to_copy() const {
  std::vector<SegmentSpec> chosen;
  if (dirty.empty()) return chosen;
  for (const SegmentSpec& spec : segments)
    if (spec.committed && (park_commits || !holds_nothing(spec.kind, now)) &&
        (dirty.contains(spec.kind) || committed(spec.kind) == nullptr))
      chosen.push_back(spec);
  return chosen;
}

void ModelRecord::note(const Position& position) {
  const bool version_changed = position.version != now.version;
  const bool step_changed = position.step != now.step;
  const bool only_gradients = position.gradients_pending && !version_changed && !step_changed;
  const bool all = !version_changed && !step_changed && !only_gradients;
  for (const SegmentSpec& spec : segments) {
    const bool sampler = spec.kind == SegmentKind::kSamplerWeights;
    if (spec.committed && (all || (sampler ? version_changed : step_changed)))
      dirty.insert(spec.kind);
  }
  now = position;
}

}  // namespace plexrl::state
