// SPDX-License-Identifier: Apache-2.0
// Measures the gradients of a record against those that are computed again.
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "judge/judge_parts.h"
#include "judge/recomputation.h"

enum { OWN_STREAMS = 3 };  // recomputed, own, own again

typedef struct measurement {
  ot_judging *judging;
  int64_t capacity;
  bool recorded;  // the current tensor has a recorded gradient
  ot_recorded_view view;
  bool selective;  // hypotheses end where the gradients exclude them
  int excluded;    // hypotheses that ended
  double *values;  // [count of a chunk] of the record
  int64_t values_capacity;
} measurement;

static void begin_tensor(measurement *m, const ot_recomputed *v) {
  ot_judging *const j = m->judging;
  const char *const name = ot_arena_text(j->arena, v->name, ot_text_length(v->name));
  m->recorded = ot_recorded_find(&j->step, OT_RECORDED_GRAD, v->name, &m->view) &&
                m->view.elements == v->elements;
  if (!m->recorded) {
    if (j->missing++ == 0) j->first_missing = name;
    return;
  }
  j->copies =
      ot_arena_grow(j->arena, j->copies, j->evidence.num_tensors, &m->capacity, sizeof *j->copies);
  j->copies[j->evidence.num_tensors] = (ot_judged_copies){0};
  ot_evidence_add(&j->evidence, name);
  ot_evidence_add(&j->sums, name);
  ot_evidence_add(&j->means, name);
}

static ot_status read_chunk(measurement *m, const ot_recomputed *v, uint32_t sum_axes,
                            ot_assembly *copies) {
  ot_judging *const j = m->judging;
  const ot_assembly_request request = {.view = &m->view,
                                       .first = v->first,
                                       .count = v->count,
                                       .dtype = OT_F64,
                                       .sum_axes = sum_axes};
  if (v->count > m->values_capacity) {
    m->values = ot_arena_array(j->arena, v->count, sizeof *m->values);
    m->values_capacity = v->count;
  }
  return ot_assemble(&j->step, &request, j->arena, m->values, copies);
}

static void measure(const measurement *m, const ot_recomputed *v, ot_evidence *evidence) {
  const ot_evidence_values values = {.recorded = m->values,
                                     .weight = v->weight,
                                     .gradient = v->gradients[0],
                                     .own = v->gradients[1],
                                     .own_again = v->gradients[2],
                                     .hypotheses = v->gradients + OWN_STREAMS};
  ot_evidence_measure(evidence, &evidence->tensors[evidence->num_tensors - 1], &values, v->count);
}

// Ranks over the axes of `axes`.
static double ranks_over(const ot_judging *j, uint32_t axes) {
  double ranks = 1;
  for (int a = 0; a < j->step.num_axes; a++) {
    if (axes >> a & 1) ranks *= j->step.axes[a].size;
  }
  return ranks;
}

// Copies that differ: their sum and their mean instead of one of them.
static ot_status measure_sums(measurement *m, const ot_recomputed *v, uint32_t axes) {
  ot_judging *const j = m->judging;
  ot_assembly unused;
  const double ranks = ranks_over(j, axes);
  OT_TRY(read_chunk(m, v, axes, &unused));
  measure(m, v, &j->sums);
  for (int64_t i = 0; i < v->count; i++) m->values[i] /= ranks;
  measure(m, v, &j->means);
  return OT_OK;
}

static ot_status receive(void *context, const ot_recomputed *v) {
  measurement *const m = context;
  ot_judging *const j = m->judging;
  ot_assembly copies;
  if (v->first == 0) begin_tensor(m, v);
  if (!m->recorded) return OT_OK;
  OT_TRY(read_chunk(m, v, 0, &copies));
  measure(m, v, &j->evidence);
  ot_judged_copies *const known = &j->copies[j->evidence.num_tensors - 1];
  known->copied |= copies.copied_axes;
  known->differing |= copies.differing_axes;
  for (int64_t i = 0; i < copies.num_differences; i++)
    known->relative = fmax(known->relative, copies.differences[i].relative);
  return copies.differing_axes ? measure_sums(m, v, copies.differing_axes) : OT_OK;
}

static bool wants(void *context, int stream) {
  measurement *const m = context;
  const int vector = OT_EVIDENCE_HYPOTHESES + stream - OWN_STREAMS;
  if (!m->selective || stream < OWN_STREAMS) return true;
  const bool absent = ot_attribution_is_absent(&m->judging->evidence, vector);
  m->excluded += absent;
  return !absent;
}

static void progress(void *context, int done, int all) {
  const measurement *const m = context;
  const ot_judge_request *const r = m->judging->request;
  if (r->progress) r->progress(r->context, done, all);
}

static void list_streams(const ot_judging *j, ot_recomputation_stream *out) {
  out[0] = (ot_recomputation_stream){&j->own, j->base, false};
  out[1] = (ot_recomputation_stream){&j->own, j->type, false};
  out[2] = (ot_recomputation_stream){&j->own, j->type, true};
  for (int i = 0; i < j->num_hypotheses; i++)
    out[OWN_STREAMS + i] = (ot_recomputation_stream){&j->cases[i].changed, j->base, false};
}

static void clear(ot_judging *j) {
  static const ot_dtype stored[] = {[OT_PLAIN_F64] = OT_F64,
                                    [OT_PLAIN_F32] = OT_F32,
                                    [OT_PLAIN_BF16] = OT_BF16,
                                    [OT_PLAIN_AUTOCAST] = OT_F32};
  j->evidence = ot_evidence_create(j->arena, j->num_hypotheses, stored[j->type]);
  j->sums = ot_evidence_create(j->arena, j->num_hypotheses, stored[j->type]);
  j->means = ot_evidence_create(j->arena, j->num_hypotheses, stored[j->type]);
  j->copies = NULL;
  j->missing = 0;
}

static ot_status run(measurement *m) {
  ot_judging *const j = m->judging;
  ot_recomputation_stream streams[OT_JUDGE_HYPOTHESES + OWN_STREAMS];
  clear(j);
  list_streams(j, streams);
  const ot_recomputation_request request = {.step = &j->step,
                                            .num_streams = OWN_STREAMS + j->num_hypotheses,
                                            .streams = streams,
                                            .threads = j->request->threads,
                                            .receive = receive,
                                            .wants = wants,
                                            .progress = progress,
                                            .context = m};
  return ot_recomputation_run(&request, j->losses);
}

static bool all_agree(const ot_evidence *e) {
  for (int t = 0; t < e->num_tensors; t++) {
    if (ot_evidence_ratio(e, &e->tensors[t]) > OT_RATIO_FINE) return false;
  }
  return true;
}

// Most steps are healthy, and their last blocks exclude most hypotheses. Where blocks before these
// do not agree, all hypotheses are measured on all tensors.
ot_status ot_judge_measure(ot_judging *j) {
  measurement quick = {.judging = j, .selective = true}, whole = {.judging = j};
  OT_TRY(run(&quick));
  return quick.excluded == 0 || all_agree(&j->evidence) ? OT_OK : run(&whole);
}
