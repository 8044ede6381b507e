// SPDX-License-Identifier: Apache-2.0
#include "plugin_args.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace plexrl::spank {
namespace {

Result<PluginArgs> parse(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_plugin_args(static_cast<int>(argv.size()), argv.data());
}

TEST(PluginArgs, NoneIsFine) {
  const auto args = parse({});
  ASSERT_TRUE(args);
  EXPECT_EQ(args->socket, "");
  EXPECT_EQ(args->jobs_dir, "/run/plexrl-jobs");
}

TEST(PluginArgs, TakesPaths) {
  const auto args = parse({"config=/etc/x=y.yaml", "socket=/s", "jobs=/j"});
  ASSERT_TRUE(args);
  EXPECT_EQ(args->config, "/etc/x=y.yaml");
  EXPECT_EQ(socket_path(*args).value(), "/s");
  EXPECT_EQ(args->jobs_dir, "/j");
}

TEST(PluginArgs, NamesTheWordThatIsWrong) {
  for (const char* word : {"config", "config=", "socket=relative", "sokcet=/s", "=", ""}) {
    const auto args = parse({word});
    ASSERT_FALSE(args) << word;
    EXPECT_NE(args.error().text().find("'" + std::string(word) + "'"), std::string::npos);
  }
}

TEST(PluginArgs, TheSocketComesFromTheSiteFile) {
  char name[] = "/tmp/plexrl-args-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string file = std::string(name) + "/plexrl.yaml";
  std::ofstream(file) << R"(cluster: c
pools:
  - {name: p, partition: p, nodes: n1, models: m, host_memory_mib: 100, device_memory_mib: 2, activation_memory_mib: 1}
models:
  - {name: m, path: /m, parameters: 1, hidden_size: 1, layers: 1, intermediate_size: 1}
daemon: {run_dir: /run/elsewhere}
)";
  const auto args = parse({"config=" + file});
  ASSERT_TRUE(args);
  const auto socket = socket_path(*args);
  ASSERT_TRUE(socket) << socket.error().to_string();
  EXPECT_EQ(*socket, "/run/elsewhere/plexrld.sock");
  std::filesystem::remove_all(name);
  EXPECT_EQ(socket_path(*args).error().code(), Code::NOT_FOUND);
}

}  // namespace
}  // namespace plexrl::spank
