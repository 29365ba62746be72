// SPDX-License-Identifier: Apache-2.0
// The lines of JSON that `orthant score` reads, as tokens.
#pragma once

#include "describe/model.h"
#include "tokenizer/encoder.h"

// One line: its tokens and the index of the first one to score, or an error.
typedef struct ot_score_line {
  ot_token_list tokens;  // [1, max_positions] ids of the model
  int64_t first;
  const char *error;  // null: it can be scored
} ot_score_line;

typedef struct ot_score_lines {
  int64_t count;
  ot_score_line *line;  // [count]
} ot_score_lines;

typedef struct ot_score_source {
  const char *path;        // of the lines; a pipe is fine
  const char *model_path;  // in messages
  const ot_model *model;
  ot_encoder *encoder;  // null: only {"tokens"} works
} ot_score_source;

// Reads all lines, in `arena`, tokens apart. A faulty line gives an error in its place. Fails if
// the file cannot be read; release the lines in every case.
ot_status ot_score_lines_read(const ot_score_source *source, ot_arena *arena,
                              ot_score_lines *lines);
void ot_score_lines_release(ot_score_lines *lines);
