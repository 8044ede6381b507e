// SPDX-License-Identifier: Apache-2.0
#include "core/placement_nodes.h"

namespace plexrl::core {

PlacementNodes::PlacementNodes(const PlacementPool& pool)
    : pool_(pool), free_of_node_(pool.nodes, 0), nodes_by_free_(pool.gpus_per_node + 1) {
  for (std::uint32_t node = 0; node < pool.nodes; ++node) {
    nodes_by_free_[0].insert(node);
    set_free(node, pool.gpus_per_node);
  }
}

void PlacementNodes::set_free(std::uint32_t node, std::uint32_t gpus) {
  nodes_by_free_[free_of_node_[node]].erase(node);
  nodes_by_free_[gpus].insert(node);
  free_gpus_ = free_gpus_ - free_of_node_[node] + gpus;
  free_of_node_[node] = gpus;
}

std::uint32_t PlacementNodes::footprint(std::uint32_t gpus) const {
  const std::uint32_t size = pool_.gpus_per_node;
  return gpus <= size ? gpus : (gpus + size - 1) / size * size;
}

std::uint64_t PlacementNodes::host_bytes(std::uint32_t gpus) const {
  return pool_.host_bytes_per_node / pool_.gpus_per_node * footprint(gpus);
}

std::optional<PlacementNodes::Shares> PlacementNodes::take(std::uint32_t gpus) {
  Shares shares;
  const std::uint32_t size = pool_.gpus_per_node;
  if (gpus < size) {
    for (std::uint32_t room = gpus; room <= size; ++room) {
      if (nodes_by_free_[room].empty()) continue;
      const std::uint32_t node = *nodes_by_free_[room].begin();
      set_free(node, room - gpus);
      return Shares{{node, gpus}};
    }
    return std::nullopt;
  }
  const std::uint32_t nodes = footprint(gpus) / size;
  if (nodes_by_free_[size].size() < nodes) return std::nullopt;
  for (std::uint32_t left = nodes; left > 0; --left) {
    const std::uint32_t node = *nodes_by_free_[size].begin();
    set_free(node, 0);
    shares.push_back({node, size});
  }
  return shares;
}

void PlacementNodes::give_back(const Shares& shares) {
  for (const Share& share : shares) set_free(share.node, free_of_node_[share.node] + share.gpus);
}

}  // namespace plexrl::core
