// SPDX-License-Identifier: Apache-2.0
// Stands for Slurm's job_submit_lua.so: hands a script tables whose metatables know the structure.
// A shared object of its own, as the real one is.
#pragma once

#include <cstdint>

extern "C" {
#include <lua.h>

// As SLURM_VERSION_NUMBER.
void fake_release(std::uint32_t release);
// A table on the stack whose metatable holds `pointer` under `name`.
void fake_push(lua_State* lua, const char* name, void* pointer);
}
