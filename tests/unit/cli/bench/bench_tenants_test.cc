// SPDX-License-Identifier: Apache-2.0
// What `plexrl bench tenants` is made of, without its daemons: daemon_models.bats runs it whole.
#include "cli/bench/bench_tenants.h"

#include <gtest/gtest.h>

#include <fstream>

#include "cli/bench/bench_model.h"
#include "cli/bench/child_program.h"
#include "cli/bench/temporary_folder.h"

namespace plexrl::cli {
namespace {

TEST(BenchTenants, OptionsThatCannotBeMeasuredAreRefused) {
  const auto refused = [](const auto& change) {
    BenchTenantsOptions options;
    options.plexrld = "/nonexistent/plexrld";
    change(options);
    const auto rows = bench_tenants(options);
    return !rows && rows.error().code() == Code::INVALID_ARGUMENT;
  };
  EXPECT_TRUE(refused([](BenchTenantsOptions& o) { o.duties = {0.5, 0.0}; }));
  EXPECT_TRUE(refused([](BenchTenantsOptions& o) { o.duties = {1.5}; }));
  EXPECT_TRUE(refused([](BenchTenantsOptions& o) { o.duties.clear(); }));
  EXPECT_TRUE(refused([](BenchTenantsOptions& o) { o.alone = o.tenants + 1; }));
  EXPECT_TRUE(refused([](BenchTenantsOptions& o) { o.samples = 1; }));
  EXPECT_FALSE(refused([](BenchTenantsOptions&) {}));
}

class BenchModelTest : public testing::Test {
 protected:
  Result<ModelShape> shape(const std::string& config) {
    std::ofstream(folder_.path() + "/config.json") << config;
    return shape_of({"m", folder_.path()});
  }
  TemporaryFolder folder_ = TemporaryFolder::make().value();
};

// SmolLM2-135M: 134,515,008 parameters, as its own safetensors file has.
TEST_F(BenchModelTest, CountsParameters) {
  const auto real = shape(R"({"hidden_size":576,"num_hidden_layers":30,"num_attention_heads":9,
      "num_key_value_heads":3,"intermediate_size":1536,"vocab_size":49152,
      "max_position_embeddings":8192})");
  ASSERT_TRUE(real) << real.error().to_string();
  EXPECT_EQ(real->kv_size(), 192U);
  EXPECT_EQ(real->parameters(), 134'515'008U);
  // Of each layer: q and o 576 + 576, k and v 576 + 192, gate, up and down 576 + 1536; times rank.
  EXPECT_EQ(real->lora_parameters(8), 8U * 30 * (2 * 1152 + 2 * 768 + 3 * 2112));
  const std::string entry = site_model(*real, "real", "/srv/real");
  EXPECT_NE(entry.find("kv_size: 192"), std::string::npos) << entry;
}

TEST_F(BenchModelTest, NamesWhatAConfigurationLacks) {
  const auto without = shape(R"({"hidden_size":576})");
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().text().find("num_hidden_layers"), std::string::npos);
  EXPECT_FALSE(shape("no JSON"));
  EXPECT_FALSE(shape("[]"));
}

TEST(ChildProgram, GetsItsEnvironmentAndIsQuotedWhenItFails) {
  const TemporaryFolder folder = TemporaryFolder::make().value();
  const std::string log = folder.path() + "/log";
  auto well = ChildProgram::start({"/bin/sh", "-c", "[ \"$GIVEN\" = x ] && [ -n \"$PATH\" ]"}, log,
                                  {"GIVEN=x"});
  ASSERT_TRUE(well) << well.error().to_string();
  EXPECT_TRUE(well->wait().ok());
  auto badly = ChildProgram::start({"/bin/sh", "-c", "echo a reason >&2; exit 3"}, log);
  ASSERT_TRUE(badly) << badly.error().to_string();
  const Status status = badly->wait();
  EXPECT_EQ(status.code(), Code::INTERNAL);
  EXPECT_NE(status.text().find("a reason"), std::string::npos) << status.text();
  EXPECT_EQ(ChildProgram::start({"/nonexistent/program"}, log).error().code(), Code::NOT_FOUND);
}

TEST(ChildProgram, IsEndedWithItsObject) {
  const TemporaryFolder folder = TemporaryFolder::make().value();
  auto child = ChildProgram::start({"/bin/sh", "-c", "exec sleep 1000"}, folder.path() + "/log");
  ASSERT_TRUE(child) << child.error().to_string();
  const ChildProgram moved = std::move(*child);
}

}  // namespace
}  // namespace plexrl::cli
