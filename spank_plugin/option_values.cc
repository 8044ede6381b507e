// SPDX-License-Identifier: Apache-2.0
#include "option_values.h"

#include <array>

#include "guard.h"

namespace plexrl::spank {
namespace {

using slurm::kOptionCount;
using slurm::Option;

std::array<std::optional<std::string>, kOptionCount> g_values;

// A wrong value ends the command on the client. On the node the text is a grant, or forged, and
// nothing depends on it. Called twice in the slurmstepd of an srun step.
int on_option(int index, const char* argument, int remote) noexcept {
  return guarded("option", -1, [&] {
    const auto option = static_cast<Option>(index);
    const std::string value = argument != nullptr ? argument : "";
    if (remote == 0) {
      if (const Status status = slurm::check_option(option, value); !status.ok()) {
        slurm_error("plexrl: %s", status.text().c_str());
        return -1;
      }
    }
    g_values[static_cast<std::size_t>(index)] = value;
    return 0;
  });
}

// Slurm's fields are char *, though it only reads them.
spank_option slurm_row(const slurm::OptionRow& row) {
  return {const_cast<char*>(row.name),  const_cast<char*>(row.argument),
          const_cast<char*>(row.usage), 1,
          static_cast<int>(row.option), on_option};
}

}  // namespace

void register_options(spank_t spank) {
  for (const slurm::OptionRow& row : slurm::option_table()) {
    spank_option option = slurm_row(row);
    if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
      slurm_error("plexrl: cannot register --%s", row.name);
  }
}

const std::optional<std::string>& option_value(Option option) {
  return g_values[static_cast<std::size_t>(option)];
}

std::optional<std::string> job_pool_text(spank_t spank) {
  spank_option option = slurm_row(slurm::option_row(Option::kPool));
  char* text = nullptr;
  if (spank_option_getopt(spank, &option, &text) != ESPANK_SUCCESS) return std::nullopt;
  return text != nullptr ? text : "";
}

}  // namespace plexrl::spank
