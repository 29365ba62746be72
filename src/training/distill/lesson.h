// SPDX-License-Identifier: Apache-2.0
// The messages between a run and a server whose teacher it learns from, as JSON (docs/serve.md):
// facts about the teacher, a micro-batch for it to read, and its answer. Numbers keep all bits.
// Everything may come from strangers: sizes are those of the facts, and ranges are checked.
#pragma once

#include "data/micro_batch.h"
#include "distill/teacher.h"

typedef struct ot_lesson_facts {
  char teacher[OT_CONTENT_HASH_BYTES];    // hash of its weights
  char tokenizer[OT_CONTENT_HASH_BYTES];  // zeros: it has none
  int64_t sequences, sequence_length;     // of a micro-batch
  int64_t vocab_size, positions;
  int64_t draws, ids;    // as ot_teacher_request.ids; draws 0: its most probable ids
  int64_t compute_bits;  // 32 or 64
} ot_lesson_facts;

// Facts of a teacher of `run`; `tokenizer` may be null. vocab_size and positions are those of the
// run, and there is no hash of the teacher.
void ot_lesson_facts_of(const ot_run *run, const ot_tokenizer *tokenizer, ot_lesson_facts *facts);

// OT_USAGE, naming `url` and the first thing that differs, if a teacher with `found` cannot teach a
// run with `wanted`. wanted->teacher "" is not compared.
ot_status ot_lesson_facts_check(const char *url, const ot_lesson_facts *found,
                                const ot_lesson_facts *wanted);

const char *ot_lesson_facts_write(const ot_lesson_facts *facts, ot_arena *arena);
ot_status ot_lesson_facts_read(const char *url, const ot_buffer *text, ot_lesson_facts *facts);

// A micro-batch to read, and the keys of its draws: null with facts->ids 0.
typedef struct ot_lesson {
  ot_micro_batch rows;
  int64_t *keys;  // [R]
} ot_lesson;

// The body of a request as the run writes it, and as the server reads it, in `arena`.
const char *ot_lesson_write(const ot_micro_batch *rows, const int64_t *keys, ot_arena *arena);
ot_status ot_lesson_read(const char *text, int64_t length, const ot_lesson_facts *facts,
                         ot_arena *arena, ot_lesson *lesson);

// The teacher's answer to it, with the hash of the teacher that gave it.
const char *ot_lesson_answer_write(const ot_lesson_facts *facts, const ot_teacher_answer *answer,
                                   ot_arena *arena);

// Bytes of such an answer, at most.
int64_t ot_lesson_answer_bytes(const ot_lesson_facts *facts);

// Where an answer goes: R rows, K ids each.
typedef struct ot_lesson_places {
  double *logprobs, *entropy;  // [R]
  int32_t *ids;                // [R, K]
  float *weights;              // [R, K]
} ot_lesson_places;
// OT_ENVIRONMENT if another teacher gave it, or it is not an answer to such a micro-batch.
ot_status ot_lesson_answer_read(const char *url, const ot_buffer *text,
                                const ot_lesson_facts *facts, const ot_lesson_places *to);
