// SPDX-License-Identifier: Apache-2.0
// Slurm's plugin interface for C++. The hook prototypes of <slurm/spank.h> lie outside its own
// extern "C", and SPANK_PLUGIN defines const objects, which C++ would keep internal.
#pragma once

#include <cstdint>

extern "C" {
#include <slurm/spank.h>
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
}
