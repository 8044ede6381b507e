// SPDX-License-Identifier: Apache-2.0
// The conformance suite on the engine without a model.
#include <gtest/gtest.h>

#include "engine/engine_conformance.h"
#include "engine/fake_engine.h"

namespace plexrl::engine {
namespace {

EngineKind fake_kind() {
  EngineKind kind;
  kind.name = "fake";
  kind.make = [](loop::EventLoop& loop, EngineListener& listener, const std::string& dir) {
    EngineSpec spec;
    spec.id = EngineId{17};
    spec.base_name = "tiny";
    spec.mode = wire::TrainMode::Full;
    spec.socket_path = dir + "/17.sock";
    return make_fake_engine(loop, std::move(spec), listener);
  };
  kind.survives_detach = false;
  return kind;
}

INSTANTIATE_TEST_SUITE_P(Fake, EngineConformance, ::testing::Values(fake_kind()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace plexrl::engine
