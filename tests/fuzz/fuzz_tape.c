// SPDX-License-Identifier: Apache-2.0
// The tape of a run on the real clock, line by line, as `orthant rl --replay` reads it.
#include <string.h>

#include "fuzz/fuzz.h"
#include "rl/tape.h"

static ot_status read_lines(ot_tape_reader *reader, int generators) {
  ot_tape_line line = {.kind = 'g'};
  fuzz_require(generators >= 1, "a tape has generators");
  while (line.kind != 0) {
    OT_TRY(ot_tape_reader_next(reader, &line));
    fuzz_require(line.kind == 0 || strchr("gux", line.kind), "a line is of a known kind");
    fuzz_require(line.number >= 0 && line.count >= 0, "numbers are from 0");
    for (int64_t i = 0; i < line.count; i++) {
      fuzz_require(line.words[i] >= 0, "events and responses are from 0");
    }
  }
  return OT_OK;
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  int generators = 0;
  ot_tape_reader *reader = NULL;
  (void)arena;
  ot_status status = ot_tape_reader_create(fuzz_file("tape.txt", data, size), &reader, &generators);
  if (status == OT_OK) status = read_lines(reader, generators);
  ot_tape_reader_destroy(&reader);
  return status;
}
