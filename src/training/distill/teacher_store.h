// SPDX-License-Identifier: Apache-2.0
// PREFIX.teacher: what a teacher says of every token of the training set PREFIX, a few ids with
// counts for each. It is bound to the teacher, the tokenizer and the tokens that the teacher saw: a
// store that was made for anything else is refused, and told how it differs.
//
//   header   256 bytes, ot_teacher_header little-endian, XXH3-64 of them in the last 8
//   index    u64 [windows + 1]: where each window's record begins, 0: not yet written
//   record   u64 XXH3-64 of those of the window's tokens, targets and document starts, which are
//            what the teacher saw; u64 XXH3-64 of the rest of the record; f32 entropy and f32 loss
//            of the teacher, mean nats over the unmasked targets; u8 [T] ids of each token, 0 if
//            masked; then each token's ids, id_bits and count_bits each, packed from the lowest bit
//
// A window is one of those of sequence_length tokens that tile the set, so a record belongs to
// tokens, not to a place in the order of training. The sum of a token's counts is `draws`, or less
// for top_k.
#pragma once

#include "base/arena.h"
#include "data/data_loader.h"
#include "describe/run.h"
#include "ops/head_draw.h"

enum { OT_TEACHER_VERSION = 1, OT_TEACHER_COUNTS = 65535 };  // counts of probability 1, top_k

// The identity of a store.
typedef struct ot_teacher_header {
  char teacher[OT_CONTENT_HASH_BYTES];    // hash of its weights
  char tokenizer[OT_CONTENT_HASH_BYTES];  // zeros: the run had none
  char tokens[OT_CONTENT_HASH_BYTES];     // of the set: see ot_teacher_hash_tokens
  int64_t sequence_length, eod, vocab_size, windows;
  int64_t draws;  // counts that are 1: draws of a token, or OT_TEACHER_COUNTS
  int64_t ids;    // ids of a token at most
  uint64_t seed;
  bool document_mask, top_k;
  int id_bits, count_bits;
} ot_teacher_header;

// The header of a store of training set `source` for `run`; `teacher` is the teacher's hash.
ot_status ot_teacher_header_of(const ot_run *run, ot_data_loader *loader, int64_t source,
                               const char *teacher, ot_teacher_header *header);

// OT_USAGE, naming `path` and the first thing that differs, if a store with `found` is not one for
// `wanted`. wanted->teacher "" is not compared.
ot_status ot_teacher_header_check(const char *path, const ot_teacher_header *found,
                                  const ot_teacher_header *wanted);

// "PREFIX.teacher" in `arena`, for the training set at `path`.
const char *ot_teacher_path(ot_arena *arena, const char *path);

// The key of the draws of token `position` of a window.
uint64_t ot_teacher_key(const ot_teacher_header *header, int64_t window, int64_t position);

// The teacher's results for one window of T tokens.
typedef struct ot_teacher_window {
  float entropy, loss;
  uint8_t *num;     // [T] ids of each token
  ot_drawn *drawn;  // [T, header.ids]
} ot_teacher_window;

// A window's arrays, in `arena`.
void ot_teacher_window_take(const ot_teacher_header *header, ot_arena *arena,
                            ot_teacher_window *window);

// ---- reading ----

typedef struct ot_teacher_store ot_teacher_store;

// Opens a complete store. OT_ENVIRONMENT, naming it, if it is missing, incomplete or damaged.
ot_status ot_teacher_store_open(const char *path, ot_teacher_store **out);
void ot_teacher_store_close(ot_teacher_store **store);
const ot_teacher_header *ot_teacher_store_header(const ot_teacher_store *store);

// Reads window `window`, whose tokens are sequence `b` of `rows`. OT_USAGE if the teacher saw other
// tokens, targets or documents there; OT_ENVIRONMENT if the record is damaged.
ot_status ot_teacher_store_read(ot_teacher_store *store, int64_t window, const ot_micro_batch *rows,
                                int64_t b, ot_teacher_window *out);

// ---- writing ----

typedef struct ot_teacher_writer ot_teacher_writer;

// Begins PATH.partial, or continues one with the same header after its last whole record.
ot_status ot_teacher_writer_create(const char *path, const ot_teacher_header *header,
                                   ot_teacher_writer **out);
void ot_teacher_writer_destroy(ot_teacher_writer **writer);

// The window that is written next, and bytes written so far.
int64_t ot_teacher_writer_next(const ot_teacher_writer *writer);
int64_t ot_teacher_writer_bytes(const ot_teacher_writer *writer);

// Appends that window; its tokens are sequence `b` of `rows`.
ot_status ot_teacher_writer_add(ot_teacher_writer *writer, const ot_micro_batch *rows, int64_t b,
                                const ot_teacher_window *window);

// After the last window: syncs and renames to PATH.
ot_status ot_teacher_writer_commit(ot_teacher_writer *writer);
