// SPDX-License-Identifier: Apache-2.0
// plexrl.so, a Lua 5.1 module for a site's job_submit.lua: `plexrl.job_submit(job_desc,
// submit_uid)` and `plexrl.job_modify(job_desc, job_rec, modify_uid)` do what
// job_submit_plexrl.so does, and return an error number of Slurm and a text (or nil).
//
// What the script holds is a table whose metatable knows Slurm's own structure. The module changes
// that: the grant goes into spank_job_env, which Slurm's Lua lets nobody write. So it must be built
// for the very release that runs, as the native plugin; which one that is, Slurm's Lua plugin says.
//
// Slurm lets a job pass when the script ends with an error, so nothing here raises one: a call that
// makes no sense is answered with an error number. Lua leaves a function by longjmp when it has no
// memory; no C++ object is alive where that can happen.
#include <dlfcn.h>

#include <cstdio>

#include "guard.h"
#include "hook.h"

extern "C" {
#include <lauxlib.h>
#include <lua.h>
}

namespace {

constexpr std::uint32_t kBuiltFor = SLURM_VERSION_NUMBER;

struct Reply {
  int code = SLURM_ERROR;
  char text[2048] = "";
};

void say(Reply* reply, const char* text) {
  std::snprintf(reply->text, sizeof reply->text, "plexrl: %s", text);
}

int give(lua_State* lua, const Reply& reply) {
  lua_pushinteger(lua, reply.code);
  if (reply.text[0] != '\0')
    lua_pushstring(lua, reply.text);
  else
    lua_pushnil(lua);
  return 2;
}

// The structure behind argument `index`, or null; `reader` is the function that reads its fields.
void* behind(lua_State* lua, int index, const char* name, lua_CFunction* reader) {
  void* found = nullptr;
  if (lua_getmetatable(lua, index) == 0) return nullptr;
  lua_pushstring(lua, name);
  lua_rawget(lua, -2);
  if (lua_islightuserdata(lua, -1)) found = lua_touserdata(lua, -1);
  lua_pushstring(lua, "__index");
  lua_rawget(lua, -3);
  *reader = lua_tocfunction(lua, -1);
  lua_pop(lua, 3);
  return found;
}

// The release of the plugin that this function is of; 0 when it does not say.
std::uint32_t release_of(lua_CFunction reader) {
  Dl_info info{};
  if (reader == nullptr || ::dladdr(reinterpret_cast<void*>(reader), &info) == 0) return 0;
  void* const plugin = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (plugin == nullptr) return 0;
  const auto* const version = static_cast<const std::uint32_t*>(::dlsym(plugin, "plugin_version"));
  const std::uint32_t release = version != nullptr ? *version : 0;
  ::dlclose(plugin);
  return release;
}

bool right_release(lua_CFunction reader, Reply* reply) {
  const std::uint32_t runs = release_of(reader);
  if (runs == kBuiltFor) return true;
  std::snprintf(reply->text, sizeof reply->text,
                "plexrl: the Lua module is for Slurm %u.%02u.%u, and Slurm's Lua plugin is of "
                "%u.%02u.%u: ask your administrator to build it again",
                kBuiltFor >> 16, kBuiltFor >> 8 & 255, kBuiltFor & 255, runs >> 16, runs >> 8 & 255,
                runs & 255);
  return false;
}

bool read_uid(lua_State* lua, int index, std::uint32_t* uid) {
  if (lua_type(lua, index) != LUA_TNUMBER) return false;
  const lua_Number number = lua_tonumber(lua, index);
  if (!(number >= 0 && number <= 4294967295.0)) return false;
  *uid = static_cast<std::uint32_t>(number);
  return true;
}

template <class Decide>
void answer(Reply* reply, Decide decide) noexcept {
  const plexrl::job_submit::Answer said = decide();
  reply->code = said.code;
  std::snprintf(reply->text, sizeof reply->text, "%s", said.text.c_str());
}

// The script logs an unset text as "nil" otherwise, and a user would learn nothing.
void fill(Reply* reply) {
  if (reply->code != SLURM_SUCCESS && reply->text[0] == '\0')
    say(reply, "internal error, see the log of slurmctld");
}

extern "C" int call_submit(lua_State* lua) {
  Reply reply;
  lua_CFunction reader = nullptr;
  std::uint32_t uid = 0;
  auto* const description = static_cast<job_desc_msg_t*>(behind(lua, 1, "_job_desc", &reader));
  if (description == nullptr || !read_uid(lua, 2, &uid))
    say(&reply, "job_submit.lua must call job_submit(job_desc, submit_uid)");
  else if (right_release(reader, &reply))
    answer(&reply, [&] { return plexrl::job_submit::submit(description, uid); });
  fill(&reply);
  return give(lua, reply);
}

extern "C" int call_modify(lua_State* lua) {
  Reply reply;
  lua_CFunction reader = nullptr, record_reader = nullptr;
  std::uint32_t uid = 0;
  auto* const description = static_cast<job_desc_msg_t*>(behind(lua, 1, "_job_desc", &reader));
  auto* const record = static_cast<job_record*>(behind(lua, 2, "_job_rec_ptr", &record_reader));
  if (description == nullptr || record == nullptr || !read_uid(lua, 3, &uid))
    say(&reply, "job_submit.lua must call job_modify(job_desc, job_rec, modify_uid)");
  else if (right_release(reader, &reply))
    answer(&reply, [&] { return plexrl::job_submit::modify(description, record, uid); });
  fill(&reply);
  return give(lua, reply);
}

const luaL_Reg kFunctions[] = {
    {"job_submit", call_submit}, {"job_modify", call_modify}, {nullptr, nullptr}};

}  // namespace

extern "C" int luaopen_plexrl(lua_State* lua) {
  plexrl::job_submit::begin();
  luaL_register(lua, "plexrl", kFunctions);
  return 1;
}
