// SPDX-License-Identifier: Apache-2.0
// Each rank checks its own tokens; the ranks then agree on the first fault.
#include <stdlib.h>

#include "audit/step_checks.h"
#include "base/text.h"
#include "data/data_loader.h"

typedef enum batch_fault {
  BATCH_SOUND,
  BATCH_TARGET,    // not the next token
  BATCH_UNMASKED,  // a target at the end of a document
  BATCH_MASKED,    // no target within a document
  BATCH_POSITION,  // does not increase by one
  BATCH_MASK,      // begins elsewhere than positions do
  BATCH_SAMPLE,    // another sample than this rank's
  BATCH_TOKENS,    // not the data's: tokens, targets, positions or document starts
  BATCH_TARGETS_OF_DATA,
  BATCH_POSITIONS_OF_DATA,
  BATCH_MASK_OF_DATA,
  BATCH_WEIGHTS,  // of the targets of a token, do not sum to 1
} batch_fault;

static const struct {
  const char *what, *where, *advice;
} words[] = {
    [BATCH_TARGET] = {"target_shift", "targets", "targets must be the tokens shifted by one"},
    [BATCH_UNMASKED] = {"target_mask", "targets",
                        "the last token of a document and padding must have no target"},
    [BATCH_MASKED] = {"target_mask", "targets", "a target within a document is masked"},
    [BATCH_POSITION] = {"positions", "positions",
                        "positions must increase by one, from zero in each document"},
    [BATCH_MASK] = {"document_mask", "document starts",
                    "the mask of a document must start at its first token"},
    [BATCH_SAMPLE] = {"samples", "sample numbers",
                      "sample numbers must follow from the run's position, the micro-batch and the "
                      "data-parallel rank"},
    [BATCH_TOKENS] = {"data_differs", "tokens", "differs from the data read again"},
    [BATCH_TARGETS_OF_DATA] = {"data_differs", "targets", "differs from the data read again"},
    [BATCH_POSITIONS_OF_DATA] = {"data_differs", "positions", "differs from the data read again"},
    [BATCH_MASK_OF_DATA] = {"data_differs", "document starts", "differs from the data read again"},
    [BATCH_WEIGHTS] = {"target_weights", "weights of targets",
                       "the weights of a token's targets must sum to 1 (here in millionths)"},
};

typedef struct fault {
  batch_fault kind;
  int64_t micro_batch, row, got, wanted;
} fault;

typedef struct batch_check {
  const ot_step_audit *audit;
  const ot_run *run;
  ot_data_loader *loader;
  ot_sequence_shard piece;
  ot_micro_batch whole;   // as read from the data
  ot_micro_batch part;    // this rank's shard of those; with cp
  ot_micro_batch loaded;  // as loaded in the arena
  int32_t *starts;        // of `loaded`: of whole sequences, with Ulysses
} batch_check;

// ---- consistency of a batch ----

// Index in its sequence of the token at `t` in a rank's shard of it.
static int64_t index_of(const batch_check *c, int64_t t) {
  const bool ring = c->piece.context == OT_CONTEXT_RING && c->piece.size > 1;
  const int64_t length = c->loaded.T / (ring ? 2 : 1);
  const int64_t place =
      ring && t >= length ? 2 * c->piece.size - 1 - c->piece.index : c->piece.index;
  return place * length + t % length;
}

// Token i and the next one of the same sequence.
static fault check_pair(const batch_check *c, int64_t i, int64_t index) {
  const ot_micro_batch *const r = &c->loaded;
  const bool begins = r->positions[i + 1] == 0;
  const bool whole_starts = c->piece.context == OT_CONTEXT_ULYSSES && c->piece.size > 1;
  const bool padding = r->tokens[i + 1] == 0 && r->targets[i + 1] < 0;
  const int32_t next = r->tokens[i + 1], target = r->targets[i];
  if (begins ? !c->run->data.document_mask && !padding
             : r->positions[i + 1] != r->positions[i] + 1) {
    return (fault){BATCH_POSITION, 0, i + 1, r->positions[i + 1], r->positions[i] + 1};
  }
  if (begins && target >= 0) return (fault){BATCH_UNMASKED, 0, i, target, -1};
  if (!begins && target < 0) return (fault){BATCH_MASKED, 0, i, target, next};
  if (!begins && target != next) return (fault){BATCH_TARGET, 0, i, target, next};
  const int64_t start = begins ? index + 1 : r->doc_starts[i];
  if (!whole_starts && r->doc_starts[i + 1] != start) {
    return (fault){BATCH_MASK, 0, i + 1, r->doc_starts[i + 1], start};
  }
  return (fault){0};
}

static fault check_rows(const batch_check *c) {
  const ot_micro_batch *const r = &c->loaded;
  for (int64_t i = 0; i + 1 < r->B * r->T; i++) {
    const int64_t index = index_of(c, i % r->T);
    const bool neighbours = (i + 1) % r->T != 0 && index_of(c, (i + 1) % r->T) == index + 1;
    if (!neighbours) continue;
    const fault found = check_pair(c, i, index);
    if (found.kind != BATCH_SOUND) return found;
  }
  return (fault){0};
}

// Checks weights of draws of a teacher, with or without the data's own targets. Ranks without the
// head have zeros.
static fault check_weights(const batch_check *c) {
  const ot_micro_batch *const r = &c->loaded;
  const int64_t K = r->K;
  bool any = false;
  for (int64_t i = 0; i < r->B * r->T * K && !any; i++) any = r->weights[i] != 0;
  if (!ot_run_targets_are_drawn(c->run)) any = false;
  for (int64_t i = 0; any && i < r->B * r->T; i++) {
    double sum = 0;
    for (int64_t k = 0; k < K; k++) sum += (double)r->weights[i * K + k];
    const int64_t millionths = (int64_t)(sum * 1e6 + 0.5), wanted = r->targets[i] < 0 ? 0 : 1000000;
    const int64_t off = millionths - wanted;
    if (off < -10 || off > 10) return (fault){BATCH_WEIGHTS, 0, i, millionths, wanted};
  }
  return (fault){0};
}

// ---- against the data ----

static fault compare_field(batch_fault kind, const int32_t *got, const int32_t *wanted,
                           int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (got[i] != wanted[i]) return (fault){kind, 0, i, got[i], wanted[i]};
  }
  return (fault){0};
}

static fault compare_data(const batch_check *c, int64_t starts) {
  const ot_micro_batch *const wanted = c->piece.size > 1 ? &c->part : &c->whole, *const r =
                                                                                     &c->loaded;
  const struct {
    batch_fault kind;
    const int32_t *got, *wanted;
    int64_t count;
  } fields[] = {
      {BATCH_TOKENS, r->tokens, wanted->tokens, r->B * r->T},
      {BATCH_TARGETS_OF_DATA, r->targets, wanted->targets, r->B * r->T},
      {BATCH_POSITIONS_OF_DATA, r->positions, wanted->positions, r->B * r->T},
      {BATCH_MASK_OF_DATA, r->doc_starts, wanted->doc_starts, starts},
  };
  fault found = {0};
  for (int i = 0; i < OT_COUNT(fields) && !found.kind; i++) {
    found = compare_field(fields[i].kind, fields[i].got, fields[i].wanted, fields[i].count);
  }
  return found;
}

// Elements of document starts of one micro-batch.
static int64_t count_starts(const batch_check *c) {
  const ot_graph *const graph = ot_runtime_graph(c->audit->runtime, OT_MODE_TRAIN);
  const ot_tensor_type type = ot_graph_batch_type(graph, OT_BATCH_DOC_STARTS);
  return ot_type_elements(&type);
}

static void read_batch(batch_check *c, int micro_batch) {
  const ot_runtime *const runtime = c->audit->runtime;
  const ot_mode mode = OT_MODE_TRAIN;
  ot_micro_batch *const r = &c->loaded;
  ot_runtime_read_batch(runtime, mode, micro_batch, OT_BATCH_TOKENS, r->tokens);
  ot_runtime_read_batch(runtime, mode, micro_batch, OT_BATCH_TARGETS, r->targets);
  ot_runtime_read_batch(runtime, mode, micro_batch, OT_BATCH_POSITIONS, r->positions);
  ot_runtime_read_batch(runtime, mode, micro_batch, OT_BATCH_DOC_STARTS, r->doc_starts);
  ot_runtime_read_batch(runtime, mode, micro_batch, OT_BATCH_SAMPLE_IDS, r->sample_ids);
  if (r->K > 0) ot_runtime_read_batch(runtime, mode, micro_batch, OT_BATCH_WEIGHTS, r->weights);
}

// One micro-batch, whose first sample is `first`.
static ot_status check_batch(batch_check *c, int micro_batch, int64_t first, fault *found) {
  OT_TRY(ot_data_loader_train(c->loader, first, &c->whole));
  if (c->piece.size > 1) ot_micro_batch_shard(&c->whole, &c->piece, &c->part);
  read_batch(c, micro_batch);
  const bool reads = !ot_run_teacher_judges(c->run);  // else the model wrote its sequences
  *found = reads ? check_rows(c) : (fault){0};
  if (!found->kind) *found = check_weights(c);
  for (int64_t b = 0; b < c->loaded.B && !found->kind; b++) {
    const int64_t id = c->loaded.sample_ids[b];
    if (id != first + b) *found = (fault){BATCH_SAMPLE, 0, b, id, first + b};
  }
  if (!found->kind && reads) *found = compare_data(c, count_starts(c));
  found->micro_batch = micro_batch;
  return OT_OK;
}

static ot_status check_batches(batch_check *c, fault *found) {
  const ot_world *const world = c->audit->world;
  const int64_t B = c->run->batch.micro_batch_size;
  const int dp = ot_world_data_degree(world), d = ot_world_data_index(world);
  for (int m = 0; m < c->audit->step.micro_batches && !found->kind; m++) {
    const int64_t first = c->audit->before.next_sample + ((int64_t)m * dp + d) * B;
    OT_TRY(check_batch(c, m, first, found));
  }
  return OT_OK;
}

// ---- the check ----

static ot_status open_check(batch_check *c) {
  const int64_t B = c->run->batch.micro_batch_size, T = c->run->data.sequence_length;
  OT_TRY(ot_data_loader_create(c->run, &c->loader));
  OT_TRY(ot_micro_batch_create(B, T, &c->whole));
  OT_TRY(ot_micro_batch_create(B, T / c->piece.size, &c->part));
  OT_TRY(ot_micro_batch_create_weighted(B, T / c->piece.size, ot_run_weighted_targets(c->run),
                                        &c->loaded));
  c->starts = malloc((size_t)(B * T) * sizeof *c->starts);
  OT_CHECK(c->starts, OT_ENVIRONMENT, "out of memory");
  c->loaded.doc_starts = c->starts;
  return OT_OK;
}

static void close_check(batch_check *c) {
  ot_data_loader_destroy(&c->loader);
  ot_micro_batch_release(&c->whole);
  ot_micro_batch_release(&c->part);
  ot_micro_batch_release(&c->loaded);
  free(c->starts);
}

// The fault of the lowest rank that has one.
static ot_status share(const ot_step_audit *audit, const fault *mine) {
  const int size = ot_world_size(audit->world);
  int64_t *const kinds = ot_arena_array(audit->report->arena, size, sizeof *kinds);
  char text[OT_WORLD_TEXT];
  ot_text_format(text, sizeof text, "on rank %d, micro-batch %lld, at %lld: %lld, expected %lld",
                 ot_world_rank(audit->world), (long long)mine->micro_batch, (long long)mine->row,
                 (long long)mine->got, (long long)mine->wanted);
  OT_TRY(ot_world_allgather(audit->world, (int64_t)mine->kind, kinds));
  int r = 0;
  while (r < size && kinds[r] == BATCH_SOUND) r++;
  if (r == size) return OT_OK;
  OT_TRY(ot_world_broadcast_from(audit->world, r, text));
  ot_audit_find(audit->report, words[kinds[r]].what, words[kinds[r]].where, words[kinds[r]].advice,
                "%s", text);
  return OT_OK;
}

ot_status ot_step_check_batches(ot_step_audit *audit) {
  batch_check c = {.audit = audit, .run = audit->run};
  c.piece =
      (ot_sequence_shard){.size = ot_world_degree(audit->world, OT_AXIS_CP),
                          .index = ot_world_index(audit->world, OT_AXIS_CP),
                          .context = ot_runtime_any_graph(audit->runtime)->request.split.context};
  fault found = {0};
  ot_status status = open_check(&c);
  if (status == OT_OK) status = check_batches(&c, &found);
  close_check(&c);
  OT_TRY(ot_world_agree(audit->world, status));
  return share(audit, &found);
}
