// SPDX-License-Identifier: Apache-2.0
// `audit causality`: no token may see its future, another document or another sequence. Pairs of
// forwards at equal shapes, on the layout of the run, differ in some tokens; what may not depend on
// those must have the same bits. A gradient would not do: the choice of experts has none, and it is
// what leaks.
//
//   suffix     all tokens of a sequence from some place on; what comes before is protected
//   token      a single one
//   document   one of the documents in a sequence; the others are protected
//   sequences  all others of the batch; the one is protected
//
// Routing that drops what exceeds a capacity leaks only when something is dropped. So its trials
// are repeated at a quarter of the capacity, where much is: by reliability's figures a test without
// that sees 3 % of what one with it sees at 77 %.
//
// Where bits differ, fewer and fewer layers are left and the others hand on what they get, and the
// MLP of the first that leaks is silenced: what still leaks is its attention.
//
// Then gradients (gradient_leak.h), which see what the backward alone does wrong.
#pragma once

#include "audit/audit_report.h"
#include "data/rows.h"
#include "train/trainer.h"

typedef enum ot_swap_kind {
  OT_SWAP_SUFFIX,
  OT_SWAP_TOKEN,
  OT_SWAP_DOCUMENT,
  OT_SWAP_SEQUENCES,
  OT_SWAP_KINDS,
} ot_swap_kind;

typedef struct ot_causality_request {
  ot_trainer *trainer;  // whose weights are audited; takes no step
  ot_team *team;        // the trainer's; null: one rank
  int trials;           // of each kind, >= 1
  uint64_t seed;        // of tokens and places
  // Tests: changes the rows, as a faulty loader would, or null.
  void (*amend)(ot_rows *rows);
} ot_causality_request;

// The report is the same on all ranks. Collective over the world. Blocks.
ot_status ot_audit_causality(const ot_causality_request *request, ot_arena *arena,
                             ot_audit_report *report);
