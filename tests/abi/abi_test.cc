// SPDX-License-Identifier: Apache-2.0
// libplexrl.so as installed programs see it: from C99, and by its symbol table.
#include <dlfcn.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "../fakes/fake_service.h"
#include "c99_client.h"
#include "plexrl/plexrl.h"

namespace plexrl {
namespace {

std::string read_all(const std::string& path) {
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> declared() {
  const std::string header = read_all(PLEXRL_SRCDIR "/libplexrl/include/plexrl/plexrl.h");
  const std::regex declaration("PLEXRL_API [^;(]*?(plexrl_[a-z_0-9]+)\\(");
  std::set<std::string> names;
  for (std::sregex_iterator it(header.begin(), header.end(), declaration), end; it != end; ++it)
    names.insert((*it)[1]);
  return names;
}

std::set<std::string> exported() {
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<const void*>(&plexrl_version), &info), 0);
  const std::string command = std::string("nm -D --defined-only '") + info.dli_fname + "'";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::set<std::string> names;
  char line[512];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
    std::istringstream words(line);
    std::string address, kind, name;
    words >> address >> kind >> name;
    if (kind != "A") names.insert(name.substr(0, name.find('@')));  // A: the version itself
  }
  if (pipe != nullptr) ::pclose(pipe);
  return names;
}

TEST(Abi, AC99ProgramWorks) {
  const fakes::FakeService service;
  const char* wrong = c99_client_run(service.socket().c_str());
  EXPECT_STREQ(wrong, nullptr);
}

TEST(Abi, ExactlyTheHeadersFunctionsAreExported) {
  const std::set<std::string> names = exported();
  EXPECT_GT(names.size(), 30U);
  EXPECT_EQ(names, declared());
}

// Sizes are ABI: a field may be added at the end only, and then this number changes knowingly.
TEST(Abi, SizesOfStructures) {
  EXPECT_EQ(sizeof(plexrl_error), 520U);
  EXPECT_EQ(sizeof(plexrl_connect_options), 40U);
  EXPECT_EQ(sizeof(plexrl_session_info), 64U);
  EXPECT_EQ(sizeof(plexrl_model_options), 48U);
  EXPECT_EQ(sizeof(plexrl_model_info), 104U);
  EXPECT_EQ(sizeof(plexrl_generate_options), 72U);
  EXPECT_EQ(sizeof(plexrl_datum), 48U);
  EXPECT_EQ(sizeof(plexrl_forward_backward_options), 64U);  // 56 before beta
  EXPECT_EQ(sizeof(plexrl_optim_options), 56U);
  EXPECT_EQ(sizeof(plexrl_timing), 40U);
  EXPECT_EQ(sizeof(plexrl_sequence), 32U);
  EXPECT_EQ(sizeof(plexrl_train_result), 56U);  // 48 before entropy_mean
  EXPECT_EQ(sizeof(plexrl_optim_result), 24U);
  EXPECT_EQ(sizeof(plexrl_save_result), 40U);
  EXPECT_EQ(sizeof(plexrl_lease_options), 48U);
}

// The table of libplexrl(3) is the list of errors.def.
TEST(ManPage, ErrorTableIsErrorsDef) {
  const std::string page = read_all(PLEXRL_SRCDIR "/man/libplexrl.3");
  std::string expected;
#define PLEXRL_ERROR(name, value, scope, text) \
  expected += ".It Dv PLEXRL_" #name " Pq " #value "\n" text "\n";
#include "base/errors.def"
#undef PLEXRL_ERROR
  EXPECT_NE(page.find(expected), std::string::npos) << "the table should read:\n" << expected;
}

TEST(ManPage, EveryFunctionIsNamed) {
  const std::string page = read_all(PLEXRL_SRCDIR "/man/libplexrl.3");
  for (const std::string& name : declared()) EXPECT_NE(page.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace plexrl
