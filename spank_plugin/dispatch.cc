// SPDX-License-Identifier: Apache-2.0
// spank_plexrl.so: the hooks that Slurm calls. None throws, and none fails but those of the client;
// a failure elsewhere drains nodes or leaves jobs running.
#include "contexts.h"
#include "guard.h"
#include "option_values.h"

SPANK_PLUGIN(plexrl, 1)

using namespace plexrl;  // NOLINT: entry points only

namespace {

bool is_client(spank_context_t context) {
  return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

// Runs a hook of the node with the plugin's arguments; a mistake in them is logged.
template <class Hook>
int node_hook(const char* name, spank_t handle, int argc, char** argv, Hook hook) noexcept {
  return guarded(name, 0, [&] {
    const auto args = spank::parse_plugin_args(argc, argv);
    if (args)
      hook(handle, *args);
    else
      slurm_error("plexrl: %s", args.error().text().c_str());
    return 0;
  });
}

}  // namespace

extern "C" {

int slurm_spank_init(spank_t handle, int, char**) {
  return guarded("init", 0, [&] {
    const spank_context_t context = spank_context();
    if (context == S_CTX_SLURMD) return 0;
    spank::register_options(handle);
    if (is_client(context)) spank::client_init(context);
    return 0;
  });
}

int slurm_spank_job_prolog(spank_t handle, int argc, char** argv) {
  return node_hook("job_prolog", handle, argc, argv, spank::job_prolog);
}

int slurm_spank_job_epilog(spank_t handle, int argc, char** argv) {
  return node_hook("job_epilog", handle, argc, argv, spank::job_epilog);
}

int slurm_spank_task_init_privileged(spank_t handle, int argc, char** argv) {
  return guarded("task_init_privileged", -1, [&] {
    spank::task_init_privileged(handle, spank::parse_plugin_args(argc, argv));
    return 0;
  });
}

}  // extern "C"
