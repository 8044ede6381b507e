/* SPDX-License-Identifier: Apache-2.0 */
/* A C99 program's use of plexrl.h from connect to disconnect. Returns NULL, or what went wrong. */
#include "c99_client.h"

#include <plexrl/plexrl.h>
#include <stdio.h>
#include <string.h>

#define REQUIRE(condition)               \
  do {                                   \
    if (!(condition)) return #condition; \
  } while (0)

static const char* generate(plexrl_model* model) {
  const int32_t prompt[] = {4, 5};
  plexrl_tokens prompts;
  plexrl_generate_options options;
  plexrl_op* op = NULL;
  plexrl_error err;
  const plexrl_sequence* sequences = NULL;
  size_t count = 0;
  int done = 0;
  prompts.data = prompt;
  prompts.count = 2;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.prompts = &prompts;
  options.prompt_count = 1;
  options.samples_per_prompt = 1;
  options.max_new_tokens = 4;
  options.top_p = 1.0f;
  REQUIRE(plexrl_generate(model, &options, &op, &err) == PLEXRL_OK);
  REQUIRE(plexrl_op_wait(op, 5000, &err) == PLEXRL_OK);
  REQUIRE(plexrl_op_poll(op, &done, NULL) == PLEXRL_OK && done == 1);
  REQUIRE(plexrl_op_get_sequences(op, &sequences, &count, &err) == PLEXRL_OK);
  REQUIRE(count == 1 && sequences[0].count == 2 && sequences[0].tokens[1] == 5);
  plexrl_op_free(op);
  return NULL;
}

static const char* train(plexrl_model* model) {
  const int32_t tokens[] = {1};
  const float weights[] = {1.0f};
  plexrl_datum datum;
  plexrl_forward_backward_options options;
  plexrl_train_result result;
  plexrl_op* op = NULL;
  plexrl_error err;
  memset(&datum, 0, sizeof datum);
  memset(&options, 0, sizeof options);
  datum.count = 1;
  datum.tokens = datum.target_tokens = tokens;
  datum.weights = weights;
  options.size = sizeof options;
  options.data = &datum;
  options.datum_count = 1;
  REQUIRE(plexrl_forward_backward(model, &options, &op, &err) == PLEXRL_OK);
  REQUIRE(plexrl_op_wait(op, -1, &err) == PLEXRL_OK);
  result.size = sizeof result;
  REQUIRE(plexrl_op_get_train_result(op, &result, &err) == PLEXRL_OK);
  REQUIRE(result.loss_sum == 2.5);
  plexrl_op_free(op);
  return NULL;
}

static const char* misuse(plexrl_session* session, plexrl_model* model) {
  plexrl_error err;
  plexrl_op* op = NULL;
  plexrl_session_info info;
  memset(&err, 0, sizeof err);
  memset(&info, 0, sizeof info);
  REQUIRE(plexrl_generate(model, NULL, &op, &err) == PLEXRL_INVALID_ARGUMENT && op == NULL);
  REQUIRE(strcmp(err.text, "plexrl_generate_options is NULL") == 0);
  REQUIRE(plexrl_generate(NULL, NULL, &op, NULL) == PLEXRL_INVALID_ARGUMENT);
  REQUIRE(plexrl_session_get_info(session, &info, &err) == PLEXRL_INVALID_ARGUMENT);
  REQUIRE(plexrl_op_wait(NULL, 0, &err) == PLEXRL_INVALID_ARGUMENT);
  REQUIRE(plexrl_save(model, "../passwd", &op, &err) == PLEXRL_INVALID_ARGUMENT);
  plexrl_disconnect(NULL);
  plexrl_model_release(NULL);
  plexrl_op_free(NULL);
  plexrl_string_free(NULL);
  return NULL;
}

const char* c99_client_run(const char* socket) {
  plexrl_connect_options options;
  plexrl_model_options wanted;
  plexrl_session* session = NULL;
  plexrl_model* model = NULL;
  plexrl_error err;
  char* json = NULL;
  const char* wrong = NULL;
  memset(&options, 0, sizeof options);
  memset(&wanted, 0, sizeof wanted);
  options.size = sizeof options;
  options.socket_path = socket;
  options.token = "";
  options.timeout_ms = 5000;
  wanted.size = sizeof wanted;
  wanted.name = "policy";
  REQUIRE(plexrl_abi_version() == PLEXRL_ABI_VERSION);
  REQUIRE(strcmp(plexrl_status_name(PLEXRL_LOST), "LOST") == 0);
  REQUIRE(plexrl_connect(&options, &session, &err) == PLEXRL_OK);
  REQUIRE(plexrl_model_create(session, &wanted, &model, &err) == PLEXRL_OK);
  wrong = generate(model);
  if (wrong == NULL) wrong = train(model);
  if (wrong == NULL) wrong = misuse(session, model);
  REQUIRE(wrong != NULL || plexrl_query(session, "status", 0, &json, &err) == PLEXRL_OK);
  plexrl_string_free(json);
  plexrl_model_release(model);
  plexrl_disconnect(session);
  return wrong;
}
