// SPDX-License-Identifier: Apache-2.0
#include "slurm/host_memory.h"

#include <gtest/gtest.h>

namespace plexrl::slurm {
namespace {

config::ModelEntry model(std::uint64_t parameters) {
  config::ModelEntry entry;
  entry.parameters = parameters;
  entry.hidden_size = 128;
  entry.layers = 3;
  entry.intermediate_size = 384;
  return entry;
}

// 30 tensors may have gaps: 9 in each of 3 layers, embedding, final norm, head.
TEST(HostMemory, FullCountsGapsBetweenTensors) {
  EXPECT_EQ(arena_elements(model(1000000), "full", 0), 1002496U);
  EXPECT_GE(arena_elements(model(1000000), "full", 0), 1000000U + 30U * 64U);
}

// Weights, m, v and sampler weights twice, gradients once: nine arenas in whole chunks.
TEST(HostMemory, NineArenasInWholeChunks) {
  EXPECT_EQ(model_host_bytes(model(1000000), "full", 0, 4096), 9U * 4U * 1002496U);
  EXPECT_EQ(model_host_bytes(model(1), "full", 0, 1 << 21), 9U << 21);
}

// The engine trains in float32 whatever the files hold.
TEST(HostMemory, FilesInBfloatTakeAsMuch) {
  config::ModelEntry entry = model(1000000);
  entry.bytes_per_parameter = 2;
  EXPECT_EQ(model_host_bytes(entry, "full", 0, 4096), 36U * 1002496U);
}

// Weights, m and v in float32 and the sampler's weights in two bytes, twice; gradients once.
TEST(HostMemory, BfloatHalvesTheSamplerOfAFullModelOnly) {
  config::ModelEntry entry = model(1000000);
  const std::uint64_t adapter = model_host_bytes(entry, "lora", 8, 4096);
  entry.dtype = "bfloat16";
  EXPECT_EQ(model_host_bytes(entry, "full", 0, 2048), 32U * 1002496U);
  EXPECT_EQ(model_host_bytes(entry, "lora", 8, 4096), adapter);
  EXPECT_EQ(model_host_bytes(entry, "none", 0, 4096), 0U);
}

TEST(HostMemory, SamplingAloneNeedsNone) {
  EXPECT_EQ(model_host_bytes(model(1000), "none", 0, 4096), 0U);
}

// q, k, v, o: 128 -> 128; gate, up: 128 -> 384; down: 384 -> 128; all of rank 8.
TEST(HostMemory, AdapterCountsSevenMatrices) {
  EXPECT_EQ(arena_elements(model(1), "lora", 8), 8U * 3U * (4U * 256U + 3U * 512U));
}

// Grouped queries make key and value smaller: 64 outputs instead of 128.
TEST(HostMemory, AdapterOfGroupedQueriesIsSmaller) {
  config::ModelEntry entry = model(1);
  entry.kv_size = 64;
  EXPECT_EQ(arena_elements(entry, "lora", 8), 8U * 3U * (2U * 256U + 2U * 192U + 3U * 512U));
}

// A head size of its own makes query and output larger than hidden_size, key and value follow.
TEST(HostMemory, AttentionMayBeWiderThanTheModel) {
  config::ModelEntry entry = model(1);
  entry.attention_size = 256;
  EXPECT_EQ(arena_elements(entry, "lora", 8), 8U * 3U * (4U * 384U + 3U * 512U));
}

// Rank 1 of 65 inputs: 65 elements take 128.
TEST(HostMemory, EachMatrixOfAnAdapterIsAligned) {
  config::ModelEntry entry = model(1);
  entry.hidden_size = entry.intermediate_size = 65;
  entry.layers = 8;
  EXPECT_EQ(arena_elements(entry, "lora", 1), 8U * 14U * 128U);
}

TEST(HostMemory, LargestConfigurableModelDoesNotOverflow) {
  config::ModelEntry entry = model(1ULL << 44);
  entry.layers = 4096;
  entry.hidden_size = 1 << 20;
  entry.intermediate_size = 1 << 22;
  EXPECT_GT(model_host_bytes(entry, "full", 0, 1 << 21), 36ULL << 44);
  EXPECT_GT(model_host_bytes(entry, "lora", 256, 1 << 21), 36ULL * 256 * 4096 * (3ULL << 22));
}

}  // namespace
}  // namespace plexrl::slurm
