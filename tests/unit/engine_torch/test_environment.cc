// SPDX-License-Identifier: Apache-2.0
// Installs the activation arena once for all tests of the program: they run on what the engine runs
// on.
#include <gtest/gtest.h>

#include "engine_torch/activation_arena.h"

namespace plexrl::model {
namespace {

class ArenaEnvironment final : public testing::Environment {
 public:
  void SetUp() override {
    auto arena = ActivationArena::create(256 << 20);
    ASSERT_TRUE(arena) << arena.error().to_string();
    const Status status = install_activation_arena(std::move(arena).value(), 1);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
};
const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new ArenaEnvironment);

}  // namespace
}  // namespace plexrl::model
