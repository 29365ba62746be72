// SPDX-License-Identifier: Apache-2.0
// A request while the service works on it. The engine's thread has it, but for `answer`, `sent` and
// the flags, which the lock of the service guards.
#pragma once

#include "host/heap.h"
#include "serve/service.h"

// One token of an answer with log-probabilities.
typedef struct ot_token_record {
  int32_t token;
  int64_t text_offset;  // in the text of the choice
  double logprob;       // NaN: none
  int num_top;
  const ot_candidate *top;  // [num_top]
} ot_token_record;

typedef struct ot_choice {
  ot_job *job;
  int prompt;             // index
  ot_sequence *sequence;  // null: not begun, or ended
  ot_text_stream text;    // generated
  int64_t shown;          // of its text, in events sent
  int64_t num_tokens;     // generated
  ot_buffer echo;         // text of the prompt, if it is wanted
  int64_t prompt_offset;  // of its next token
  int64_t num_records, capacity, records_shown;
  ot_token_record *records;  // [num_records], when log-probabilities are wanted
  bool begun, ended;
  ot_finish finish;
} ot_choice;

struct ot_job {
  ot_service *service;
  ot_job *next;  // in the inbox, then in the list of running jobs
  ot_heap heap;
  ot_arena arena;
  ot_completion_request request;
  bool chat;
  int64_t id;
  double begin_s, created_s;  // on the clock that never goes back, and since 1970
  int num_choices, left;      // left: not ended
  ot_choice *choices;         // [num_choices], n of each prompt
  ot_token_list *prompts;     // [num_prompts]
  ot_lesson lesson;           // for the teacher, in place of prompts; rows.B 0: none
  const char *taught;         // what it says
  const char *error;          // instead of an answer
  int code;
  // Guarded by the lock.
  ot_job_owner owner;
  ot_buffer answer;
  int64_t sent;
  bool done, released, waits;  // waits: the owner is to be woken
};

// Answers as JSON (answer.c), in the job's arena.

// The whole answer to a job all of whose choices have ended.
const char *ot_answer_whole(const ot_job *job, const ot_service_options *options);

// What `choice` has new since the last event, or null.
const char *ot_answer_event(ot_choice *choice, const ot_service_options *options, ot_arena *arena);

// The last event before the end, with the usage.
const char *ot_answer_usage(const ot_job *job, const ot_service_options *options, ot_arena *arena);

// {"error": {...}}
const char *ot_answer_error(ot_arena *arena, int code, const char *message);
