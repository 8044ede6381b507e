// SPDX-License-Identifier: Apache-2.0
// The module of a site's job_submit.lua, loaded by Lua 5.1 and called by a script as in the manual.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/job_submit_lua.h"
#include "hook_cases.h"

extern "C" {
#include <lauxlib.h>
#include <lualib.h>
}

namespace plexrl::job_submit {
namespace {

using ::testing::HasSubstr;

const bool kSite = (use_cases_site(), true);

constexpr const char* kScript = R"(
local plexrl = require "plexrl"
function slurm_job_submit(job_desc, part_list, submit_uid)
  return plexrl.job_submit(job_desc, submit_uid)
end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return plexrl.job_modify(job_desc, job_rec, modify_uid)
end
)";

class LuaModule : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kSite);
    fake_release(SLURM_VERSION_NUMBER);
    lua_ = luaL_newstate();
    luaL_openlibs(lua_);
    run("package.cpath = '" PLEXRL_LUA_MODULE "'");
    run(kScript);
  }
  void TearDown() override { lua_close(lua_); }

  void run(const char* script) {
    ASSERT_EQ(luaL_dostring(lua_, script), 0) << lua_tostring(lua_, -1);
  }

  // Calls the function on the stack with its arguments, as Slurm does.
  HookAnswer call(int arguments) {
    if (lua_pcall(lua_, arguments, 2, 0) != 0) {
      ADD_FAILURE() << "an error that Slurm takes for consent: " << lua_tostring(lua_, -1);
      return {};
    }
    HookAnswer answer{static_cast<int>(lua_tointeger(lua_, -2)), ""};
    if (lua_isstring(lua_, -1) != 0) answer.text = lua_tostring(lua_, -1);
    lua_settop(lua_, 0);
    return answer;
  }

  HookAnswer submit(Description& job, std::uint32_t uid) {
    lua_getglobal(lua_, "slurm_job_submit");
    fake_push(lua_, "_job_desc", &job.d);
    lua_newtable(lua_);
    lua_pushnumber(lua_, uid);
    return call(3);
  }
  HookAnswer modify(Description& change, Description& job, std::uint32_t uid) {
    lua_getglobal(lua_, "slurm_job_modify");
    fake_push(lua_, "_job_desc", &change.d);
    fake_push(lua_, "_job_rec_ptr", &job);
    lua_newtable(lua_);
    lua_pushnumber(lua_, uid);
    return call(4);
  }

  lua_State* lua_ = nullptr;
};

TEST_F(LuaModule, DoesWhatTheTableSays) {
  check_submissions([this](Description& job, std::uint32_t uid) { return submit(job, uid); });
}

TEST_F(LuaModule, AllowsTheChangesOfTheTable) {
  check_changes([this](Description& change, Description& job,
                       std::uint32_t uid) { return modify(change, job, uid); },
                true);
}

// The structure may be another one: nothing of it is read or changed.
TEST_F(LuaModule, RefusesAnotherReleaseOfSlurm) {
  fake_release(SLURM_VERSION_NUMBER + 1);
  Description job, none;
  const HookAnswer answer = submit(job, 1);
  EXPECT_NE(answer.code, SLURM_SUCCESS);
  EXPECT_THAT(answer.text, HasSubstr("build it again"));
  EXPECT_NE(modify(none, job, 1).code, SLURM_SUCCESS);
}

TEST_F(LuaModule, AnswersCallsThatMakeNoSense) {
  for (const char* arguments : {"", "1, 2", "{}, 1", "setmetatable({}, {}), 1", "nil, nil, nil",
                                "setmetatable({}, {_job_desc = 1}), 1"})
    for (const char* function : {"job_submit", "job_modify"}) {
      const std::string script =
          std::string("return require 'plexrl'.") + function + "(" + arguments + ")";
      ASSERT_EQ(luaL_loadstring(lua_, script.c_str()), 0);
      const HookAnswer answer = call(0);
      EXPECT_NE(answer.code, SLURM_SUCCESS) << script;
      EXPECT_THAT(answer.text, HasSubstr("job_submit.lua must call")) << script;
    }
  for (const char* uid : {"nil", "-1", "'x'", "5e9", "0/0"}) {
    Description job;
    fake_push(lua_, "_job_desc", &job.d);
    lua_setglobal(lua_, "job");
    const std::string script = std::string("return require 'plexrl'.job_submit(job, ") + uid + ")";
    ASSERT_EQ(luaL_loadstring(lua_, script.c_str()), 0);
    EXPECT_NE(call(0).code, SLURM_SUCCESS) << uid;
  }
}

}  // namespace
}  // namespace plexrl::job_submit
