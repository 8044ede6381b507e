// SPDX-License-Identifier: Apache-2.0
// Where the parts of a pool lie; machines with several nodes by description.
#include "device/numa.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <thread>

#include "device/address_range.h"
#include "device/device_backend.h"
#include "device/huge_pages.h"
#include "device/pool_memory.h"

namespace plexrl::device {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

NumaNode node(unsigned number, std::uint64_t gib, std::vector<unsigned> cpus = {}) {
  return {number, gib * kGiB, std::move(cpus)};
}

// A machine of hwloc's making, as XML.
std::string machine(const char* synthetic) {
  hwloc_topology_t topology = nullptr;
  hwloc_topology_init(&topology);
  EXPECT_EQ(hwloc_topology_set_synthetic(topology, synthetic), 0);
  EXPECT_EQ(hwloc_topology_load(topology), 0);
  char* text = nullptr;
  int length = 0;
  EXPECT_EQ(hwloc_topology_export_xmlbuffer(topology, &text, &length, 0), 0);
  std::string xml(text);
  hwloc_free_xmlbuffer(topology, text);
  hwloc_topology_destroy(topology);
  return xml;
}

// The same with a PCI device below the last package: vendor and class in hexadecimal.
std::string with_device(std::string xml, const std::string& vendor, const std::string& kind) {
  const std::string bridge =
      "<object type=\"Bridge\" gp_index=\"900\" bridge_type=\"0-1\" depth=\"0\" "
      "bridge_pci=\"0000:[00-7f]\"><object type=\"PCIDev\" gp_index=\"901\" "
      "pci_busid=\"0000:41:00.0\" pci_type=\"" +
      kind + " [" + vendor + ":2330] [" + vendor + ":16c1] a1\" pci_link_speed=\"0.0\"/></object>";
  const std::size_t package = xml.rfind("type=\"Package\"");
  EXPECT_NE(package, std::string::npos);
  std::size_t end = package;  // of the package: its closing tag
  for (int depth = 1; depth > 0;) {
    const std::size_t open = xml.find("<object", end), close = xml.find("</object>", end);
    const std::size_t empty = xml.find("/>", end);
    end = std::min({open, close, empty}) + 1;
    if (close + 1 == end) --depth;
    if (open + 1 == end) {
      const std::size_t tag = xml.find('>', end);
      if (xml[tag - 1] != '/') ++depth;
      end = tag;
    }
  }
  return xml.insert(end - 1, bridge);
}

TEST(Numa, ThisMachineHasANodeWithMemory) {
  const auto nodes = numa_nodes();
  ASSERT_TRUE(nodes.has_value()) << nodes.error().to_string();
  ASSERT_FALSE(nodes->empty());
  for (const NumaNode& node : *nodes) EXPECT_GT(node.memory_bytes, 0U);
}

TEST(Numa, NodesOfAMachineInOrder) {
  const auto nodes = numa_nodes_of(machine("pack:2 [numa(memory=64GB)] core:4 pu:1"));
  ASSERT_TRUE(nodes.has_value()) << nodes.error().to_string();
  ASSERT_EQ(nodes->size(), 2U);
  EXPECT_EQ((*nodes)[0].number, 0U);
  EXPECT_EQ((*nodes)[1].number, 1U);
  EXPECT_EQ((*nodes)[1].cpus, (std::vector<unsigned>{4, 5, 6, 7}));
  EXPECT_EQ((*nodes)[0].memory_bytes, (*nodes)[1].memory_bytes);
}

TEST(Numa, TheNodeOfTheGpuComesFirst) {
  const std::string plain = machine("pack:2 [numa(memory=64GB)] core:4 pu:1");
  const auto gpu = numa_nodes_of(with_device(plain, "10de", "0302"));
  ASSERT_TRUE(gpu.has_value()) << gpu.error().to_string();
  ASSERT_EQ(gpu->size(), 2U);
  EXPECT_EQ((*gpu)[0].number, 1U);
  const auto network = numa_nodes_of(with_device(plain, "15b3", "0207"));
  ASSERT_TRUE(network.has_value());
  EXPECT_EQ((*network)[0].number, 0U);
}

TEST(Numa, WhatIsNoMachineIsRefused) { EXPECT_FALSE(numa_nodes_of("<topology").has_value()); }

TEST(Numa, ChunksAreDealtOutByMemory) {
  const auto ranges = deal_out(100, {node(1, 300), node(0, 100)});
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].first_chunk, 0U);
  EXPECT_EQ(ranges[0].node, 0U);
  EXPECT_NEAR(static_cast<double>(ranges[0].chunks), 75, 1);
  EXPECT_EQ(ranges[1].first_chunk, ranges[0].chunks);
}

TEST(Numa, EveryChunkIsInOneRange) {
  for (std::size_t chunks = 1; chunks < 40; ++chunks)
    for (const auto& nodes : {std::vector<NumaNode>{node(0, 1)},
                              {node(0, 1), node(1, 1), node(2, 1)},
                              {node(0, 1), node(1, 4096)},
                              {node(0, 1 << 20), node(1, 1)},
                              {{}}}) {
      std::size_t next = 0;
      for (const NumaRange& range : deal_out(chunks, nodes)) {
        EXPECT_EQ(range.first_chunk, next);
        EXPECT_GT(range.chunks, 0U);
        next += range.chunks;
      }
      EXPECT_EQ(next, chunks);
    }
}

TEST(PoolMemory, SlicesCoverThePoolAndBeginAtHugePages) {
  const std::vector<NumaNode> nodes = {node(0, 1, {0, 1, 2}), node(1, 1, {3}), node(2, 1)};
  for (const std::size_t chunk : {std::size_t{64} << 10, kHugePage})
    for (const std::size_t chunks : {std::size_t{1}, std::size_t{31}, std::size_t{1000}}) {
      std::size_t next = 0;
      const auto slices = slices_of(deal_out(chunks, nodes), nodes, chunk);
      for (const PoolSlice& slice : slices) {
        EXPECT_EQ(slice.at, next);
        EXPECT_GT(slice.bytes, 0U);
        const bool of_next_node = &slice != slices.data() && (&slice)[-1].node != slice.node;
        EXPECT_TRUE(slice.at % kHugePage == 0 || of_next_node);
        next += slice.bytes;
      }
      EXPECT_EQ(next, chunk * chunks);
      EXPECT_LE(slices.size(), 5U);
    }
}

TEST(PoolMemory, MemoryIsPlacedAndCleared) {
  const auto nodes = numa_nodes();
  ASSERT_TRUE(nodes.has_value());
  const UniqueFd pool = create_cpu_pool("placed", kHugePage, 2).value();
  auto range = AddressRange::reserve(2 * kHugePage).value();
  ASSERT_TRUE(range.map(0, pool.get(), 0, range.bytes(), AddressRange::Access::kReadWrite).ok());
  for (std::size_t at = 0; at < range.bytes(); at += 4096) ASSERT_EQ(range.data()[at], std::byte{});
  const Status placed = place_on((*nodes)[0], range.data(), range.bytes());
  if (placed.code() == Code::IO) GTEST_SKIP() << placed.text();
  EXPECT_TRUE(placed.ok()) << placed.to_string();
  EXPECT_EQ(place_on({4000, kGiB, {}}, range.data(), range.bytes()).code(), Code::IO);
}

TEST(PoolMemory, AThreadRunsOnItsNode) {
  std::thread([] {
    cpu_set_t before;
    ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
    unsigned cpu = 0;
    while (!CPU_ISSET(cpu, &before)) ++cpu;
    ASSERT_TRUE(run_on({0, kGiB, {cpu}}));
    cpu_set_t after;
    ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_EQ(CPU_COUNT(&after), 1);
    EXPECT_TRUE(CPU_ISSET(cpu, &after));
    EXPECT_FALSE(run_on({0, kGiB, {}}));
  }).join();
}

}  // namespace
}  // namespace plexrl::device
