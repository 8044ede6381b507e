/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libplexrl: the C interface to the LLM service of a PlexRL pool node.
 *
 * A job that was submitted with --plexrl-pool finds its service in PLEXRL_SOCKET and PLEXRL_TOKEN;
 * plexrl_connect(NULL, ...) reads both. The job creates one or more models on the bases that its
 * grant names, and submits operations. An operation is a future: submit, poll, wait, cancel, then
 * read its result and free it.
 *
 * Threads: a session and everything made from it may be used from any thread; calls on one session
 * are serialised inside. A plexrl_op must not be freed while another thread waits for it.
 * Ownership: strings and arrays that a call returns belong to the object they were read from and
 * live until that object is freed. Arrays that the caller passes are copied before the call
 * returns. Errors: every fallible call returns a plexrl_status and, on failure, fills `err` (may be
 * NULL) with a text that says what happened and what to do. Outputs are set only on success.
 * Structures that the caller fills begin with `size` = sizeof(struct), so that fields can be added
 * at the end; a program built before they were goes on as it is.
 * Order: training operations (forward_backward, optim_step, save, load) of a model are executed
 * exactly once in the order of submission, also across a reconnect; sampling (generate, logprobs)
 * is unordered and names an immutable version of the weights.
 */
#ifndef PLEXRL_PLEXRL_H
#define PLEXRL_PLEXRL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLEXRL_API __attribute__((visibility("default")))
#ifdef __cplusplus
#define PLEXRL_NOEXCEPT noexcept
#else
#define PLEXRL_NOEXCEPT
#endif
#define PLEXRL_ABI_VERSION 1

/* Numbers are those of errors.def and never change. libplexrl(3) has the table. */
typedef enum plexrl_status {
  PLEXRL_OK = 0,
  PLEXRL_BUSY = 1,
  PLEXRL_TIMEOUT = 2,
  PLEXRL_UNAVAILABLE = 3,
  PLEXRL_CANCELLED = 4,
  PLEXRL_INVALID_ARGUMENT = 5,
  PLEXRL_NOT_FOUND = 6,
  PLEXRL_EXISTS = 7,
  PLEXRL_PERMISSION = 8,
  PLEXRL_TOO_LARGE = 9,
  PLEXRL_UNSUPPORTED = 10,
  PLEXRL_NO_CAPACITY = 11,
  PLEXRL_CORRUPT = 12,
  PLEXRL_IO = 13,
  PLEXRL_PROTOCOL = 14,
  PLEXRL_AUTH = 15,
  PLEXRL_LOST = 16,
  PLEXRL_ENGINE_DOWN = 17,
  PLEXRL_INTERNAL = 18
} plexrl_status;

typedef struct plexrl_error {
  plexrl_status code;
  uint32_t retry_after_ms; /* with BUSY and UNAVAILABLE; 0 = at will */
  char text[512];          /* always terminated */
} plexrl_error;

typedef struct plexrl_session plexrl_session;
typedef struct plexrl_model plexrl_model;
typedef struct plexrl_op plexrl_op;
typedef struct plexrl_lease plexrl_lease;
typedef struct plexrl_region plexrl_region;

PLEXRL_API uint32_t plexrl_abi_version(void) PLEXRL_NOEXCEPT;
PLEXRL_API const char* plexrl_version(void) PLEXRL_NOEXCEPT;                /* "0.1.0"; static */
PLEXRL_API const char* plexrl_status_name(plexrl_status s) PLEXRL_NOEXCEPT; /* "BUSY"; static */

/* ---- session ----------------------------------------------------------------------------------
 */

typedef struct plexrl_connect_options {
  size_t size;
  const char* socket_path; /* NULL: $PLEXRL_SOCKET */
  const char* token;       /* NULL: $PLEXRL_TOKEN; "": none (reading only) */
  const char* client_name; /* shown in `plexrl ops`; NULL: program name */
  int64_t timeout_ms;      /* for the connection and for each reconnect; <= 0: 30,000 */
} plexrl_connect_options;

/* Connects and authenticates. A lost connection (daemon restart) is re-established by itself within
 * timeout_ms per attempt; outstanding operations are submitted again under their old numbers, so
 * that nothing is executed twice. options may be NULL. Free with plexrl_disconnect. */
PLEXRL_API plexrl_status plexrl_connect(const plexrl_connect_options* options, plexrl_session** out,
                                        plexrl_error* err) PLEXRL_NOEXCEPT;
/* Ends the session; outstanding sampling is cancelled, accepted training goes on. NULL is allowed.
 */
PLEXRL_API void plexrl_disconnect(plexrl_session* session) PLEXRL_NOEXCEPT;

typedef struct plexrl_session_info {
  size_t size;
  uint32_t job_id;
  uint64_t tenant;
  const char* node;
  size_t base_count;
  const char* const* bases; /* names of base models in the grant */
  const char* train_mode;   /* "lora", "full", "none" */
  uint32_t lora_rank;
} plexrl_session_info;
PLEXRL_API plexrl_status plexrl_session_get_info(plexrl_session* session, plexrl_session_info* info,
                                                 plexrl_error* err) PLEXRL_NOEXCEPT;

/* ---- models -----------------------------------------------------------------------------------
 */

typedef struct plexrl_model_options {
  size_t size;
  const char* name;       /* the job's own name for it; the same name gives the same model again */
  const char* base;       /* NULL: the grant's first */
  const char* train_mode; /* NULL: the grant's */
  uint32_t lora_rank;     /* 0: the grant's */
  uint64_t seed;          /* LoRA initialisation */
} plexrl_model_options;

typedef struct plexrl_model_info {
  size_t size;
  uint64_t id;
  const char* name;
  const char* base;
  const char* train_mode;
  uint32_t lora_rank;
  uint32_t vocab_size;
  uint32_t max_positions;
  uint64_t parameters;
  uint64_t trainable_parameters;
  uint64_t step;           /* optimizer steps applied */
  uint64_t next_seq;       /* training operations accepted so far + 1 */
  uint64_t latest_version; /* newest published version; 0 = the base */
  const char* tokenizer;   /* JSON, see libplexrl(3) */
} plexrl_model_info;

/* Creates the model, or attaches to it when it exists (after a requeue, or from a second process).
 * Free the handle with plexrl_model_release; the model itself lives until the job ends. */
PLEXRL_API plexrl_status plexrl_model_create(plexrl_session* session,
                                             const plexrl_model_options* options,
                                             plexrl_model** out, plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API plexrl_status plexrl_model_get_info(plexrl_model* model, plexrl_model_info* info,
                                               plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API plexrl_status plexrl_model_delete(plexrl_model* model,
                                             plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API void plexrl_model_release(plexrl_model* model) PLEXRL_NOEXCEPT;

/* ---- operations: arguments --------------------------------------------------------------------
 */

typedef struct plexrl_tokens {
  const int32_t* data;
  size_t count;
} plexrl_tokens;
typedef struct plexrl_floats {
  const float* data;
  size_t count;
} plexrl_floats;

typedef struct plexrl_generate_options {
  size_t size;
  uint64_t version; /* 0 = the base without adapter */
  const plexrl_tokens* prompts;
  size_t prompt_count;
  uint32_t samples_per_prompt; /* rows: prompt p, sample s is row p * n + s */
  uint32_t max_new_tokens;
  float temperature; /* 0 = greedy */
  float top_p;       /* (0, 1]; 1 = off */
  uint64_t seed;     /* row r, new token i depends on (seed, r, i) only */
  const int32_t* stop_tokens;
  size_t stop_token_count;
} plexrl_generate_options;

/* A datum of a loss. All arrays have `count` elements; position i of tokens predicts
 * target_tokens[i]. cross_entropy reads weights; all others read logprobs (the sampler's) and
 * advantages. A position whose weight or advantage is 0 does not count: it adds nothing to the
 * loss, the gradients and the means. */
typedef struct plexrl_datum {
  size_t count;
  const int32_t* tokens;
  const int32_t* target_tokens;
  const float* weights;
  const float* logprobs;
  const float* advantages;
} plexrl_datum;

/* Sums over the positions that count, with logp of the target, q = logprobs, A = advantages and
 * r = exp(logp - q). */
typedef enum plexrl_loss {
  PLEXRL_LOSS_CROSS_ENTROPY = 0,       /* -sum(w * logp) */
  PLEXRL_LOSS_IMPORTANCE_SAMPLING = 1, /* -sum(exp(logp - q) * A) */
  PLEXRL_LOSS_PPO = 2,                 /* -sum(min(r * A, clip(r, low, high) * A)) */
  PLEXRL_LOSS_CISPO = 3, /* -sum(clip(r, low, high) * A * logp), the factor without a gradient */
  PLEXRL_LOSS_DRO = 4    /* -sum(A * logp - beta / 2 * (logp - q)^2) */
} plexrl_loss;

typedef struct plexrl_forward_backward_options {
  size_t size;
  plexrl_loss loss;
  const plexrl_datum* data;
  size_t datum_count;
  double clip_low;  /* ppo, cispo: absolute ratio; 0 with clip_high 0: 0.8 */
  double clip_high; /* 0 with clip_low 0: 1.2 */
  int forward_only; /* not 0: no gradients */
  /* dro: 0 or more; 0: 0.01. Without the term of beta the loss is cross_entropy with the advantages
   * as weights. */
  double beta;
} plexrl_forward_backward_options;

typedef struct plexrl_optim_options {
  size_t size;
  double learning_rate;
  double beta1, beta2, eps; /* all 0: 0.9, 0.95, 1e-8 */
  double weight_decay;
  double grad_clip_norm; /* global norm; 0 = none */
} plexrl_optim_options;

typedef enum plexrl_file_format {
  PLEXRL_FILE_CHECKPOINT = 0, /* weights, m, v and step; resumes bit for bit */
  PLEXRL_FILE_WEIGHTS = 1     /* Hugging Face tensors (full) or PEFT adapter (lora) */
} plexrl_file_format;

/* ---- operations: submit ------------------------------------------------------------------------
 */

PLEXRL_API plexrl_status plexrl_generate(plexrl_model* model,
                                         const plexrl_generate_options* options, plexrl_op** out,
                                         plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API plexrl_status plexrl_logprobs(plexrl_model* model, uint64_t version,
                                         const plexrl_tokens* sequences, size_t sequence_count,
                                         plexrl_op** out, plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API plexrl_status plexrl_forward_backward(plexrl_model* model,
                                                 const plexrl_forward_backward_options* options,
                                                 plexrl_op** out,
                                                 plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API plexrl_status plexrl_optim_step(plexrl_model* model, const plexrl_optim_options* options,
                                           plexrl_op** out, plexrl_error* err) PLEXRL_NOEXCEPT;
/* Publishes the weights as a new version for sampling; result: plexrl_save_result.version. */
PLEXRL_API plexrl_status plexrl_publish(plexrl_model* model, plexrl_op** out,
                                        plexrl_error* err) PLEXRL_NOEXCEPT;
/* Saves to the service's store of the job's user, under a name of [A-Za-z0-9._-]{1,64}. */
PLEXRL_API plexrl_status plexrl_save(plexrl_model* model, const char* name, plexrl_op** out,
                                     plexrl_error* err) PLEXRL_NOEXCEPT;
/* Saves to a file that the caller opened for writing. fd is duplicated. */
PLEXRL_API plexrl_status plexrl_save_fd(plexrl_model* model, int fd, plexrl_file_format format,
                                        plexrl_op** out, plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API plexrl_status plexrl_load(plexrl_model* model, const char* name, plexrl_op** out,
                                     plexrl_error* err) PLEXRL_NOEXCEPT;
/* Loads a PLEXRL_FILE_CHECKPOINT that the caller opened for reading; with_optimizer 0: weights
 * only. */
PLEXRL_API plexrl_status plexrl_load_fd(plexrl_model* model, int fd, int with_optimizer,
                                        plexrl_op** out, plexrl_error* err) PLEXRL_NOEXCEPT;

/* ---- operations: wait and read -----------------------------------------------------------------
 */

/* Does not block. *done = 1 when the operation ended (well or not). */
PLEXRL_API plexrl_status plexrl_op_poll(plexrl_op* op, int* done,
                                        plexrl_error* err) PLEXRL_NOEXCEPT;
/* Blocks until the end; timeout_ms < 0: no deadline. TIMEOUT leaves the operation running. Returns
 * the operation's own status otherwise. */
PLEXRL_API plexrl_status plexrl_op_wait(plexrl_op* op, int64_t timeout_ms,
                                        plexrl_error* err) PLEXRL_NOEXCEPT;
/* Asks to cancel; the operation then ends as CANCELLED unless it was faster. A training operation
 * can be cancelled only while it is queued. */
PLEXRL_API plexrl_status plexrl_op_cancel(plexrl_op* op, plexrl_error* err) PLEXRL_NOEXCEPT;
/* Why does it wait? One sentence from the daemon into text (terminated, at most capacity bytes). */
PLEXRL_API plexrl_status plexrl_op_explain(plexrl_op* op, char* text, size_t capacity,
                                           plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API void plexrl_op_free(plexrl_op* op) PLEXRL_NOEXCEPT;

typedef struct plexrl_timing {
  size_t size;
  uint64_t queued_ns;        /* accepted until first run */
  uint64_t other_tenants_ns; /* waited while others held the device group */
  uint64_t switch_ns;        /* waited for its own model to become resident */
  uint64_t run_ns;           /* computing */
} plexrl_timing;
PLEXRL_API plexrl_status plexrl_op_get_timing(plexrl_op* op, plexrl_timing* timing,
                                              plexrl_error* err) PLEXRL_NOEXCEPT;

typedef struct plexrl_sequence {
  const int32_t* tokens; /* new tokens; the stop token is the last one when finish_stop is 1 */
  const float* logprobs; /* of the sampled tokens, under temperature 1 and top_p 1 */
  size_t count;
  int finish_stop;
} plexrl_sequence;
/* Readers return INVALID_ARGUMENT for an operation of another kind, UNAVAILABLE while it runs, and
 * the operation's own error when it failed. */
PLEXRL_API plexrl_status plexrl_op_get_sequences(plexrl_op* op, const plexrl_sequence** sequences,
                                                 size_t* count, plexrl_error* err) PLEXRL_NOEXCEPT;
/* Rows of logprobs (count - 1 values each) and of forward_backward (one value per position). */
PLEXRL_API plexrl_status plexrl_op_get_rows(plexrl_op* op, const plexrl_floats** rows,
                                            size_t* count, plexrl_error* err) PLEXRL_NOEXCEPT;

typedef struct plexrl_train_result {
  size_t size;
  double loss_sum;
  uint64_t token_count;
  /* Means over the positions that count: of r (1 for cross_entropy); how many r are clipped (ppo:
   * without a gradient therefore; cispo: outside of the bounds); of q - logp; of the entropy of the
   * prediction, in nats. */
  double ratio_mean, clip_fraction, logprob_drop_mean;
  double entropy_mean;
} plexrl_train_result;
PLEXRL_API plexrl_status plexrl_op_get_train_result(plexrl_op* op, plexrl_train_result* result,
                                                    plexrl_error* err) PLEXRL_NOEXCEPT;

typedef struct plexrl_optim_result {
  size_t size;
  uint64_t step;
  double grad_norm;
} plexrl_optim_result;
PLEXRL_API plexrl_status plexrl_op_get_optim_result(plexrl_op* op, plexrl_optim_result* result,
                                                    plexrl_error* err) PLEXRL_NOEXCEPT;

/* Of publish, save and load. */
typedef struct plexrl_save_result {
  size_t size;
  uint64_t version; /* publish only */
  uint64_t step;
  uint64_t bytes;     /* save only */
  const char* sha256; /* hex, over weights, m, v and step in that order; "" for publish */
} plexrl_save_result;
PLEXRL_API plexrl_status plexrl_op_get_save_result(plexrl_op* op, plexrl_save_result* result,
                                                   plexrl_error* err) PLEXRL_NOEXCEPT;

/* ---- leases -----------------------------------------------------------------------------------
 *
 * For a job that brings its own engine: the device group for as long as the lease is held. A lease
 * is queued until it is its turn, held, and queued again after plexrl_lease_yield. While others
 * wait a cooperative holder is asked to yield when its slice is over; every holder is asked at the
 * limit. One that does not yield in time has its processes stopped, as has one that is stopped by a
 * signal. A lease has a connection of its own and ends when the process does.
 *
 *   plexrl_lease_acquire; plexrl_lease_wait
 *   loop: compute a step; if plexrl_lease_should_yield: plexrl_lease_yield; plexrl_lease_wait
 *   plexrl_lease_release
 *
 * Threads: any; calls on one lease are serialised. Not usable in a forked child. */

typedef struct plexrl_lease_options {
  size_t size;
  uint64_t device_bytes; /* what the process needs of the device; 0: all. Others' models that fit
                            beside it stay where they are */
  int64_t limit_ms;      /* longest hold in one go; <= 0 or above the site's: the site's */
  int cooperative;       /* 1: the process looks at plexrl_lease_should_yield and yields; 0: it is
                            asked at the limit only, and ends then */
  const int32_t* pids;   /* further processes, of the same user, that will use the device; with the
                            caller they and their descendants are the holder. At most 63 */
  size_t pid_count;
} plexrl_lease_options;

/* Asks for a lease on a connection of its own to the service of `session`, which may be freed
 * before the lease. Returns at once; the lease is queued. options may be NULL. NO_CAPACITY: the
 * device is smaller than device_bytes (told by plexrl_lease_wait). Free with plexrl_lease_release.
 */
PLEXRL_API plexrl_status plexrl_lease_acquire(plexrl_session* session,
                                              const plexrl_lease_options* options,
                                              plexrl_lease** out,
                                              plexrl_error* err) PLEXRL_NOEXCEPT;
/* Blocks until the lease is held and its regions are usable; timeout_ms < 0: no deadline. TIMEOUT
 * leaves it queued. LOST: plexrld has taken the device away meanwhile; the lease is over. */
PLEXRL_API plexrl_status plexrl_lease_wait(plexrl_lease* lease, int64_t timeout_ms,
                                           plexrl_error* err) PLEXRL_NOEXCEPT;
/* Does not block. *asked = 1 when the holder is asked to yield; *within_ms (may be NULL): the time
 * that is left for it. UNAVAILABLE while the lease is not held. */
PLEXRL_API plexrl_status plexrl_lease_should_yield(plexrl_lease* lease, int* asked,
                                                   int64_t* within_ms,
                                                   plexrl_error* err) PLEXRL_NOEXCEPT;
/* A descriptor that is readable when plexrl_lease_should_yield or plexrl_lease_wait may have
 * something new, for the caller's own poll loop. It belongs to the lease and changes when the
 * connection is re-established; -1 while it is lost. */
PLEXRL_API int plexrl_lease_fd(plexrl_lease* lease) PLEXRL_NOEXCEPT;
/* Suspends the regions, gives the device up and queues again. The caller has freed all other device
 * memory and its kernels have ended. Then plexrl_lease_wait. */
PLEXRL_API plexrl_status plexrl_lease_yield(plexrl_lease* lease, plexrl_error* err) PLEXRL_NOEXCEPT;
/* Why does it wait? One sentence into text (terminated, at most capacity bytes). */
PLEXRL_API plexrl_status plexrl_lease_explain(plexrl_lease* lease, char* text, size_t capacity,
                                              plexrl_error* err) PLEXRL_NOEXCEPT;
/* Gives the lease up, queued or held, and frees it with its regions. NULL is allowed. */
PLEXRL_API void plexrl_lease_release(plexrl_lease* lease) PLEXRL_NOEXCEPT;

/* Memory that keeps its address and contents over yields, usable only while the lease is held:
 * touching it at other times faults. While others have the device the contents are in host memory
 * that is charged to the job's grant. On the cpu backend it is ordinary memory of the process. */

/* Makes a region of `bytes`, rounded up to whole pages, filled with zeros. The lease must be held.
 * NO_CAPACITY: the grant's host memory has no room for it. Owned by the lease. */
PLEXRL_API plexrl_status plexrl_region_create(plexrl_lease* lease, uint64_t bytes,
                                              plexrl_region** out,
                                              plexrl_error* err) PLEXRL_NOEXCEPT;
/* The same in the memory of a GPU. plexrl_region_address is a device address then, whole chunks of
 * 2 MiB or more are taken, and what computes on it must have ended before a yield or a destroy.
 * `device`: as the CUDA driver counts them in this process. UNSUPPORTED: no usable driver;
 * NOT_FOUND: no such device; NO_CAPACITY: also when the device has no room. $PLEXRL_CUDA_LIBRARY:
 * another driver library than libcuda.so.1. */
PLEXRL_API plexrl_status plexrl_region_create_cuda(plexrl_lease* lease, uint64_t bytes, int device,
                                                   plexrl_region** out,
                                                   plexrl_error* err) PLEXRL_NOEXCEPT;
/* The address does not change while the region lives. */
PLEXRL_API void* plexrl_region_address(plexrl_region* region) PLEXRL_NOEXCEPT;
PLEXRL_API uint64_t plexrl_region_bytes(plexrl_region* region) PLEXRL_NOEXCEPT;
/* In any state of its lease. NULL is allowed. */
PLEXRL_API plexrl_status plexrl_region_destroy(plexrl_region* region,
                                               plexrl_error* err) PLEXRL_NOEXCEPT;

/* ---- service -----------------------------------------------------------------------------------
 */

/* "status", "jobs", "ops", "report" (with job_id), "metrics", "profiles": one JSON document. What
 * is shown depends on the caller's uid. Free *json with plexrl_string_free. */
PLEXRL_API plexrl_status plexrl_query(plexrl_session* session, const char* kind, uint32_t job_id,
                                      char** json, plexrl_error* err) PLEXRL_NOEXCEPT;
PLEXRL_API void plexrl_string_free(char* string) PLEXRL_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
