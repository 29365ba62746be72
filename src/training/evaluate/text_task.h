// SPDX-License-Identifier: Apache-2.0
// A task that tells how good a model is: a file of JSON lines, all of one kind, as sequences of
// tokens to score or to continue, and the figures that follow from the results. Texts become tokens
// as in lm-evaluation-harness, whose names and definitions the figures have. Running the sequences
// is evaluation.h's.
#pragma once

#include "base/arena.h"
#include "describe/model.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/text_stream.h"

typedef enum ot_text_task_kind {
  OT_TEXT_TASK_CHOICE,      // {"context", "choices": [TEXT...], "answer": INDEX}, and optional:
                            // "delimiter": TEXT between context and choice
  OT_TEXT_TASK_PERPLEXITY,  // {"text"}
  OT_TEXT_TASK_GENERATION,  // {"prompt", "answer": TEXT or [TEXT...]}, and optional: "stop": TEXT
                            // or [TEXT...], "max_tokens"
} ot_text_task_kind;

typedef struct ot_text_task_sequence {
  const int32_t *ids;  // [count]
  int64_t count;
  int64_t first;       // scored: the first token whose log-probability counts, at least 1
  int64_t characters;  // of a choice, without the delimiter before it
  // generation
  int64_t max_tokens;
  const ot_stop_text *stops;  // [num_stops]
  int num_stops;
  const ot_stop_text *answers;  // [num_answers] without spaces around them
  int num_answers;
} ot_text_task_sequence;

// The sequences of one line with choices.
typedef struct ot_text_task_question {
  int64_t first, count, answer;
} ot_text_task_question;

typedef struct ot_text_task {
  const char *name;
  ot_text_task_kind kind;
  int64_t num_sequences;
  ot_text_task_sequence *sequences;
  int64_t num_questions;             // choice
  ot_text_task_question *questions;  // [num_questions]
  int64_t bytes, words;              // of texts whose perplexity is asked for
  int64_t tokens;                    // of them that are scored
  int64_t positions;                 // that the longest sequence needs
  uint64_t hash;                     // of the file
  ot_special_tokens special;         // of the model: what texts begin and end with
} ot_text_task;

typedef struct ot_text_task_source {
  const char *name;  // "": that of the file
  const char *path;
  const ot_model *model;
  const ot_tokenizer *tokenizer;
} ot_text_task_source;

// Reads a task into `arena`. OT_USAGE naming file and line if one is not of the task's kind, or too
// long for the model. A text longer than the model's positions is scored in windows, each after one
// token of context.
ot_status ot_text_task_read(const ot_text_task_source *source, ot_arena *arena, ot_text_task *task);

typedef struct ot_text_task_figure {
  const char *name;  // "acc", ...
  double value;
} ot_text_task_figure;

enum { OT_TEXT_TASK_FIGURES = 3 };

// The figures that follow from the results of all sequences, [num_sequences]: the sum of the
// log-probabilities from `first` on, or 1 for a text that is an answer. Returns their number.
int ot_text_task_figures(const ot_text_task *task, const double *results,
                         ot_text_task_figure figures[OT_TEXT_TASK_FIGURES]);
