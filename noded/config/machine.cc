// SPDX-License-Identifier: Apache-2.0
#include "config/machine.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

namespace plexrl::config {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Core core_of(hwloc_obj_t object) {
  Core core;
  for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
       cpu = hwloc_bitmap_next(object->cpuset, cpu))
    core.cpus.push_back(static_cast<unsigned>(cpu));
  return core;
}

}  // namespace

Result<Machine> detect_machine() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return error(Code::INTERNAL, "hwloc cannot start");
  const Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) return error(Code::INTERNAL, "hwloc cannot read this machine");
  Machine machine;
  for (hwloc_obj_t core = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_CORE, nullptr); core != nullptr;
       core = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_CORE, core))
    machine.cores.push_back(core_of(core));
  const int sockets = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_PACKAGE);
  machine.sockets = sockets > 0 ? static_cast<std::uint32_t>(sockets) : 1;
  machine.memory_mib = hwloc_get_root_obj(raw)->total_memory >> 20;
  if (machine.cores.empty()) return error(Code::INTERNAL, "hwloc finds no cores");
  return machine;
}

std::string number_list(std::vector<unsigned> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace plexrl::config
