// SPDX-License-Identifier: Apache-2.0
// ModelTable: the models that this engine holds and the two pools. Protocol thread only, except
// where HeldModel lends its parts.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "device/host_pool.h"
#include "device/mapped_pool.h"
#include "engine_torch/held_model.h"
#include "engine_torch/model_code.h"

namespace plexrl::worker {

using BackendFactory = std::function<Result<std::unique_ptr<device::DeviceBackend>>(
    UniqueFd pool, std::size_t chunk_bytes, std::size_t chunk_count)>;

class ModelTable {
 public:
  ModelTable(ModelCode& code, BackendFactory open_device)
      : code_(code), open_device_(std::move(open_device)) {}

  // The fds: host pool, before it the device pool of backends that have one (cpu). EXISTS when
  // pools are attached: a pool is the whole life of an engine.
  [[nodiscard]] Status attach(const wire::EngineAttachPoolsT& pools, std::vector<UniqueFd> fds);
  [[nodiscard]] bool attached() const noexcept { return host_.has_value(); }
  // Duplicates for plexrld: device pool if there is one, host pool. Empty when none are attached.
  [[nodiscard]] Result<std::vector<UniqueFd>> pool_fds() const;

  // The model of a resume: the known one when everything agrees, else a new one with reserved
  // address space. Checks the places' kinds and sizes against the description.
  [[nodiscard]] Result<HeldModel*> open(const wire::EngineResumeT& request);
  [[nodiscard]] HeldModel* find(std::uint64_t id) noexcept;
  [[nodiscard]] const std::map<std::uint64_t, std::unique_ptr<HeldModel>>& all() const noexcept {
    return models_;
  }
  void erase(std::uint64_t id) { models_.erase(id); }

  // Device chunks in number for the segment, host chunks likewise or none.
  [[nodiscard]] Status check_place(const wire::SegmentPlaceT& place, std::uint64_t bytes) const;
  [[nodiscard]] std::uint64_t resident_bytes() const noexcept;

  // Valid once attached.
  [[nodiscard]] device::DeviceBackend& device() noexcept { return *device_; }
  [[nodiscard]] const device::HostPool& host() const noexcept { return *host_; }
  // Of host(). Null where it would not pay, or there is no address space.
  [[nodiscard]] device::MappedPool* mapped() const noexcept { return mapped_.get(); }
  [[nodiscard]] std::size_t pinned_bytes() const noexcept {
    return mapped_ ? mapped_->pinned_bytes() : 0;
  }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept {
    return host_ ? host_->chunk_bytes() : 0;
  }
  [[nodiscard]] std::size_t device_chunks() const noexcept {
    return device_ ? device_->chunk_count() : 0;
  }
  [[nodiscard]] std::size_t host_chunks() const noexcept {
    return host_ ? host_->chunk_count() : 0;
  }
  [[nodiscard]] ModelCode& code() noexcept { return code_; }

 private:
  void begin_mapping();
  [[nodiscard]] Result<std::unique_ptr<HeldModel>> create(const wire::EngineResumeT& request);
  [[nodiscard]] Status reserve_segments(HeldModel& model);
  [[nodiscard]] Status bind_memory(HeldModel& model);
  [[nodiscard]] Status check_places(const HeldModel& model,
                                    const wire::EngineResumeT& request) const;

  ModelCode& code_;
  BackendFactory open_device_;
  UniqueFd device_fd_;
  std::unique_ptr<device::DeviceBackend> device_;  // outlives models_
  std::optional<device::HostPool> host_;
  std::unique_ptr<device::MappedPool> mapped_;  // of host_ with device_
  std::map<std::uint64_t, std::unique_ptr<HeldModel>> models_;
};

}  // namespace plexrl::worker
