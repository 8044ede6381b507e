// SPDX-License-Identifier: Apache-2.0
// plexrl(1) against the real options, both ways. In the manual each command that can be run has a
// subsection of its name, and an option is an item `.It Fl -NAME`; those of "Common options" may be
// left out of the commands' own lists.
#include <gtest/gtest.h>

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

OptionTable documented_options() {
  std::ifstream file(PLEXRL_SOURCE_DIR "/man/plexrl.1");
  EXPECT_TRUE(file.good());
  OptionTable table;
  std::string line, section;
  while (std::getline(file, line)) {
    const std::string subsection = ".Ss ", item = ".It Fl -";
    if (line.starts_with(".Sh ")) section.clear();
    if (line.starts_with(subsection)) {
      section = line.substr(subsection.size());
      table[section];
    }
    if (line.starts_with(item))
      table[section].insert(line.substr(item.size(), line.find(' ', item.size()) - item.size()));
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
