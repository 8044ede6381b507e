// SPDX-License-Identifier: Apache-2.0
// plexrl-sim(5) against the tables of keys and a result, both ways for the keys.
#include <fstream>
#include <set>
#include <sstream>

#include "sim/study.h"
#include "sim/workload_keys.h"
#include "unit/sim/sim_fixture.h"

namespace plexrl::sim {
namespace {

using Names = std::set<std::string>;

// The items of each section or subsection.
std::map<std::string, Names> documented() {
  std::ifstream file(PLEXRL_SOURCE_DIR "/man/plexrl-sim.5");
  EXPECT_TRUE(file.good());
  std::map<std::string, Names> items;
  std::string line, section;
  while (std::getline(file, line)) {
    if (line.starts_with(".Sh ") || line.starts_with(".Ss ")) section = line.substr(4);
    if (!line.starts_with(".It Cm ")) continue;
    std::istringstream words(line.substr(7));
    for (std::string word; words >> word;)
      if (word != ",") items[section].insert(word);
  }
  return items;
}

template <class Section>
Names names_of(std::span<const WorkloadKey<Section>> keys) {
  Names names;
  for (const auto& key : keys) names.insert(key.name);
  return names;
}

TEST(SimManual, HasEveryKeyOfAWorkloadAndNoOther) {
  auto items = documented();
  Names top = names_of(workload_keys());
  for (const char* list : {"pools", "jobs", "published", "sensitivity"}) top.insert(list);
  EXPECT_EQ(items["Top level"], top);
  EXPECT_EQ(items["pools"], names_of(pool_keys()));
  EXPECT_EQ(items["jobs"], names_of(job_keys()));
  EXPECT_EQ(items["published"], names_of(published_keys()));
  EXPECT_EQ(items["sensitivity"], names_of(sensitivity_keys()));
}

TEST(SimManual, HasEveryKeyOfAResultAndNoOther) {
  Workload workload = small_workload(6);
  workload.loads = {1.5};
  workload.published.push_back({"device_hours_saved.split-async", 0.3, "a test"});
  StudyOptions options;
  options.compare = {"pack"};
  const auto result = study(workload, options);
  ASSERT_TRUE(result) << result.error().to_string();
  Names keys;
  for (const auto& [key, value] : result->items()) keys.insert(key);
  EXPECT_EQ(documented()["RESULT"], keys);
}

}  // namespace
}  // namespace plexrl::sim
