// SPDX-License-Identifier: Apache-2.0
#include "device/numa.h"

#include <hwloc.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>

namespace plexrl::device {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplay = 0x03;  // base class of graphics and 3D controllers

Result<Topology> load(const std::string& xml) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return error(Code::INTERNAL, "hwloc cannot start");
  Topology topology(raw);
  if (!xml.empty() &&
      hwloc_topology_set_xmlbuffer(raw, xml.c_str(), static_cast<int>(xml.size()) + 1) != 0)
    return error(Code::INTERNAL, "hwloc cannot read the description of the machine");
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0) return error(Code::INTERNAL, "hwloc cannot read this machine");
  return topology;
}

std::vector<unsigned> members(hwloc_const_bitmap_t set) {
  std::vector<unsigned> numbers;
  if (set == nullptr || hwloc_bitmap_weight(set) < 0) return numbers;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i))
    numbers.push_back(static_cast<unsigned>(i));
  return numbers;
}

// Numbers of the nodes that GPUs hang on.
std::vector<unsigned> nodes_of_gpus(hwloc_topology_t topology) {
  std::vector<unsigned> nodes;
  for (hwloc_obj_t device = hwloc_get_next_pcidev(topology, nullptr); device != nullptr;
       device = hwloc_get_next_pcidev(topology, device)) {
    const auto& pci = device->attr->pcidev;
    if (pci.vendor_id != kNvidia || pci.class_id >> 8 != kDisplay) continue;
    const auto near = members(hwloc_get_non_io_ancestor_obj(topology, device)->nodeset);
    nodes.insert(nodes.end(), near.begin(), near.end());
  }
  return nodes;
}

Result<std::vector<NumaNode>> read_nodes(const std::string& xml) {
  PLEXRL_ASSIGN(const Topology topology, load(xml));
  std::vector<NumaNode> nodes;
  for (hwloc_obj_t object = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, nullptr);
       object != nullptr;
       object = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, object)) {
    const std::uint64_t bytes = object->attr->numanode.local_memory;
    if (bytes > 0) nodes.push_back({object->os_index, bytes, members(object->cpuset)});
  }
  if (nodes.empty()) return error(Code::INTERNAL, "hwloc finds no node with memory");
  const auto near = nodes_of_gpus(topology.get());
  std::stable_partition(nodes.begin(), nodes.end(), [&](const NumaNode& node) {
    return std::find(near.begin(), near.end(), node.number) != near.end();
  });
  return nodes;
}

}  // namespace

Result<std::vector<NumaNode>> numa_nodes() { return read_nodes(""); }

Result<std::vector<NumaNode>> numa_nodes_of(const std::string& xml) { return read_nodes(xml); }

std::vector<NumaRange> deal_out(std::size_t chunks, const std::vector<NumaNode>& nodes) {
  // In MiB, so that the products stay far below 2^64.
  const auto mib = [](const NumaNode& node) { return (node.memory_bytes >> 20) + 1; };
  std::uint64_t left = 0;
  for (const NumaNode& node : nodes) left += mib(node);
  std::vector<NumaRange> ranges;
  std::size_t first = 0;
  for (std::size_t i = 0; i < nodes.size() && first < chunks; ++i) {
    const std::uint64_t rest = chunks - first;
    // Rounded up, so that the last one takes what is left and no chunk is forgotten.
    const std::uint64_t part = (rest * mib(nodes[i]) + left - 1) / left;
    left -= mib(nodes[i]);
    ranges.push_back({first, part, i});
    first += part;
  }
  return ranges;
}

Status place_on(const NumaNode& node, std::byte* at, std::size_t bytes) {
  constexpr unsigned kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask(node.number / kBits + 1);
  mask[node.number / kBits] |= 1UL << node.number % kBits;
  // Preferred, not bound: a node that is full costs speed, not the start of the service. The kernel
  // takes one bit less than it is told.
  if (::syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, mask.data(), mask.size() * kBits + 1, 0) == 0)
    return {};
  return errno_error(Code::IO, errno, "place %zu bytes on NUMA node %u", bytes, node.number);
}

bool run_on(const NumaNode& node) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const unsigned cpu : node.cpus)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &cpus);
  return ::sched_setaffinity(0, sizeof cpus, &cpus) == 0;
}

}  // namespace plexrl::device
