// SPDX-License-Identifier: Apache-2.0
#include "config/config_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "config/config_keys.h"

namespace plexrl::config {
namespace {

std::string source_file(const std::string& name) {
  std::ifstream file(std::string(PLEXRL_SOURCE_DIR) + "/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

SiteConfig example() {
  const auto config =
      load_site_config(std::string(PLEXRL_SOURCE_DIR) + "/doc/examples/plexrl.yaml", false);
  EXPECT_TRUE(config) << config.error().to_string();
  return config ? *config : SiteConfig{};
}

TEST(ConfigText, TheExampleIsValid) { EXPECT_FALSE(example().pools.empty()); }

TEST(ConfigText, ADumpReadsBackAsTheSame) {
  const SiteConfig config = example();
  const std::string dump = dump_yaml(config);
  const auto again = parse_site_config(dump, "dump");
  ASSERT_TRUE(again) << again.error().to_string() << "\n" << dump;
  EXPECT_EQ(dump_json(*again), dump_json(config));
}

TEST(ConfigText, ADumpShowsDefaults) {
  EXPECT_THAT(dump_yaml(example()), ::testing::HasSubstr("max_connections: 1024"));
}

TEST(ConfigText, JsonHasEveryKey) {
  const auto json = nlohmann::json::parse(dump_json(example()));
  EXPECT_EQ(json["pools"][0].size(), pool_keys().size());
  EXPECT_EQ(json["models"][0].size(), model_keys().size());
  EXPECT_EQ(json["daemon"].size(), daemon_keys().size());
}

// plexrl.yaml(5) holds the lists that the table of keys generates; the failure prints the text to
// paste.
TEST(ConfigText, TheManualListsTheKeysOfTheTable) {
  const std::string manual = source_file("man/plexrl.yaml.5");
  for (const char* section : {"site", "pools", "models", "daemon"})
    EXPECT_NE(manual.find(key_list_mdoc(section)), std::string::npos)
        << "section " << section << " should be:\n"
        << key_list_mdoc(section);
}

TEST(ConfigText, NamesAreGivenOnceAndDocumented) {
  std::vector<std::string> names;
  for (const auto& key : pool_keys()) {
    EXPECT_THAT(names, ::testing::Not(::testing::Contains(key.name)));
    EXPECT_THAT(key.doc, ::testing::EndsWith("."));
    names.emplace_back(key.name);
  }
}

}  // namespace
}  // namespace plexrl::config
