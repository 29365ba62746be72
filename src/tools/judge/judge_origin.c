// SPDX-License-Identifier: Apache-2.0
// The place where a step departs from the recomputed one. Three streams of the recomputation begin
// each layer with what the record has of it, so that a layer is judged alone: the error of one
// layer is not that of the next. The gradient is linear in what enters the backward pass of a
// layer, whatever the loss was multiplied by; only that of the head is compared up to a factor.
#include <math.h>
#include <string.h>

#include "base/extremes.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "describe/residuals.h"
#include "host/heap.h"
#include "judge/judge_parts.h"

// ---- the streams ----

static void begin_pass(ot_judging *j, ot_recorded_kind kind, ot_dtype stored, int last,
                       ot_judged_direction *pass) {
  *pass =
      (ot_judged_direction){.recorded = ot_recorded_layers_find(
                                &j->step, &j->recorded, kind, j->step.model.hidden_size, j->arena),
                            .last = last};
  for (int64_t i = 0; i < pass->recorded.count; i++) {
    const ot_dtype dtype = pass->recorded.list[i].tensor->dtype;
    if (ot_dtype_roundoff(dtype) > ot_dtype_roundoff(stored)) stored = dtype;
  }
  pass->evidence = ot_evidence_create(j->arena, 0, stored);
}

int ot_judge_origin_begin(ot_judging *j, ot_dtype stored, int first,
                          ot_recomputation_stream *streams) {
  ot_judged_origin *const o = &j->origin;
  const ot_judge_layers *const only = j->request->layers;
  const int layers = (int)j->step.model.num_layers;
  const int64_t elements = j->recorded.count * j->step.model.hidden_size;
  *o = (ot_judged_origin){.loaded = -1};
  begin_pass(j, OT_RECORDED_ACT, stored, only ? only->first - 1 : -1, &o->forward);
  begin_pass(j, OT_RECORDED_ACT_GRAD, stored, only ? only->last : layers, &o->backward);
  const bool ordinary = ot_residual_position_of(&j->step.model, layers).finished == 0;
  if (!ordinary || o->forward.recorded.count + o->backward.recorded.count == 0) return 0;
  o->first = first;
  o->recorded = ot_arena_array(j->arena, elements, sizeof *o->recorded);
  o->known = ot_arena_array(j->arena, j->recorded.count, sizeof *o->known);
  for (int i = 0; i < OT_OWN_STREAMS; i++) {
    o->computed[i] = ot_arena_array(j->arena, elements, sizeof *o->computed[i]);
    streams[first + i] = streams[i];
  }
  return OT_OWN_STREAMS;
}

// ---- values ----

static double value_at(const ot_recomputed_exchange *e, int64_t i) {
  return e->dtype == OT_F64 ? ((const double *)e->values)[i]
                            : (double)((const float *)e->values)[i];
}

static void put_value(const ot_recomputed_exchange *e, int64_t i, double value) {
  if (e->dtype == OT_F64) {
    ((double *)e->values)[i] = value;
  } else {
    ((float *)e->values)[i] = (float)value;
  }
}

// Reads what the record has of a layer, unless it is the one at hand.
static ot_status load(ot_judging *j, const ot_judged_direction *pass, int layer) {
  ot_judged_origin *const o = &j->origin;
  if (o->loaded == layer && o->loaded_kind == pass->recorded.kind) return OT_OK;
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  const ot_status status =
      ot_recorded_layers_read(&pass->recorded, layer, &scratch, o->recorded, o->known);
  ot_heap_release(&heap);
  o->loaded = layer;
  o->loaded_kind = pass->recorded.kind;
  o->any = false;
  for (int64_t r = 0; r < j->recorded.count; r++) {
    o->known[r] = o->known[r] && j->judged[r];
    o->any = o->any || o->known[r];
  }
  return status;
}

// Fills in what enters the range of layers that is judged.
static ot_status enter(const ot_judging *j, const ot_recomputed_exchange *e, int layer) {
  const ot_judged_origin *const o = &j->origin;
  const int64_t C = j->step.model.hidden_size;
  for (int64_t i = 0; i < j->recorded.count * C; i++) {
    const int64_t row = i / C;
    OT_CHECK(!j->judged[row] || (o->known[row] && isfinite(o->recorded[i])), OT_USAGE,
             "%s: %s of layer %d, token %lld of the step: ranks have different values, or they are "
             "not finite",
             j->step.path, ot_recorded_kind_name(o->loaded_kind), layer, (long long)row);
    put_value(e, i, o->known[row] ? o->recorded[i] : 0);
  }
  return OT_OK;
}

static void replace(const ot_judging *j, const ot_recomputed_exchange *e) {
  const ot_judged_origin *const o = &j->origin;
  const int64_t C = j->step.model.hidden_size;
  for (int64_t i = 0; i < j->recorded.count * C; i++) {
    if (o->known[i / C] && isfinite(o->recorded[i])) put_value(e, i, o->recorded[i]);
  }
}

// ---- measurement ----

// The factor of the recorded gradients of the head in a batch.
static double factor_of(const ot_judging *j, const ot_step_batch *batch) {
  const ot_judged_origin *const o = &j->origin;
  const int64_t C = j->step.model.hidden_size;
  double product = 0, square = 0;
  for (int64_t i = batch->first_row * C; i < (batch->first_row + batch->rows) * C; i++) {
    if (!o->known[i / C] || !isfinite(o->recorded[i])) continue;
    product += o->recorded[i] * o->computed[0][i];
    square += o->computed[0][i] * o->computed[0][i];
  }
  return product != 0 && square > 0 ? product / square : 1;
}

static void measure_batch(const ot_judging *j, ot_judged_direction *pass,
                          const ot_step_batch *batch, double factor) {
  const ot_judged_origin *const o = &j->origin;
  const int64_t C = j->step.model.hidden_size;
  ot_evidence_tensor *const t = &pass->evidence.tensors[pass->evidence.num_tensors - 1];
  for (int64_t r = batch->first_row; r < batch->first_row + batch->rows; r++) {
    if (!o->known[r]) continue;
    for (int64_t i = r * C; i < (r + 1) * C; i++) o->recorded[i] /= factor;
    const ot_evidence_values values = {.recorded = o->recorded + r * C,
                                       .weight = o->computed[0] + r * C,
                                       .gradient = o->computed[0] + r * C,
                                       .own = o->computed[1] + r * C,
                                       .own_again = o->computed[2] + r * C};
    ot_evidence_measure(&pass->evidence, t, &values, C);
    for (int64_t i = r * C; i < (r + 1) * C; i++) o->recorded[i] *= factor;
  }
}

static void measure(ot_judging *j, ot_judged_direction *pass, int layer) {
  const int layers = (int)j->step.model.num_layers;
  const bool head = pass == &j->origin.backward && pass->last == layers;
  pass->span = ot_arena_grow(j->arena, pass->span, pass->evidence.num_tensors, &pass->capacity,
                             sizeof *pass->span);
  ot_judged_span *const span = &pass->span[pass->evidence.num_tensors];
  *span = pass == &j->origin.forward ? (ot_judged_span){pass->last + 1, layer}
                                     : (ot_judged_span){layer + 1, pass->last};
  ot_evidence_add(&pass->evidence, "");
  for (int64_t b = 0; b < j->recorded.num_batches; b++) {
    const ot_step_batch *const batch = &j->recorded.batch[b];
    measure_batch(j, pass, batch, head ? factor_of(j, batch) : 1);
  }
  pass->last = layer;
}

ot_status ot_judge_origin_exchange(ot_judging *j, const ot_recomputed_exchange *e) {
  ot_judged_origin *const o = &j->origin;
  ot_judged_direction *const pass = e->backward ? &o->backward : &o->forward;
  const int layer = e->block - (e->backward ? 2 : 1), stream = e->stream - o->first;
  const ot_judge_layers *const only = j->request->layers;
  const bool enters = only && layer == (e->backward ? only->last : only->first - 1);
  if (layer < 0 || o->first == 0 || (!enters && stream < 0)) return OT_OK;
  OT_TRY(load(j, pass, layer));
  if (enters) return enter(j, e, layer);
  if (!o->any) return OT_OK;
  for (int64_t i = 0; i < j->recorded.count * j->step.model.hidden_size; i++)
    o->computed[stream][i] = value_at(e, i);
  if (stream == OT_OWN_STREAMS - 1) measure(j, pass, layer);
  replace(j, e);
  return OT_OK;
}

// ---- words ----

static double ratio_of(const ot_judged_direction *pass, int t) {
  const ot_evidence_tensor *const at = &pass->evidence.tensors[t];
  return at->not_finite > 0 ? INFINITY : ot_evidence_ratio(&pass->evidence, at);
}

static bool departs(const ot_judged_direction *pass, int t) {
  return ratio_of(pass, t) > OT_RATIO_FINDING;
}

static int departures(const ot_judged_direction *pass) {
  int count = 0;
  for (int t = 0; t < pass->evidence.num_tensors; t++) count += departs(pass, t);
  return count;
}

// "layer 1", "layers 1 to 3", "the head and the loss".
static const char *span_in_words(const ot_judging *j, const ot_judged_span *s) {
  const int layers = (int)j->step.model.num_layers;
  if (s->from == layers) return "the head and the loss";
  if (s->to == layers) return ot_arena_format(j->arena, "layers %d to the head", s->from);
  if (s->from < s->to) return ot_arena_format(j->arena, "layers %d to %d", s->from, s->to);
  return ot_arena_format(j->arena, "layer %d", s->from);
}

// The places of a pass in its order, the first three by name.
static const char *places_in_words(const ot_judging *j, const ot_judged_direction *pass) {
  enum { NAMED = 3 };
  const int count = departures(pass);
  ot_text_builder text = {.arena = j->arena};
  int named = 0;
  for (int t = 0; t < pass->evidence.num_tensors && named < NAMED; t++) {
    if (!departs(pass, t)) continue;
    ot_text_appendf(&text, "%s%s (%.3g x own error)", named++ > 0 ? ", " : "",
                    span_in_words(j, &pass->span[t]), ratio_of(pass, t));
  }
  if (count > named) ot_text_appendf(&text, " and %d more", count - named);
  return ot_text_builder_text(&text);
}

static const char *others_in_words(const ot_judging *j, const ot_judged_direction *pass) {
  const int left = pass->evidence.num_tensors - departures(pass);
  return left > 0 ? ot_arena_format(j->arena, ", and agrees in the %d other%s", left,
                                    ot_text_plural(left, "s"))
                  : "";
}

// The sentence, or null: all agrees.
static const char *origin_in_words(const ot_judging *j) {
  const ot_judged_direction *const there = &j->origin.forward, *const back = &j->origin.backward;
  if (departures(there) > 0)
    return ot_arena_format(j->arena,
                           "each layer computed from its recorded input, the forward pass departs "
                           "in %s%s",
                           places_in_words(j, there), others_in_words(j, there));
  if (departures(back) == 0) return NULL;
  return ot_arena_format(
      j->arena,
      "%seach layer computed from its recorded values, the backward pass departs "
      "in %s%s",
      there->evidence.num_tensors > 0 ? "the forward pass agrees; " : "", places_in_words(j, back),
      others_in_words(j, back));
}

// The layers to judge alone: those of the first place, or null for the head.
static const char *advice_in_words(const ot_judging *j) {
  const ot_judged_direction *const there = &j->origin.forward, *const back = &j->origin.backward;
  const ot_judged_direction *const pass = departures(there) > 0 ? there : back;
  const int layers = (int)j->step.model.num_layers;
  int t = 0;
  while (!departs(pass, t)) t++;
  const ot_judged_span *const s = &pass->span[t];
  if (s->to == layers) return "look at the head and the loss";
  return ot_arena_format(j->arena, "look at %s; orthant judge --layers %d..%d judges it alone",
                         span_in_words(j, s), s->from, s->to);
}

// ---- the part ----

// Rounding chooses other experts for some tokens, and losses of routers are not in the recomputed
// gradients: both are departures without a fault.
static bool is_decisive(const ot_judging *j) {
  const ot_moe *const moe = &j->step.model.moe;
  const bool losses = moe->aux_coefficient > 0 || moe->z_coefficient > 0;
  return moe->num_experts == 0 || ((j->base == OT_PLAIN_F64 || j->routes.complete) &&
                                   (!losses || departures(&j->origin.forward) > 0));
}

static void range_of(const ot_judged_direction *pass, double *low, double *high) {
  *low = INFINITY;
  *high = 0;
  for (int t = 0; t < pass->evidence.num_tensors; t++) {
    *low = ot_smaller(ratio_of(pass, t), *low);
    *high = ot_larger(ratio_of(pass, t), *high);
  }
}

static void add_part(ot_judging *j, bool agrees, bool open) {
  ot_text_builder text = {.arena = j->arena};
  const ot_judged_direction *const passes[] = {&j->origin.forward, &j->origin.backward};
  static const char *const names[] = {"layer", "gradient"};
  for (int i = 0; i < OT_COUNT(passes); i++) {
    const int count = passes[i]->evidence.num_tensors;
    double low, high;
    range_of(passes[i], &low, &high);
    if (count > 0)
      ot_text_appendf(&text, "%s%d %s%s: %.2g to %.3g x own error", text.length > 0 ? "; " : "",
                      count, names[i], ot_text_plural(count, "s"), low, high);
  }
  if (open) ot_text_put(&text, ", which choices of experts or their losses explain, too");
  if (text.length > 0)
    ot_judge_add_part(j->report, "outputs", agrees, "%s", ot_text_builder_text(&text));
}

// The finding whose place is not known, or null.
static ot_judge_finding *finding_without_place(const ot_judging *j) {
  static const char *const classes[] = {"gradient", "factor_on_some", "not_finite"};
  for (int i = 0; i < j->report->num_findings; i++) {
    for (int k = 0; k < OT_COUNT(classes); k++) {
      if (ot_text_equal(j->report->findings[i].what, classes[k])) return &j->report->findings[i];
    }
  }
  return NULL;
}

static void add_origin(ot_judging *j, const char *sentence) {
  ot_judge_finding *f = finding_without_place(j);
  if (!f && j->report->num_findings > 0) return;
  if (f) {
    f->evidence = ot_arena_format(j->arena, "%s; %s", f->evidence, sentence);
  } else {
    f = ot_judge_find(j->report, "origin");
    f->evidence = sentence;
  }
  f->advice = advice_in_words(j);
}

// Where layers agree, the fault is in what the layers do not exchange.
static void exclude_layers(ot_judging *j) {
  const int layers = (int)j->step.model.num_layers;
  ot_judge_finding *const f = finding_without_place(j);
  if (!f || j->request->layers || j->origin.forward.evidence.num_tensors < layers ||
      j->origin.backward.evidence.num_tensors < layers)
    return;
  f->evidence = ot_arena_format(j->arena,
                                "%s; outputs of all %d layers and their gradients agree, so it is "
                                "in gradients of weights alone",
                                f->evidence, layers);
  f->advice = "look at how gradients of weights are computed, accumulated and reduced";
}

void ot_judge_origin(ot_judging *j) {
  const ot_judged_origin *const o = &j->origin;
  const int64_t unused = o->forward.recorded.left_out + o->backward.recorded.left_out;
  if (unused > 0)
    ot_judge_add_part(j->report, "note", true,
                      "%lld recorded activations are not [tokens of their batch, hidden size]: not "
                      "compared",
                      (long long)unused);
  const char *const sentence = origin_in_words(j);
  const bool open = sentence && !is_decisive(j);
  add_part(j, !sentence || open, open);
  if (sentence && !open) add_origin(j, sentence);
  if (!sentence) exclude_layers(j);
}
