// SPDX-License-Identifier: Apache-2.0
// The same as installed_client.c through plexrl.hpp.
#include <cstdio>
#include <plexrl/plexrl.hpp>

int main() {
  plexrl::ConnectOptions options;
  options.socket_path = "/nonexistent/plexrld.sock";
  options.token = "";
  options.timeout = std::chrono::milliseconds(50);
  try {
    (void)plexrl::Session::connect(options);
  } catch (const plexrl::Error& error) {
    std::printf("%s %s\n", plexrl_version(), plexrl_status_name(error.code()));
    return 0;
  }
  return 1;
}
