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

// A chunk of one byte shows the plain formula: 2 * (4 + 4 + 4 + 4) + 4.
TEST(HostMemory, FullInFloat32Is36BytesPerParameter) {
  EXPECT_EQ(model_host_bytes(model(1000), "full", 0, 1), 36000U);
}

// 2 * (6 + 4 + 4 + 2) + 4.
TEST(HostMemory, FullInBfloat16HasFloat32Masters) {
  config::ModelEntry entry = model(1000);
  entry.bytes_per_parameter = 2;
  EXPECT_EQ(model_host_bytes(entry, "full", 0, 1), 36000U);
}

// Weights, m, v and sampler weights twice, gradients once: nine segments of one chunk.
TEST(HostMemory, EachSegmentIsRoundedUpToAChunk) {
  EXPECT_EQ(model_host_bytes(model(1), "full", 0, 1 << 21), 9U << 21);
}

TEST(HostMemory, SamplingAloneNeedsNone) {
  EXPECT_EQ(model_host_bytes(model(1000), "none", 0, 4096), 0U);
}

// q, k, v, o: 128 -> 128; gate, up: 128 -> 384; down: 384 -> 128; all of rank 8.
TEST(HostMemory, AdapterCountsSevenMatrices) {
  EXPECT_EQ(adapter_parameters(model(1), 8), 8U * 3U * (4U * 256U + 3U * 512U));
}

// Grouped queries make key and value smaller: 64 outputs instead of 128.
TEST(HostMemory, AdapterOfGroupedQueriesIsSmaller) {
  config::ModelEntry entry = model(1);
  entry.kv_size = 64;
  EXPECT_EQ(adapter_parameters(entry, 8), 8U * 3U * (2U * 256U + 2U * 192U + 3U * 512U));
}

// A head size of its own makes query and output larger than hidden_size, key and value follow.
TEST(HostMemory, AttentionMayBeWiderThanTheModel) {
  config::ModelEntry entry = model(1);
  entry.attention_size = 256;
  EXPECT_EQ(adapter_parameters(entry, 1), 3U * (4U * 384U + 3U * 512U));
}

TEST(HostMemory, LoraTrainsTheAdapterInFloat32) {
  config::ModelEntry entry = model(1000000000);
  entry.bytes_per_parameter = 2;
  EXPECT_EQ(model_host_bytes(entry, "lora", 4, 1), 36U * adapter_parameters(entry, 4));
}

TEST(HostMemory, LargestConfigurableModelDoesNotOverflow) {
  config::ModelEntry entry = model(1ULL << 44);
  EXPECT_EQ(model_host_bytes(entry, "full", 0, 1 << 21), 36ULL << 44);
}

}  // namespace
}  // namespace plexrl::slurm
