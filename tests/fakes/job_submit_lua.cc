// SPDX-License-Identifier: Apache-2.0
#include "job_submit_lua.h"

extern "C" {

// Read by its name, as Slurm does.
std::uint32_t plugin_version = 0;

void fake_release(std::uint32_t release) { plugin_version = release; }

static int read_field(lua_State* lua) {
  lua_pushnil(lua);
  return 1;
}

void fake_push(lua_State* lua, const char* name, void* pointer) {
  lua_newtable(lua);
  lua_newtable(lua);
  lua_pushcfunction(lua, read_field);
  lua_setfield(lua, -2, "__index");
  lua_pushlightuserdata(lua, pointer);
  lua_setfield(lua, -2, name);
  lua_setmetatable(lua, -2);
}
}
