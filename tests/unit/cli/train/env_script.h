// SPDX-License-Identifier: Apache-2.0
// Workers of --env-cmd as shell scripts, in a folder of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace plexrl::cli {

// Greets; then `next` reads a request into $line and $id, and `say '"done":true'` replies to it.
inline std::string worker_script(const std::string& body) {
  return R"(
next() { IFS= read -r line || exit 0; id=${line#*\"id\":}; id=${id%%[,\}]*}; }
say() { printf '{"id":%s,%s}\n' "$id" "$1"; }
next; say '"protocol":1'
)" + body;
}

class EnvScriptTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "plexrl-env-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  // The script may `cd` nowhere else: $PWD is the folder.
  std::string in_folder(const std::string& script) const {
    return "cd '" + directory_ + "' && " + script;
  }
  long number_in(const std::string& name) const {
    std::ifstream file(path(name));
    long number = 0;
    file >> number;
    return number;
  }

  std::string directory_;
};

}  // namespace plexrl::cli
