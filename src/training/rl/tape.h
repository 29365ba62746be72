// SPDX-License-Identifier: Apache-2.0
// The order of events of a run on the real clock, as text: what each generator did, in its order,
// and which responses made each update. With it, replay_clock.c makes the same bits.
//
//   orthant tape 1 generators 2
//   g 0 t0 s0 s1 d5 c1     generator 0 took weights 0, started responses 0 and 1, decoded 5 steps,
//                          cancelled response 1
//   u 1 0 2 3 a 9.5 4 0 h f00d   update 1 from responses 0, 2 and 3 after 9.5 s, when 4 had been
//                          cancelled and none dropped; hash of what it learned from
//   x 1                    generator 1 was lost
//
// A line stands after all that its events need.
#pragma once

#include "rl/answer.h"
#include "rl/updater.h"

typedef enum ot_tape_event {
  OT_TAPE_TAKE,    // version
  OT_TAPE_START,   // response
  OT_TAPE_STEPS,   // number
  OT_TAPE_CANCEL,  // response
  OT_TAPE_EVENTS,
} ot_tape_event;

// An event in one word.
static inline int64_t ot_tape_word(ot_tape_event event, int64_t value) {
  return value * OT_TAPE_EVENTS + (int64_t)event;
}

typedef struct ot_tape ot_tape;

// Creates or, to continue a run, appends to the file at `path`.
ot_status ot_tape_create(const char *path, int generators, bool append, ot_tape **out);
void ot_tape_destroy(ot_tape **tape);

void ot_tape_write_events(ot_tape *tape, int generator, const int64_t *events, int64_t count);
void ot_tape_write_loss(ot_tape *tape, int generator);
// `version`: after the update.
typedef struct ot_tape_figures {
  double time_s;
  int64_t cancelled, dropped;  // responses so far
  uint64_t hash;               // ot_tape_hash
} ot_tape_figures;

void ot_tape_write_update(ot_tape *tape, int64_t version, ot_rl_answer *const *answers,
                          int64_t count, const ot_tape_figures *figures);
// Writes the lines since the last flush to the file. OT_ENVIRONMENT if one cannot be written: then
// the tape ends with the last flush and can only be destroyed.
ot_status ot_tape_flush(ot_tape *tape);

// A hash of the responses with their log-probabilities, of loss and gradient norm.
uint64_t ot_tape_hash(ot_rl_answer *const *answers, int64_t count, const ot_rl_update *update);

// A line that was read.
typedef struct ot_tape_line {
  char kind;       // g, u, x; 0: the end
  int64_t number;  // generator, or update
  int64_t count;
  int64_t *words;           // [count] events, or responses
  ot_tape_figures figures;  // of an update
} ot_tape_line;

typedef struct ot_tape_reader ot_tape_reader;

// OT_USAGE names the line of the file that is none of a tape.
ot_status ot_tape_reader_create(const char *path, ot_tape_reader **out, int *generators);
void ot_tape_reader_destroy(ot_tape_reader **reader);
// The next line; valid until the next call.
ot_status ot_tape_reader_next(ot_tape_reader *reader, ot_tape_line *line);
