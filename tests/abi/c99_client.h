/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLEXRL_TESTS_ABI_C99_CLIENT_H
#define PLEXRL_TESTS_ABI_C99_CLIENT_H
#ifdef __cplusplus
extern "C" {
#endif
const char* c99_client_run(const char* socket);
#ifdef __cplusplus
}
#endif
#endif
