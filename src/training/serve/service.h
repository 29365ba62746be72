// SPDX-License-Identifier: Apache-2.0
// An inference engine in a thread of its own, and the requests it works on. A job is one request:
// its prompts, their texts as they grow, and the answer as JSON, whole or as a stream of events.
// Any thread may submit jobs and read their answers: that thread encodes the prompts and writes the
// JSON, so neither delays the engine or others. The memory of all requests is bounded.
#pragma once

#include "distill/lesson.h"
#include "runtime/inference.h"
#include "serve/chat_template.h"
#include "tokenizer/special_tokens.h"

typedef struct ot_service ot_service;
typedef struct ot_job ot_job;

typedef struct ot_service_options {
  ot_runtime *runtime;            // for an engine; kept
  const ot_tokenizer *tokenizer;  // kept
  const ot_chat_template *chat;   // or null: chats are refused
  const char *model;              // name in answers; kept
  ot_teacher *teacher;            // for runs that learn from it, or null; kept
  ot_lesson_facts facts;          // about it
  int64_t positions;              // tokens of a prompt and its text at most
  int64_t most_waiting;           // sequences that wait, at most
  int64_t memory_bytes;           // of all requests together, at most
  double timeout_s;               // of a request
  double comment_s;               // > 0; a stream without an event for so long has a comment
} ot_service_options;

ot_status ot_service_create(const ot_service_options *options, ot_service **out);
// Ends all jobs, with errors as answers, and takes no more. Waits a moment for their owners to read
// those.
void ot_service_stop(ot_service *service);
// Stops it; all jobs must have been released.
void ot_service_destroy(ot_service **service);

const ot_service_options *ot_service_options_of(const ot_service *service);
// OT_USAGE, for the client: without a teacher.
ot_status ot_service_check_teacher(const ot_service_options *options);

// Reserves memory for `bytes` of a request or an answer, until they are returned. With a message
// for the sender OT_USAGE: more than all, or OT_ENVIRONMENT: others have too much now.
ot_status ot_service_reserve(ot_service *service, int64_t bytes);
void ot_service_return(ot_service *service, int64_t bytes);

// Blocks until this thread alone may read and encode the text of a request of `bytes`; it has the
// encoder until it leaves with the same `bytes`. Long texts do not delay short ones.
ot_encoder *ot_service_enter(ot_service *service, int64_t bytes);
void ot_service_leave(ot_service *service, int64_t bytes);

// Who waits for a job.
typedef struct ot_job_owner {
  bool (*is_gone)(void *context);  // by the engine's thread, while the owner is blocked: no client
                                   // waits any more
  void *context;
} ot_job_owner;

// Reads the body of a request, reserves its memory and queues it. OT_USAGE: the request is wrong,
// or too large for this server; `busy`, with OT_ENVIRONMENT: too many wait, or have memory. The
// message is for the sender. The owner must release the job.
ot_status ot_service_submit(ot_service *service, const ot_request_body *body,
                            const ot_job_owner *owner, bool *busy, ot_job **out);

// An answer is read by one thread.
bool ot_job_streams(const ot_job *job);

// Blocks until the whole answer is there; returns its HTTP status. `body` [length]: all of it,
// until the job is released, or null if it is long and has to be read in parts.
int ot_job_await(ot_job *job, const char **body, int64_t *length);

// Moves up to `most` bytes of the answer to `to`; returns their number, 0 at its end. Blocks until
// there are some, in a stream for comment_s at most.
int64_t ot_job_read(ot_job *job, char *to, int64_t most);

// The owner is gone: cancels what is not done.
void ot_job_release(ot_job **job);

// Counts since the start.
typedef struct ot_service_counts {
  ot_inference_counts engine;
  int64_t submitted, refused, finished, cancelled, failed;  // requests
  int64_t first_tokens;                                     // texts that have begun
  double first_token_s;                                     // sum of their waits
} ot_service_counts;

ot_service_counts ot_service_count(ot_service *service);
