// SPDX-License-Identifier: Apache-2.0
// A trainer at a learning rate of zero, with batches written here. The head has its own weights, so
// the embedding's gradient is that of its output only; router losses, which depend on all tokens,
// are off.
#include "audit/gradient_leak.h"

#include <math.h>
#include <stdlib.h>

#include "audit/swap.h"
#include "audit/variant.h"
#include "base/rng.h"

enum { STREAM_TRIALS = 0x677264, MOST_IDS = 256 };

// Token ids are split into classes: the tokens with the loss and their past, then the leak kinds.
enum { OWN, CLASSES = 1 + OT_LEAK_KINDS };

struct ot_gradient_probe {
  ot_trainer *trainer;  // of the run
  ot_world *world;
  const ot_micro_batch *rows;
  ot_run run;
  ot_trainer *still;  // the trainer whose steps are run
  ot_gradient_trial trial;
  int64_t ids;       // of each class
  int table;         // parameter
  double *gradient;  // [ids] rows of the embedding's gradient
};

// ---- trials ----

ot_gradient_trial ot_gradient_trial_choose(uint64_t seed, int trial, const ot_micro_batch *rows) {
  const uint64_t counter = 3 * (uint64_t)trial;
  const int document = (int)ot_rng_below(seed, STREAM_TRIALS, counter, OT_SWAP_DOCUMENTS);
  ot_gradient_trial t = {.first = ot_swap_document(rows->T, document),
                         .end = ot_swap_document(rows->T, document + 1)};
  const uint64_t places = t.end - t.first > 1 ? (uint64_t)(t.end - t.first - 1) : 1;
  t.last = t.first + (int64_t)ot_rng_below(seed, STREAM_TRIALS, counter + 1, places);
  t.sequence = (int64_t)ot_rng_below(seed, STREAM_TRIALS, counter + 2, (uint64_t)rows->B);
  return t;
}

static int class_of(const ot_gradient_trial *t, int64_t sequence, int64_t position) {
  if (sequence != t->sequence) return 1 + OT_LEAK_BATCH;
  if (position < t->first || position >= t->end) return 1 + OT_LEAK_DOCUMENT;
  return position > t->last ? 1 + OT_LEAK_FUTURE : OWN;
}

// Tokens of a micro-batch. Micro-batches after the first repeat all sequences, without targets.
static void write_rows(const ot_trainer *trainer, int micro_batch, ot_micro_batch *rows,
                       void *context) {
  const ot_gradient_probe *const g = context;
  const int64_t first = ot_world_data_index(ot_trainer_world(trainer)) * rows->B;
  rows->num_targets = 0;
  for (int64_t i = 0; i < rows->B * rows->T; i++) {
    const int64_t from = first * rows->T + i;
    const int64_t sequence = micro_batch * g->rows->B + first + i / rows->T;
    const int class = class_of(&g->trial, sequence, i % rows->T);
    rows->tokens[i] = (int32_t)(class * g->ids + from % g->ids);
    rows->positions[i] = g->rows->positions[from];
    rows->doc_starts[i] = g->rows->doc_starts[from];
    rows->targets[i] = class == OWN ? (int32_t)((from + 1) % g->ids) : -1;
    rows->num_targets += class == OWN;
  }
}

static void amend(ot_schedule *schedule, ot_arena *arena, void *context) {
  const ot_gradient_probe *const g = context;
  const ot_trainer_hooks *const hooks = ot_trainer_get_hooks(g->trainer);
  hooks->amend(schedule, arena, hooks->context);
}

// ---- create ----

// A pipeline schedule needs as many micro-batches as stages.
static ot_run run_of(const ot_gradient_probe *g) {
  ot_run run = ot_variant_fixed_weights(g->trainer);
  const int64_t micro_batches = ot_world_degree(g->world, OT_AXIS_PP);
  run.model.tie_word_embeddings = false;
  run.model.moe.z_coefficient = run.model.moe.aux_coefficient = 0;
  run.parallel.order_csv = "";
  run.data.sequence_length = g->rows->T;
  run.batch.micro_batch_size = g->rows->B / ot_world_data_degree(g->world);
  run.batch.global_batch_size = g->rows->B * micro_batches;
  return run;
}

static ot_status find_table(ot_gradient_probe *g) {
  const ot_graph *const whole = ot_runtime_whole_graph(ot_trainer_runtime(g->still));
  for (g->table = 0; g->table < whole->num_parameters; g->table++) {
    const ot_parameter *const p = &whole->parameters[g->table];
    if (p->block == 0 && p->kind == OT_PARAMETER_EMBEDDING && p->rows == g->run.model.vocab_size) {
      break;
    }
  }
  OT_CHECK(g->table < whole->num_parameters, OT_BUG, "audit: no embedding of tokens");
  const int64_t cols = whole->parameters[g->table].cols;
  g->gradient = malloc((size_t)(g->ids * cols) * sizeof *g->gradient);
  OT_CHECK(g->gradient, OT_ENVIRONMENT, "out of memory for rows of an embedding");
  return OT_OK;
}

static ot_status create(ot_gradient_probe *g, bool *fits) {
  const ot_trainer_hooks *const hooks = ot_trainer_get_hooks(g->trainer);
  const ot_trainer_hooks own = {.amend = hooks->amend ? amend : NULL,
                                .unchecked = hooks->unchecked,
                                .rows = write_rows,
                                .context = g};
  const ot_variant variant = {.of = g->trainer, .run = &g->run, .hooks = &own};
  OT_TRY(ot_variant_fits(&variant, fits));
  *fits = *fits && g->ids >= 2;
  if (!*fits) return OT_OK;
  OT_TRY(ot_variant_create(&variant, &g->still));
  return ot_world_agree(g->world, find_table(g));
}

ot_status ot_gradient_probe_create(ot_trainer *trainer, const ot_micro_batch *rows,
                                   ot_gradient_probe **out) {
  ot_world *const world = ot_trainer_world(trainer);
  const int64_t share = ot_trainer_run(trainer)->model.vocab_size / CLASSES;
  ot_gradient_probe *g = calloc(1, sizeof *g);
  *out = NULL;
  OT_TRY(ot_world_agree(world, g ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory")));
  g->trainer = trainer;
  g->world = world;
  g->rows = rows;
  g->ids = share < MOST_IDS ? share : MOST_IDS;
  g->run = run_of(g);
  bool fits = false;
  const ot_status status = create(g, &fits);
  if (status != OT_OK || !fits) ot_gradient_probe_destroy(&g);
  *out = g;
  return status;
}

void ot_gradient_probe_destroy(ot_gradient_probe **probe) {
  if (!probe || !*probe) return;
  ot_gradient_probe *const g = *probe;
  // Later audits may keep ranks waiting for their leader.
  ot_world_set_timeout(g->world, 0);
  ot_trainer_destroy(&g->still);
  free(g->gradient);
  free(g);
  *probe = NULL;
}

ot_status ot_gradient_probe_keep(ot_gradient_probe *probe, int64_t layers, bool silenced) {
  return ot_variant_keep_layers(ot_trainer_runtime(probe->trainer),
                                ot_trainer_runtime(probe->still), layers, silenced);
}

// ---- ask ----

static ot_status read_class(ot_gradient_probe *g, int class, double *largest) {
  ot_runtime *const runtime = ot_trainer_runtime(g->still);
  const int64_t count = g->ids * ot_runtime_whole_graph(runtime)->parameters[g->table].cols;
  const ot_parameter_rows range = {g->table, OT_COPY_GRADIENT, class * g->ids, g->ids};
  OT_TRY(ot_variant_read(runtime, range, g->gradient));
  *largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const double size = fabs(g->gradient[i]);
    if (size > *largest || size != size) *largest = size == size ? size : INFINITY;
  }
  return OT_OK;
}

ot_status ot_gradient_probe_ask(ot_gradient_probe *probe, const ot_gradient_trial *trial,
                                ot_gradient_leaks *reach) {
  ot_step_report step;
  double own = 0;
  probe->trial = *trial;
  OT_TRY(ot_trainer_step(probe->still, &step));
  OT_TRY(read_class(probe, OWN, &own));
  reach->own = own > 0;
  for (int kind = 0; kind < OT_LEAK_KINDS; kind++) {
    OT_TRY(read_class(probe, 1 + kind, &reach->largest[kind]));
  }
  return OT_OK;
}
