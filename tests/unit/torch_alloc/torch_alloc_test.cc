// SPDX-License-Identifier: Apache-2.0
#include "torch_alloc/torch_alloc.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace plexrl::torch_alloc {
namespace {

TEST(TorchAlloc, WithoutCudaItGivesNothingAndSaysWhy) {
  ::setenv("PLEXRL_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  EXPECT_EQ(plexrl_torch_alloc(4096, 0, nullptr), nullptr);
  EXPECT_NE(std::string(plexrl_torch_error()).find("no CUDA driver"), std::string::npos)
      << plexrl_torch_error();
  plexrl_torch_free(nullptr, 0, 0, nullptr);
  EXPECT_EQ(plexrl_torch_should_yield(), 0);
  EXPECT_EQ(plexrl_torch_yield(), 0);
}

}  // namespace
}  // namespace plexrl::torch_alloc
