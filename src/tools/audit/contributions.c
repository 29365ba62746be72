// SPDX-License-Identifier: Apache-2.0
// A trainer on one rank runs steps of one micro-batch at a learning rate of zero: the weights stay
// the same, and each step leaves the gradient of its micro-batch.
#include "audit/contributions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "audit/variant.h"
#include "base/rng.h"

enum { STREAM_PARAMETER = 0x706172, STREAM_ELEMENT = 0x656c65, STREAM_RANK = 0x72616e };

// Most rows of an embedding may be untouched: candidates tried per element kept.
enum { LOOKS = 8 };

typedef struct chosen_element {
  int parameter;
  int64_t row, col;
} chosen_element;

const char *ot_gradient_class_name(ot_gradient_class class) {
  static const char *const names[] = {
      [OT_GRADIENT_EMBEDDING] = "embedding",
      [OT_GRADIENT_MATRIX] = "matrices",
      [OT_GRADIENT_VECTOR] = "norms, biases",
      [OT_GRADIENT_HEAD] = "head",
  };
  return names[class];
}

static ot_gradient_class class_of(const ot_parameter *p) {
  if (p->kind == OT_PARAMETER_VECTOR) return OT_GRADIENT_VECTOR;
  if (p->kind == OT_PARAMETER_MATRIX) return OT_GRADIENT_MATRIX;
  return p->block == 0 ? OT_GRADIENT_EMBEDDING : OT_GRADIENT_HEAD;
}

// ---- choosing ----

static bool is_chosen(const ot_parameter *p, ot_gradient_class class) {
  return ot_parameter_is_trained(p) && class_of(p) == class;
}

static int64_t class_elements(const ot_graph *graph, ot_gradient_class class) {
  int64_t total = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    if (is_chosen(p, class)) total += ot_parameter_elements(p);
  }
  return total;
}

static chosen_element element_at(const ot_graph *graph, ot_gradient_class class, int64_t place) {
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    if (!is_chosen(p, class)) continue;
    if (place < ot_parameter_elements(p))
      return (chosen_element){i, place / p->cols, place % p->cols};
    place -= ot_parameter_elements(p);
  }
  OT_UNREACHABLE();
}

static int64_t choose(const ot_contributions_request *q, const ot_graph *graph,
                      ot_gradient_class class, chosen_element *chosen) {
  const int64_t total = class_elements(graph, class);
  const int64_t looks = class == OT_GRADIENT_EMBEDDING ? LOOKS : 1;
  const int64_t wanted = q->elements * looks < total ? q->elements * looks : total;
  for (int64_t i = 0; i < wanted; i++) {
    const int64_t place =
        (int64_t)ot_rng_permute(q->seed, STREAM_ELEMENT + class, (uint64_t)i, (uint64_t)total);
    chosen[i] = element_at(graph, class, place);
  }
  return wanted;
}

// ---- reading ----

// Elements that no micro-batch touches carry no information; keeps the first q->elements others.
static void keep_touched(const ot_contributions_request *q, ot_contributions *out,
                         ot_gradient_class class) {
  const int n = out->micro_batches;
  double *const values = out->values[class];
  int64_t kept = 0;
  for (int64_t i = 0; i < out->count[class] && kept < q->elements; i++) {
    bool touched = false;
    for (int k = 0; k < n; k++) touched = touched || values[i * n + k] != 0;
    if (!touched) continue;
    memmove(values + kept * n, values + i * n, (size_t)n * sizeof *values);
    kept++;
  }
  out->count[class] = kept;
}

// `row` has space for any row.
static ot_status read_gradient(ot_trainer *trainer, const chosen_element *at, double *row,
                               double *value) {
  const ot_parameter_rows range = {at->parameter, OT_COPY_GRADIENT, at->row, 1};
  OT_TRY(ot_variant_read(ot_trainer_runtime(trainer), range, row));
  *value = row[at->col];
  return OT_OK;
}

static ot_status read_steps(const ot_contributions_request *q, ot_trainer *trainer, ot_arena *arena,
                            ot_contributions *out) {
  const ot_graph *const graph = ot_runtime_whole_graph(ot_trainer_runtime(trainer));
  double *const row = ot_arena_array(arena, ot_graph_widest_row(graph), sizeof *row);
  chosen_element *chosen[OT_GRADIENT_CLASSES];
  for (int class = 0; class < OT_GRADIENT_CLASSES; class ++) {
    chosen[class] = ot_arena_array(arena, q->elements * LOOKS + 1, sizeof *chosen[class]);
    out->count[class] = choose(q, graph, (ot_gradient_class) class, chosen[class]);
    out->values[class] =
        ot_arena_array(arena, out->count[class] * q->micro_batches + 1, sizeof(double));
  }
  for (int k = 0; k < q->micro_batches; k++) {
    ot_step_report step;
    OT_TRY(ot_trainer_step(trainer, &step));
    for (int class = 0; class < OT_GRADIENT_CLASSES; class ++) {
      for (int64_t i = 0; i < out->count[class]; i++) {
        OT_TRY(read_gradient(trainer, &chosen[class][i], row,
                             &out->values[class][i * q->micro_batches + k]));
      }
    }
  }
  for (int class = 0; class < OT_GRADIENT_CLASSES; class ++) {
    keep_touched(q, out, (ot_gradient_class) class);
  }
  return OT_OK;
}

ot_status ot_contributions_read(const ot_contributions_request *request, ot_arena *arena,
                                ot_contributions *out) {
  const ot_run run = ot_variant_one_rank(request->trainer);
  const ot_variant variant = {.of = request->trainer, .run = &run, .one_rank = true};
  ot_trainer *trainer = NULL;
  *out = (ot_contributions){.micro_batches = request->micro_batches};
  OT_TRY(ot_variant_create(&variant, &trainer));
  const ot_status status = trainer ? read_steps(request, trainer, arena, out) : OT_OK;
  ot_trainer_destroy(&trainer);
  return ot_world_agree(ot_trainer_world(request->trainer), status);
}

// ---- drawing ----

void ot_contributions_draw(const ot_contributions *contributions, ot_gradient_class class,
                           int64_t index, int64_t ranks, double *out) {
  const int n = contributions->micro_batches;
  const double *const values = contributions->values[class] + index * n;
  double sum = 0, squares = 0;
  for (int k = 0; k < n; k++) sum += values[k];
  const double mean = sum / n;
  for (int k = 0; k < n; k++) squares += (values[k] - mean) * (values[k] - mean);
  const double deviation = sqrt(squares / (n - 1));
  for (int64_t r = 0; r < ranks; r++) {
    const uint64_t stream = STREAM_RANK + (uint64_t) class;
    out[r] =
        r < n ? values[r] : mean + deviation * ot_rng_normal((uint64_t)index, stream, (uint64_t)r);
  }
}
