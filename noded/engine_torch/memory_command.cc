// SPDX-License-Identifier: Apache-2.0
#include "engine_torch/memory_command.h"

#include "device/segment_copy.h"
#include "wire/failure.h"

namespace plexrl::worker {

wire::EngineBodyUnion failure_body(const Status& status) {
  wire::EngineBodyUnion body;
  body.Set(wire::to_failure(status));
  return body;
}

Status copy_to_host(ModelTable& table, const HeldSegment& segment, const wire::SegmentPlaceT& place,
                    CopyTotals& totals) {
  const TimePoint start = system_clock().now();
  PLEXRL_TRY(device::copy_to_host(table.device(), table.host(), *segment.place, place.host,
                                  table.mapped()));
  totals.bytes_out += segment.place->bytes();
  totals.copy_ns += static_cast<std::uint64_t>((system_clock().now() - start).ns);
  return {};
}

Status copy_from_host(ModelTable& table, const HeldSegment& segment,
                      const wire::SegmentPlaceT& place, CopyTotals& totals) {
  const TimePoint start = system_clock().now();
  PLEXRL_TRY(device::copy_from_host(table.device(), table.host(), *segment.place, place.host,
                                    table.mapped()));
  totals.bytes_in += segment.place->bytes();
  totals.copy_ns += static_cast<std::uint64_t>((system_clock().now() - start).ns);
  return {};
}

Status zero_tail(ModelTable& table, const HeldSegment& segment) {
  return table.device().zero_tail(*segment.place);
}

Status map_segment(ModelTable& table, HeldSegment& segment,
                   const std::vector<std::uint32_t>& chunks) {
  PLEXRL_TRY(table.device().map(*segment.place, chunks));
  segment.device = chunks;
  return {};
}

Status map_segment_to_copy(ModelTable& table, HeldSegment& segment,
                           const std::vector<std::uint32_t>& chunks) {
  PLEXRL_TRY(table.device().map_to_copy(*segment.place, chunks));
  segment.device = chunks;
  return {};
}

Status unmap_segment(ModelTable& table, HeldSegment& segment) {
  if (segment.device.empty()) return {};
  PLEXRL_TRY(table.device().unmap(*segment.place));
  segment.device.clear();
  return {};
}

Status unmap_model(ModelTable& table, HeldModel& model) {
  Status first;
  const auto unmap = [&](HeldSegment& segment) {
    if (Status status = unmap_segment(table, segment); !status.ok() && first.ok())
      first = std::move(status);
  };
  for (auto& [kind, segment] : model.segments) unmap(segment);
  if (model.kv) unmap(*model.kv);
  return first;
}

}  // namespace plexrl::worker
