// SPDX-License-Identifier: Apache-2.0
// plexrl(1) and the pages of single commands against the real options, both ways. In plexrl(1) each
// command that can be run has a subsection of its name, and an option is an item `.It Fl -NAME`;
// those of "Common options" may be left out of the commands' own lists. In plexrl-NAME(1), which
// takes the options of NAME out of plexrl(1), all subsections are about NAME, but for those called
// "NAME PART".
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "cli/commands.h"

namespace plexrl::cli {
namespace {

using Names = std::set<std::string>;
using OptionTable = std::map<std::string, Names>;  // by command, "config check"

void collect(CLI::App& app, const std::string& path, OptionTable& table) {
  const auto children = app.get_subcommands([](CLI::App*) { return true; });
  for (CLI::App* child : children)
    collect(*child, path.empty() ? child->get_name() : path + " " + child->get_name(), table);
  Names names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (name != "help" && name != "version") names.insert(name);
  // A command that has parts can be run by itself when it has options of its own.
  if (children.empty() || !names.empty()) table[path] = names;
}

OptionTable real_options() {
  CLI::App app;
  Run chosen;
  add_commands(app, chosen);
  OptionTable table;
  collect(app, "", table);
  return table;
}

// `command`: that the page is about; "" for all of them.
void read_page(const std::filesystem::path& path, const std::string& command, OptionTable& table) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::string line, section = command;
  while (std::getline(file, line)) {
    const std::string subsection = ".Ss ", item = ".It Fl -";
    if (line.starts_with(".Sh ")) section = command;
    if (line.starts_with(subsection)) {
      const std::string title = line.substr(subsection.size());
      section = command.empty() || title.starts_with(command + " ") ? title : command;
      if (section != command) table[section];
    }
    if (line.starts_with(item))
      table[section].insert(line.substr(item.size(), line.find(' ', item.size()) - item.size()));
  }
}

OptionTable documented_options() {
  const std::filesystem::path directory = PLEXRL_SOURCE_DIR "/man";
  OptionTable table;
  read_page(directory / "plexrl.1", "", table);
  const OptionTable real = real_options();
  for (const auto& [command, names] : real) {
    const std::string group = command.substr(0, command.find(' '));
    const auto page = directory / ("plexrl-" + group + ".1");
    if (!std::filesystem::exists(page)) continue;
    read_page(page, group, table);
    // Of commands that only have parts plexrl(1) just says where these are told.
    if (!real.contains(group) && table[group].empty()) table.erase(group);
  }
  return table;
}

constexpr const char* kCommon = "Common options";

TEST(Manual, HasEveryCommandAndNoOther) {
  const OptionTable real = real_options();
  const OptionTable documented = documented_options();
  for (const auto& [command, names] : real) EXPECT_TRUE(documented.contains(command)) << command;
  for (const auto& [command, names] : documented)
    EXPECT_TRUE(real.contains(command) || command == kCommon) << command;
}

TEST(Manual, DocumentsEveryOption) {
  OptionTable documented = documented_options();
  for (const auto& [command, names] : real_options())
    for (const std::string& name : names)
      EXPECT_TRUE(documented[command].contains(name) || documented[kCommon].contains(name))
          << command << " --" << name;
}

TEST(Manual, DocumentsNothingThatIsNotThere) {
  OptionTable real = real_options();
  OptionTable documented = documented_options();
  for (const auto& [command, names] : documented)
    for (const std::string& name : names)
      EXPECT_TRUE(command == kCommon || real[command].contains(name)) << command << " --" << name;
  for (const std::string& name : documented[kCommon]) {
    const bool used = name == "help" || name == "version" ||
                      std::any_of(real.begin(), real.end(),
                                  [&](const auto& entry) { return entry.second.contains(name); });
    EXPECT_TRUE(used) << "--" << name;
  }
}

}  // namespace
}  // namespace plexrl::cli
