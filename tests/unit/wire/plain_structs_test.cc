// SPDX-License-Identifier: Apache-2.0
// scripts/plain-structs makes the structs and enums that flatc makes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace plexrl::wire {
namespace {

using Blocks = std::map<std::string, std::vector<std::string>>;

// Members of each `enum class` and fields of each struct whose name ends in T, as they are written.
Blocks blocks_of(const std::string& path) {
  std::ifstream file(path);
  Blocks blocks;
  std::vector<std::string>* block = nullptr;
  for (std::string line; std::getline(file, line);) {
    const bool begins = line.starts_with("enum class ") || line.starts_with("struct ");
    if (begins && line.ends_with("{")) {
      std::string name = line.substr(0, line.find_first_of("{:"));
      name.resize(name.find_last_not_of(' ') + 1);
      if (line.starts_with("enum") || name.ends_with("T")) block = &blocks[name];
    } else if (line == "};") {
      block = nullptr;
    } else if (block != nullptr && line.find('(') == std::string::npos &&
               line.find("typedef") == std::string::npos && line.starts_with("  ") &&
               !line.starts_with("   ") && line != "  }") {
      block->push_back(line);
    }
  }
  return blocks;
}

TEST(PlainStructs, AreThoseOfFlatc) {
  const std::string out =
      std::filesystem::temp_directory_path() / ("plain-structs-" + std::to_string(::getpid()));
  const std::string top = PLEXRL_TOP;
  const std::string schemas = top + "/libplexrl/wire/";
  const std::string command = "python3 " + top + "/scripts/plain-structs " + out + " " + schemas +
                              "ops.fbs " + schemas + "engine.fbs";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::size_t structs = 0;
  for (const std::string name : {"ops_generated.h", "engine_generated.h"}) {
    const Blocks plain = blocks_of(out + "/" + name);
    EXPECT_EQ(plain, blocks_of(std::string(PLEXRL_GENERATED "/") + name)) << name;
    structs += plain.size();
  }
  EXPECT_GT(structs, 40U);
  std::filesystem::remove_all(out);
}

}  // namespace
}  // namespace plexrl::wire
