// SPDX-License-Identifier: Apache-2.0
// PlacementNodes: which devices of a pool's nodes are free. A set of devices takes whole nodes, or
// a part of one node when it is smaller than a node; then the node with the least room that
// suffices.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "core/placement.h"

namespace plexrl::core {

class PlacementNodes {
 public:
  struct Share {
    std::uint32_t node = 0;
    std::uint32_t gpus = 0;
  };
  using Shares = std::vector<Share>;

  explicit PlacementNodes(const PlacementPool& pool);

  [[nodiscard]] std::optional<Shares> take(std::uint32_t gpus);  // > 0
  void give_back(const Shares& shares);
  [[nodiscard]] std::uint32_t free_gpus() const { return free_gpus_; }
  // What a set of so many devices takes, with the rest of its last node that nobody else gets.
  [[nodiscard]] std::uint32_t footprint(std::uint32_t gpus) const;
  // Host memory that goes with the set.
  [[nodiscard]] std::uint64_t host_bytes(std::uint32_t gpus) const;

 private:
  void set_free(std::uint32_t node, std::uint32_t gpus);

  PlacementPool pool_;
  std::vector<std::uint32_t> free_of_node_;
  std::vector<std::set<std::uint32_t>> nodes_by_free_;
  std::uint32_t free_gpus_ = 0;
};

}  // namespace plexrl::core
