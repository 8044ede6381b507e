/* SPDX-License-Identifier: Apache-2.0 */
/* What a user's C99 program needs of an installed libplexrl: the header and the library. Prints the
 * version and what connecting to a socket that does not exist says. */
#include <plexrl/plexrl.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  plexrl_connect_options options;
  plexrl_session* session = NULL;
  plexrl_error err;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.socket_path = "/nonexistent/plexrld.sock";
  options.token = "";
  options.timeout_ms = 50;
  (void)plexrl_connect(&options, &session, &err);
  printf("%s %s\n", plexrl_version(), plexrl_status_name(err.code));
  return session == NULL && plexrl_abi_version() == PLEXRL_ABI_VERSION ? 0 : 1;
}
