// SPDX-License-Identifier: Apache-2.0
// Measures the gradients of a record, or of two of one step, against those that are computed again.
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "judge/judge_parts.h"

enum { STREAMS = OT_OWN_STREAMS + OT_JUDGE_HYPOTHESES };

// A record of the pass.
typedef struct measured_record {
  ot_judging *judging;
  int streams[STREAMS];  // its own of all that are computed
  int64_t capacity;
  bool recorded;  // the current tensor has a recorded gradient
  ot_recorded_view view;
  double *values;  // [count of a chunk] of the record
  int64_t values_capacity;
} measured_record;

typedef struct measurement {
  ot_judged_pass *pass;
  bool selective;  // hypotheses end where the gradients of the only record exclude them
  int excluded;    // hypotheses that ended
  int num_streams;
  ot_recomputation_stream streams[2 * STREAMS + OT_OWN_STREAMS];
  measured_record records[2];
  double *difference;  // [count of a chunk]
  int64_t difference_capacity;
} measurement;

// ---- one record ----

static void begin_tensor(measured_record *m, const ot_recomputed *v) {
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

static double *reserve(ot_arena *arena, double *values, int64_t count, int64_t *capacity) {
  if (count <= *capacity) return values;
  *capacity = count;
  return ot_arena_array(arena, count, sizeof *values);
}

static ot_status read_chunk(measured_record *m, const ot_recomputed *v, uint32_t sum_axes,
                            ot_assembly *copies) {
  ot_judging *const j = m->judging;
  const ot_assembly_request request = {.view = &m->view,
                                       .first = v->first,
                                       .count = v->count,
                                       .dtype = OT_F64,
                                       .sum_axes = sum_axes};
  m->values = reserve(j->arena, m->values, v->count, &m->values_capacity);
  return ot_assemble(&j->step, &request, j->arena, m->values, copies);
}

// Adds `recorded` [count of the chunk] to the newest tensor of `evidence`, next to the gradients of
// the record's streams.
static void measure(const measured_record *m, const ot_recomputed *v, const double *recorded,
                    ot_evidence *evidence) {
  const double *gradients[STREAMS];
  for (int i = 0; i < OT_OWN_STREAMS + m->judging->num_hypotheses; i++)
    gradients[i] = v->gradients[m->streams[i]];
  const ot_evidence_values values = {.recorded = recorded,
                                     .weight = v->weight,
                                     .gradient = gradients[0],
                                     .own = gradients[1],
                                     .own_again = gradients[2],
                                     .hypotheses = gradients + OT_OWN_STREAMS};
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
static ot_status measure_sums(measured_record *m, const ot_recomputed *v, uint32_t axes) {
  ot_judging *const j = m->judging;
  const double ranks = ranks_over(j, axes);
  OT_TRY(read_chunk(m, v, axes, NULL));
  measure(m, v, m->values, &j->sums);
  for (int64_t i = 0; i < v->count; i++) m->values[i] /= ranks;
  measure(m, v, m->values, &j->means);
  return OT_OK;
}

// *differing: axes over which copies differ.
static ot_status measure_record(measured_record *m, const ot_recomputed *v, uint32_t *differing) {
  ot_judging *const j = m->judging;
  ot_assembly copies;
  *differing = 0;
  if (v->first == 0) begin_tensor(m, v);
  if (!m->recorded) return OT_OK;
  OT_TRY(read_chunk(m, v, 0, &copies));
  measure(m, v, m->values, &j->evidence);
  ot_judged_copies *const known = &j->copies[j->evidence.num_tensors - 1];
  known->copied |= copies.copied_axes;
  known->differing |= *differing = copies.differing_axes;
  for (int64_t i = 0; i < copies.num_differences; i++)
    known->relative = fmax(known->relative, copies.differences[i].relative);
  return OT_OK;
}

// ---- between two records ----

const ot_judging *ot_judged_pass_coarser(const ot_judged_pass *p) {
  static const int coarseness[] = {
      [OT_PLAIN_F64] = 0, [OT_PLAIN_F32] = 1, [OT_PLAIN_AUTOCAST] = 2, [OT_PLAIN_BF16] = 3};
  const int second = p->count > 1 ? coarseness[p->judgings[1].type] : 0;
  return &p->judgings[second > coarseness[p->judgings[0].type]];
}

static void add_between(measurement *m, const char *name) {
  ot_judged_pass *const p = m->pass;
  ot_evidence *const e = &p->between;
  p->differing = ot_arena_grow(e->arena, p->differing, e->num_tensors, &p->differing_capacity,
                               sizeof *p->differing);
  p->differing[e->num_tensors] = 0;
  ot_evidence_add(e, name);
}

static void measure_between(measurement *m, const ot_recomputed *v) {
  ot_judged_pass *const p = m->pass;
  const measured_record *const a = &m->records[0], *const b = &m->records[1];
  if (!a->recorded || !b->recorded) return;
  const ot_evidence *const first = &a->judging->evidence;
  if (v->first == 0) add_between(m, first->tensors[first->num_tensors - 1].name);
  m->difference = reserve(p->between.arena, m->difference, v->count, &m->difference_capacity);
  int64_t differing = 0;
  for (int64_t i = 0; i < v->count; i++) {
    m->difference[i] = v->gradients[0][i] + (b->values[i] - a->values[i]);
    differing += !ot_judged_equal(a->values[i], b->values[i]);
  }
  p->differing[p->between.num_tensors - 1] += differing;
  measure(&m->records[ot_judged_pass_coarser(p) - p->judgings], v, m->difference, &p->between);
}

// ---- the pass ----

static ot_status receive(void *context, const ot_recomputed *v) {
  measurement *const m = context;
  uint32_t differing[2];
  for (int i = 0; i < m->pass->count; i++) OT_TRY(measure_record(&m->records[i], v, &differing[i]));
  if (m->pass->count > 1) measure_between(m, v);
  for (int i = 0; i < m->pass->count; i++) {
    if (differing[i]) OT_TRY(measure_sums(&m->records[i], v, differing[i]));
  }
  return OT_OK;
}

static bool wants(void *context, int stream) {
  measurement *const m = context;
  const int vector = OT_EVIDENCE_HYPOTHESES + stream - OT_OWN_STREAMS;  // of the only record
  const int hypotheses = m->pass->judgings[0].num_hypotheses;
  if (!m->selective || stream < OT_OWN_STREAMS || stream >= OT_OWN_STREAMS + hypotheses)
    return true;
  const bool absent = ot_attribution_is_absent(&m->pass->judgings[0].evidence, vector);
  m->excluded += absent;
  return !absent;
}

// Activations and choices of experts are compared in a pass for one record.
static ot_status exchange(void *context, const ot_recomputed_exchange *values) {
  const measurement *const m = context;
  ot_judge_shares_add(&m->pass->judgings[0], values);
  // Stream 0 has the rows of the first record.
  if (m->pass->same_batches) ot_judge_shares_add(&m->pass->judgings[1], values);
  if (m->pass->count > 1) return OT_OK;
  ot_judge_routes_exchange(&m->pass->judgings[0], values);
  ot_judge_biases_exchange(&m->pass->judgings[0], values);
  return ot_judge_origin_exchange(&m->pass->judgings[0], values);
}

static void progress(void *context, int done, int all) {
  const measurement *const m = context;
  const ot_judge_request *const r = m->pass->judgings[0].request;
  if (r->progress) r->progress(r->context, done, all);
}

// ---- what is computed ----

static int add_stream(measurement *m, const ot_judged_step *step, ot_plain_type type,
                      bool reversed) {
  const bool own = step == &m->pass->judgings[0].own || step == &m->pass->judgings[1].own;
  m->streams[m->num_streams] = (ot_recomputation_stream){step, type, reversed, .apart = own};
  return m->num_streams++;
}

// Whether a case changes no row, so that it is the same for all divisions of the rows.
static bool keeps_rows(const ot_judging *j, const ot_hypothesis_case *c) {
  const ot_plain_batch *const own = &j->own.rows.batch, *const changed = &c->changed.rows.batch;
  return changed->targets == own->targets && changed->positions == own->positions &&
         changed->first == own->first && changed->weights == own->weights &&
         c->changed.losses == OT_PLAIN_MAIN;
}

// The stream of the first record that is also that of case `i` of the second; -1: none.
static int shared_case(const measurement *m, int i) {
  const ot_judging *const a = &m->pass->judgings[0], *const b = &m->pass->judgings[1];
  for (int k = 0; k < a->num_hypotheses; k++) {
    const bool same = a->cases[k].hypothesis == b->cases[i].hypothesis;
    if (same && (m->pass->same_batches || keeps_rows(b, &b->cases[i])))
      return m->records[0].streams[OT_OWN_STREAMS + k];
  }
  return -1;
}

// The second record has streams of its own where its type differs, and for hypotheses about rows
// that it divides in another way.
static void list_streams(measurement *m, int record) {
  ot_judging *const j = &m->pass->judgings[record];
  const ot_judging *const first = &m->pass->judgings[0];
  measured_record *const r = &m->records[record];
  const bool second = record > 0, same_type = second && j->type == first->type;
  r->judging = j;
  r->streams[0] = second ? 0 : add_stream(m, &j->own, j->base, false);
  for (int again = 0; again < 2; again++)
    r->streams[1 + again] =
        same_type ? m->records[0].streams[1 + again] : add_stream(m, &j->own, j->type, again == 1);
  for (int i = 0; i < j->num_hypotheses; i++) {
    const int shared = second ? shared_case(m, i) : -1;
    r->streams[OT_OWN_STREAMS + i] =
        shared >= 0 ? shared : add_stream(m, &j->cases[i].changed, j->base, false);
  }
}

static const ot_dtype stored[] = {[OT_PLAIN_F64] = OT_F64,
                                  [OT_PLAIN_F32] = OT_F32,
                                  [OT_PLAIN_BF16] = OT_BF16,
                                  [OT_PLAIN_AUTOCAST] = OT_F32};

static void begin_record(ot_judging *j) {
  j->evidence = ot_evidence_create(j->arena, j->num_hypotheses, stored[j->type]);
  j->sums = ot_evidence_create(j->arena, j->num_hypotheses, stored[j->type]);
  j->means = ot_evidence_create(j->arena, j->num_hypotheses, stored[j->type]);
  j->copies = NULL;
  j->missing = 0;
}

static void keep_losses(const measurement *m, const double *losses) {
  for (int r = 0; r < m->pass->count; r++) {
    ot_judging *const j = &m->pass->judgings[r];
    for (int i = 0; i < OT_OWN_STREAMS + j->num_hypotheses; i++)
      j->losses[i] = losses[m->records[r].streams[i]];
  }
}

// Both records are compared with one step, in the finer of their types for that.
static void share_base(ot_judged_pass *p) {
  ot_plain_type finest = p->judgings[0].base;
  for (int i = 1; i < p->count; i++)
    finest = p->judgings[i].base < finest ? p->judgings[i].base : finest;
  for (int i = 0; i < p->count; i++) p->judgings[i].base = finest;
}

static void begin(measurement *m) {
  ot_judged_pass *const p = m->pass;
  share_base(p);
  for (int i = 0; i < p->count; i++) {
    list_streams(m, i);
    ot_judge_shares_clear(&p->judgings[i]);
    begin_record(&p->judgings[i]);
  }
  p->between = ot_judged_pass_coarser(p)->evidence;
  p->between.between = true;
  p->differing = NULL;
  p->differing_capacity = 0;
  if (p->count > 1) return;
  ot_judging *const only = &p->judgings[0];
  m->num_streams += ot_judge_origin_begin(only, stored[only->type], m->num_streams, m->streams);
  ot_judge_routes_begin(only);
  ot_judge_biases_begin(only);
}

static ot_status run(measurement *m) {
  ot_judging *const first = &m->pass->judgings[0];
  const ot_judge_layers *const only = first->request->layers;
  double losses[OT_COUNT(m->streams)];
  begin(m);
  const ot_recomputation_request request = {.step = &first->step,
                                            .num_streams = m->num_streams,
                                            .streams = m->streams,
                                            .threads = first->request->threads,
                                            .receive = receive,
                                            .wants = wants,
                                            .first_block = only ? only->first + 1 : 0,
                                            .end_block = only ? only->last + 2 : 0,
                                            .exchange = exchange,
                                            .progress = progress,
                                            .context = m};
  OT_TRY(ot_recomputation_run(&request, losses));
  keep_losses(m, losses);
  if (only) ot_judge_layers_scale(first);
  return OT_OK;
}

// Most steps are healthy, and their last blocks exclude most hypotheses. Where blocks before these
// do not agree, all hypotheses are measured on all tensors.
ot_status ot_judge_measure(ot_judged_pass *p) {
  measurement quick = {.pass = p, .selective = p->count == 1}, whole = {.pass = p};
  OT_TRY(run(&quick));
  const bool agrees = ot_evidence_largest_ratio(&p->judgings[0].evidence) <= OT_RATIO_FINE;
  return quick.excluded == 0 || agrees ? OT_OK : run(&whole);
}
