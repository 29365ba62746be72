// SPDX-License-Identifier: Apache-2.0
// A request while the service works on it, and the service itself. Three kinds of threads use a
// job: the one that submits it, before the engine's knows it; the engine's, until it is done; and
// the reader's, which owns `reader` and writes the answer from what the others have left.
#pragma once

#include <pthread.h>

#include "base/json_writer.h"
#include "host/heap.h"
#include "serve/service.h"

// One token of an answer with log-probabilities.
typedef struct ot_token_record {
  int32_t token;
  int num_top;
  int64_t text_offset;         // in the text of the choice
  double logprob;              // NaN: none
  const ot_scored_token *top;  // [num_top]
} ot_token_record;

// A list that grows in the arena of its job. What a copy of it refers to never moves.
typedef struct ot_record_list {
  int64_t count, capacity;
  ot_token_record *of;  // [count]
} ot_record_list;

// A prompt. Its text and its scores are the same for all choices, which share them.
typedef struct ot_job_prompt {
  ot_token_list ids;
  ot_buffer echo;  // its text, if that is wanted
  int64_t offset;  // in that text, of the next token to be scored
  ot_record_list scores;
} ot_job_prompt;

typedef struct ot_choice {
  ot_job *job;
  int prompt;             // index
  ot_sequence *sequence;  // null: not begun, or ended
  ot_text_stream text;    // generated
  int64_t num_tokens;     // generated
  ot_record_list made;    // of generated tokens, when log-probabilities are wanted
  int64_t num_events, events_capacity;
  int64_t *events;  // [num_events] of a stream: bytes of the text after each generated token
  bool ended;
  ot_finish finish;
  // The part that the reader has written into events.
  int64_t events_read, text_read, made_read;
  bool begun, closed;
} ot_choice;

// Where the reader is in the answer. A piece is what it has written and not passed on.
typedef struct ot_answer_reader {
  ot_heap heap;  // of the piece
  ot_arena arena;
  ot_json_writer writer;
  const char *piece;  // [length]
  int64_t length, sent;
  int choice, section;  // of a whole answer: where to go on
  int64_t record;
  int next;   // of a stream: the choice that comes next
  bool ends;  // the piece is the last
} ot_answer_reader;

struct ot_job {
  ot_service *service;
  ot_job *next;  // in the inbox, then in the list of running jobs
  ot_heap heap;
  ot_arena arena;
  ot_completion_request request;
  bool chat;
  int64_t id;
  int64_t bytes;              // of memory that are reserved for it
  double begin_s, created_s;  // on the clock that never goes back, and since 1970
  int num_choices, left;      // left: not ended
  ot_choice *choices;         // [num_choices], n of each prompt
  ot_job_prompt *prompts;     // [num_prompts]
  ot_lesson lesson;           // for the teacher, in place of prompts; rows.B 0: none
  ot_answer_reader reader;
  // Guarded by the lock of the service until the job is done, as are the lists, the texts and the
  // ends of choices.
  const char *taught;  // what the teacher says
  const char *error;   // instead of an answer
  int code;
  ot_job_owner owner;
  bool done, released, waits;  // waits: the reader waits for `news`
  pthread_cond_t news;
};

// One text at a time is read and encoded in a lane; long ones do not delay short ones.
typedef struct ot_text_lane {
  pthread_mutex_t lock;
  ot_encoder *encoder;
} ot_text_lane;

enum { OT_TEXT_LANES = 2 };

struct ot_service {
  ot_service_options options;
  ot_inference *engine;
  ot_special_tokens special;
  int64_t longest_token;  // bytes
  ot_text_lane lanes[OT_TEXT_LANES];
  pthread_mutex_t writing;  // of all but the first piece of a whole answer: one at a time
  pthread_t thread;
  bool runs;  // the thread
  double checked_s;
  ot_job *jobs;  // running, of the engine's thread
  // Guarded by the lock:
  pthread_mutex_t lock;
  pthread_cond_t work;
  ot_job *first, *last;  // inbox
  bool stops, looks;     // looks: an owner has released its job
  int64_t waiting, ids;  // sequences that have not ended; numbers given to jobs
  int64_t reserved;      // bytes of options.memory_bytes
  int64_t held;          // jobs that have not been freed
  ot_service_counts counts;
};

// Ends the memory of a job that no thread uses, and returns what is reserved for it.
void ot_job_free(ot_job *job);

// Answers as JSON (answer.c), in the memory of the reader.

// Writes the next piece of the whole answer to a job all of whose choices have ended; at the last,
// reader.ends is set. A piece has about 64 KiB, and a text is never divided.
void ot_answer_write_piece(ot_job *job);

// The part of a choice that an event of a stream shows.
typedef struct ot_choice_news {
  const ot_choice *choice;
  const char *text;  // [length]
  int64_t length;
  ot_record_list scores, made;  // the new ones are those from `first_score` and `first_made`
  int64_t first_score, first_made;
  bool first, last;  // event of the choice
} ot_choice_news;
const char *ot_answer_event(const ot_choice_news *news, ot_arena *arena);

// The last event before the end, with the usage.
const char *ot_answer_usage(const ot_job *job, ot_arena *arena);

// {"error": {...}}
const char *ot_answer_error(ot_arena *arena, int code, const char *message);
