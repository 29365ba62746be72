// SPDX-License-Identifier: Apache-2.0
// A model on one rank, asked for logits: of whole sequences, as training runs them, or of one token
// after the other against a key-value cache, as inference does. Audits compare the answers: to the
// same question asked in two ways, and to questions that differ where it must not matter.
#pragma once

#include "data/rows.h"
#include "runtime/instance.h"

typedef struct ot_probe_request {
  const ot_model *model;  // of files, only the vocabulary counts
  ot_mode mode;           // OT_MODE_LOGITS, or OT_MODE_DECODE of one sequence
  int64_t sequences;      // of a forward
  int64_t tokens;         // of each; most that are decoded
  ot_dtype compute;       // OT_F32 or OT_F64
  ot_dtype storage;       // of weights and activations: compute, or OT_BF16
  int threads;            // 0 = all cores
  const char *files;      // HF directory that model and weights are read from, or null: weights
                          // are to be written
} ot_probe_request;

// Takes the memory.
ot_status ot_probe_create(const ot_probe_request *request, ot_instance **out);

// Logits of all rows, each sequence a document when decoded; targets are not looked at.
//   rows    [sequences, tokens] of the request, or fewer tokens to decode
//   logits  [sequences * tokens, V]
ot_status ot_probe_ask(ot_instance *probe, const ot_rows *rows, double *logits);
