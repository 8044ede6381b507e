// SPDX-License-Identifier: Apache-2.0
#include "config/site_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace plexrl::config {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGood = R"(# a site
cluster: lab
pools:
  - name: rl
    partition: plexrl
    nodes: node[1-4,7]
    groups: [rlvr]
    models: [tiny, small]
    train_modes: [lora, full]
    default_share: 50
    max_share: 100
    host_memory_mib: 8192
    device_memory_mib: 2048
    activation_memory_mib: 512
  - name: other
    partition: other
    nodes: [gpu1, "gpu[3-4]"]
    models: tiny
    host_memory_mib: 1024
    device_memory_mib: 512
    activation_memory_mib: 128
    policy: fifo
models:
  - name: tiny
    path: /models/tiny
    parameters: 1000000
    hidden_size: 128
    layers: 3
    intermediate_size: 384
    kv_size: 64
  - {name: small, path: /models/small, parameters: 135000000, hidden_size: 576, layers: 30,
     intermediate_size: 1536, bytes_per_parameter: 2, dtype: bfloat16}
daemon:
  user: plexrl
  engine_threads: 2
  log_level: debug
)";

std::string errors_of(const std::string& text) {
  const auto config = parse_site_config(text, "site.yaml");
  return config ? "no error" : config.error().text();
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(SiteConfig, ReadsEveryKindOfValue) {
  const auto config = parse_site_config(kGood, "site.yaml");
  ASSERT_TRUE(config) << config.error().to_string();
  EXPECT_EQ(config->cluster, "lab");
  ASSERT_EQ(config->pools.size(), 2U);
  EXPECT_EQ(config->pools[0].groups, std::vector<std::string>{"rlvr"});
  EXPECT_EQ(config->pools[0].train_modes, (std::vector<std::string>{"lora", "full"}));
  EXPECT_EQ(config->pools[1].models, std::vector<std::string>{"tiny"});
  EXPECT_EQ(config->pools[1].policy, "fifo");
  EXPECT_EQ(config->models[0].kv_size, 64U);
  EXPECT_EQ(config->models[1].bytes_per_parameter, 2U);
  EXPECT_EQ(config->models[0].dtype, "float32");
  EXPECT_EQ(config->models[1].dtype, "bfloat16");
  EXPECT_EQ(config->daemon.engine_threads, 2U);
}

TEST(SiteConfig, MissingKeysKeepTheirDefaults) {
  const auto config = parse_site_config(kGood, "site.yaml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->pools[1].default_share, 50U);
  EXPECT_EQ(config->daemon.run_dir, "/run/plexrl");
  EXPECT_EQ(config->daemon.chunk_kib, 2048U);
}

TEST(SiteConfig, FindsByNamePartitionAndNode) {
  const auto config = parse_site_config(kGood, "site.yaml");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->find_pool("rl"), &config->pools[0]);
  EXPECT_EQ(config->find_pool("RL"), nullptr);
  EXPECT_EQ(config->pool_of_partition("other"), &config->pools[1]);
  EXPECT_EQ(config->pool_of_node("node7"), &config->pools[0]);
  EXPECT_EQ(config->pool_of_node("gpu4"), &config->pools[1]);
  EXPECT_EQ(config->pool_of_node("node5"), nullptr);
  EXPECT_EQ(config->find_model("small"), &config->models[1]);
  EXPECT_EQ(config->find_model("large"), nullptr);
}

TEST(SiteConfig, ReportsAllErrorsWithFileAndLine) {
  std::string text = changed("default_share: 50", "defaultshare: 50");
  text.replace(text.find("max_share: 100"), 14, "max_share: 200");
  text.replace(text.find("log_level: debug"), 16, "log_level: loud");
  EXPECT_EQ(errors_of(text),
            "site.yaml:10: pools[0].defaultshare: unknown key; did you mean 'default_share'?\n"
            "site.yaml:11: pools[0].max_share: '200' is not between 1 and 100\n"
            "site.yaml:36: daemon.log_level: 'loud' is not one of: error, warning, info, debug, "
            "trace");
}

TEST(SiteConfig, MissingKeysAndSectionsAreNamed) {
  EXPECT_EQ(errors_of("cluster: x\n"), "site.yaml:1: pools: missing\nsite.yaml:1: models: missing");
  EXPECT_EQ(errors_of(changed("    partition: other\n", "")),
            "site.yaml:15: pools[1].partition: missing");
  EXPECT_THAT(errors_of(changed("cluster: lab\n", "")), HasSubstr("cluster: missing"));
}

TEST(SiteConfig, RefusesWrongShapesAndValues) {
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"cluster: lab", "cluster: [lab]", "site.yaml:2: cluster: expected one value"},
      {"cluster: lab", "cluster: la:b", "'la:b' is not a name"},
      {"cluster: lab", "cluster: lab\ncluster: lab", "site.yaml:3: cluster: given twice"},
      {"name: rl", "name: ''", "pools[0].name: '' is not a name"},
      {"name: rl", "name: -rl", "is not a name"},
      {"nodes: node[1-4,7]", "nodes: node[4-1]", "range '4-1' runs backwards"},
      {"nodes: node[1-4,7]", "nodes: {a: b}", "pools[0].nodes: expected a list"},
      {"groups: [rlvr]", "groups: [rlvr, rlvr]", "'rlvr' is listed twice"},
      {"[lora, full]", "[lora, half]", "'half' is not one of: lora, full, none"},
      {"host_memory_mib: 8192", "host_memory_mib: -1", "'-1' is not a whole number"},
      {"host_memory_mib: 8192", "host_memory_mib: 8e3", "'8e3' is not a whole number"},
      {"host_memory_mib: 8192", "host_memory_mib: 99999999999999999999", "is not between"},
      {"host_memory_mib: 8192", "host_memory_mib:", "expected one value"},
      {"path: /models/tiny", "path: models/tiny", "is not an absolute path"},
      {"path: /models/tiny", "path: /models/../x", "is not an absolute path without '..'"},
      {"user: plexrl", "user: 'a b'", "daemon.user: 'a b' is not a name"},
      {"policy: fifo", "policy: lifo",
       "'lifo' is not one of: least-slowdown, hrrs, round-robin, fifo"},
      {"dtype: bfloat16", "dtype: float16", "'float16' is not one of: float32, bfloat16"},
      {"daemon:\n", "deamon:\n", "deamon: unknown key; did you mean 'daemon'?"},
      {"  engine_threads: 2", "  engine_threads: 2\n  device: 3", "daemon.device: unknown key"},
      {"  engine_threads: 2", "  http_address: 10.0.0.1:80",
       "daemon.http_address: '10.0.0.1:80' can be reached from other machines, and this version "
       "has no TLS"},
      {"  engine_threads: 2", "  http_address: 0.0.0.0:80", "has no TLS"},
      {"  engine_threads: 2", "  http_address: localhost:80", "is not an IPv4 address with a port"},
      {"  engine_threads: 2", "  http_address: '127.0.0.1'", "is not an IPv4 address with a port"},
      {"  engine_threads: 2", "  http_address: '127.0.0.1:'", "is not an IPv4 address with a port"},
      {"  engine_threads: 2", "  http_address: '127.0.0.1:0'",
       "is not an IPv4 address with a port"},
      {"  engine_threads: 2", "  http_address: 127.0.0.1:65536", "is not an IPv4 address"},
      {"  engine_threads: 2", "  http_address: 127.0.0.1:0080", "is not an IPv4 address"},
      {"  engine_threads: 2", "  http_address: '127.1:80'", "is not an IPv4 address"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(errors_of(changed(c.from, c.to)), HasSubstr(c.message)) << c.to;
}

TEST(SiteConfig, ChecksRulesBetweenKeys) {
  const struct {
    const char *from, *to, *message;
  } cases[] = {
      {"models: [tiny, small]", "models: [tiny, smal]",
       "site.yaml:8: pool 'rl': model 'smal' is not in the section models; did you mean 'small'?"},
      {"models: [tiny, small]", "models: []", "pool 'rl': no models"},
      {"name: other", "name: rl", "site.yaml:15: pool 'rl' is already in line 4"},
      {"partition: other", "partition: plexrl", "partition 'plexrl' is already in line 5"},
      {"[gpu1, ", "[node7, ", "site.yaml:17: node 'node7' is already in line 6"},
      {"name: small", "name: tiny", "model 'tiny' is already in line 24"},
      {"max_share: 100", "max_share: 25", "default_share is larger than max_share"},
      {"activation_memory_mib: 512", "activation_memory_mib: 2048", "leaves nothing"},
      {"host_memory_mib: 1024", "host_memory_mib: 64", "kv_host_mib leaves nothing"},
      {"host_memory_mib: 1024", "host_memory_mib: 1024\n    disk_tier_mib: 500",
       "disk_tier_mib without disk_tier_dir"},
      {"host_memory_mib: 1024", "host_memory_mib: 1024\n    disk_tier_dir: /scratch",
       "larger than twice kv_host_mib"},
      {"engine_threads: 2", "chunk_kib: 100", "daemon.chunk_kib: not a multiple of 64"},
      {"activation_memory_mib: 512", "activation_memory_mib: 512\n    device: cuda", "'cuda'"},
  };
  for (const auto& c : cases)
    EXPECT_THAT(errors_of(changed(c.from, c.to)), HasSubstr(c.message)) << c.to;
}

TEST(SiteConfig, TellsMistakesOfValuesAndOfRulesTogether) {
  std::string text = changed("max_share: 100", "max_share: 25");
  text.replace(text.find("host_memory_mib: 1024"), 21, "host_memory_mib: no  ");
  text.replace(text.find("models: [tiny, small]"), 21, "models: [tiny, smal]");
  const std::string errors = errors_of(text);
  EXPECT_THAT(errors, HasSubstr("'no' is not a whole number"));
  EXPECT_THAT(errors, HasSubstr("default_share is larger than max_share"));
  EXPECT_THAT(errors, HasSubstr("model 'smal' is not in the section models"));
  // Nothing follows from a value that is wrong already.
  EXPECT_EQ(errors.find("kv_host_mib"), std::string::npos) << errors;
  text = changed("name: small", "nam: small");
  EXPECT_THAT(errors_of(text), HasSubstr("name: missing"));
  EXPECT_EQ(errors_of(text).find("is not in the section models"), std::string::npos);
}

TEST(SiteConfig, ADeviceNeedsChunksOfItsGranularity) {
  std::string text =
      changed("activation_memory_mib: 512", "activation_memory_mib: 512\n    device: cuda:1");
  EXPECT_EQ(errors_of(text), "no error");
  text.replace(text.find("engine_threads: 2"), 17, "chunk_kib: 1024");
  EXPECT_THAT(errors_of(text), HasSubstr("device cuda:1 needs chunk_kib to be a multiple of 2048"));
}

TEST(SiteConfig, RefusesYamlThatIsNotPlain) {
  EXPECT_THAT(errors_of("cluster: &a x\npools: *a\n"), HasSubstr("site.yaml:1: anchors"));
  EXPECT_THAT(errors_of("cluster: !!str x\n"), HasSubstr("tags (!name) are not allowed"));
  EXPECT_THAT(errors_of("cluster: [x\n"), HasSubstr("site.yaml:"));
  EXPECT_THAT(errors_of(std::string(40, '[')), HasSubstr("site.yaml:"));
  EXPECT_THAT(errors_of(std::string(40, '[') + std::string(40, ']')), HasSubstr("too deeply"));
  EXPECT_THAT(errors_of(std::string(100000, '[')), HasSubstr("site.yaml:"));
  EXPECT_THAT(errors_of(std::string(2 << 20, 'a')), HasSubstr("larger than 1 MiB"));
  EXPECT_THAT(errors_of(""), HasSubstr("the file is empty"));
  EXPECT_THAT(errors_of("- a\n- b\n"), HasSubstr("expected keys with values"));
  EXPECT_THAT(errors_of("? [a, b]\n: c\n"), HasSubstr("unknown key"));
  EXPECT_THAT(errors_of(std::string("\0\xff\xfe", 3)), HasSubstr("site.yaml:"));
}

TEST(SiteConfig, AFloodOfErrorsIsCut) {
  std::string text = "cluster: x\n";
  for (int i = 0; i < 5000; ++i) text += "nonsense_" + std::to_string(i) + ": 1\n";
  const std::string errors = errors_of(text);
  EXPECT_THAT(errors, HasSubstr("more errors are not shown"));
  EXPECT_LT(errors.size(), 10000U);
}

TEST(SiteConfig, LoadSaysWhichFileIsMissing) {
  const auto config = load_site_config("/nonexistent/plexrl.yaml", false);
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), Code::NOT_FOUND);
  EXPECT_THAT(config.error().text(), HasSubstr("/nonexistent/plexrl.yaml"));
  EXPECT_EQ(load_site_config("/", false).error().code(), Code::IO);
}

TEST(SiteConfig, DefaultPathComesFromTheEnvironmentOrIsFixed) {
  ASSERT_EQ(::setenv("PLEXRL_CONFIG", "/x/y.yaml", 1), 0);
  EXPECT_EQ(default_config_path(), "/x/y.yaml");
  ASSERT_EQ(::unsetenv("PLEXRL_CONFIG"), 0);
  EXPECT_EQ(default_config_path(), "/etc/plexrl/plexrl.yaml");
}

}  // namespace
}  // namespace plexrl::config
