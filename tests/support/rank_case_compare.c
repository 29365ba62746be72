// SPDX-License-Identifier: Apache-2.0
// Compares results, caches the reference runs, and prints a request as text.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "support/rank_case.h"
#include "support/tiny_model.h"

// ---- references ----

typedef struct kept_reference {
  rank_request request;
  rank_result result;
} kept_reference;

enum { MAX_REFERENCES = 1024 };
static kept_reference *references[MAX_REFERENCES];
static int num_references;

rank_request rank_unsharded_request(const rank_request *r) {
  return (rank_request){.model = r->model,
                        .layers = r->layers,
                        .wide = r->wide,
                        .experts = r->experts,
                        .lone = r->lone,
                        .loads = r->loads,
                        .first_sample = r->first_sample,
                        .residual_block = r->residual_block,
                        .routing = r->routing,
                        .dtype = r->dtype,
                        .storage = r->storage,
                        .length = r->length,
                        .batch = r->batch,
                        .micro_batch = 1,
                        .steps = r->steps};
}

bool rank_same_reference(const rank_request *a, const rank_request *b) {
  return a->model == b->model && a->layers == b->layers && a->wide == b->wide &&
         a->experts == b->experts && a->lone == b->lone && a->loads == b->loads &&
         a->first_sample == b->first_sample && a->residual_block == b->residual_block &&
         a->routing == b->routing && a->dtype == b->dtype && a->storage == b->storage &&
         a->length == b->length && a->batch == b->batch && a->steps == b->steps;
}

const rank_result *rank_reference(const rank_request *request) {
  const rank_request wanted = rank_unsharded_request(request);
  for (int i = 0; i < num_references; i++) {
    if (rank_same_reference(&references[i]->request, &wanted)) return &references[i]->result;
  }
  assert_true(num_references < MAX_REFERENCES);
  kept_reference *const made = calloc(1, sizeof *made);
  assert_non_null(made);
  made->request = wanted;
  references[num_references++] = made;
  if (rank_run(&made->request, &made->result) != OT_OK) fail_msg("%s", ot_fail_message());
  return &made->result;
}

int rank_references_release(void **state) {
  (void)state;
  for (int i = 0; i < num_references; i++) {
    rank_release(&references[i]->result);
    free(references[i]);
  }
  num_references = 0;
  return 0;
}

// ---- comparison ----

// NaN is larger than any number.
static double larger(double a, double b) { return isnan(a) || a > b ? a : b; }

static double relative(double a, double b) { return fabs(a - b) / fabs(b); }

static double largest(const double *values, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) most = larger(fabs(values[i]), most);
  return most;
}

static double distance(const double *a, const double *b, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) most = larger(fabs(a[i] - b[i]), most);
  return most;
}

static double rms(const double *values, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += values[i] * values[i];
  return sqrt(sum / (double)n);
}

typedef struct floors {
  double gradient, weight;
} floors;

// A hundredth of the rms over all tensors. Smaller values are rounding errors (the bias of keys,
// whose gradient would be zero in exact arithmetic).
static floors floors_of(const rank_result *result) {
  double gradient = 0, weight = 0;
  int64_t count = 0;
  for (int i = 0; i < result->num_tensors; i++) {
    const rank_tensor *const tensor = &result->tensors[i];
    if (ot_text_find(tensor->name, "e_score_correction_bias")) continue;  // loads, no gradient
    const double g = rms(tensor->gradient, tensor->count), w = rms(tensor->weight, tensor->count);
    gradient += g * g * (double)tensor->count;
    weight += w * w * (double)tensor->count;
    count += tensor->count;
  }
  return (floors){1e-2 * sqrt(gradient / (double)count), 1e-2 * sqrt(weight / (double)count)};
}

// Largest difference, relative to the largest value or `floor`.
static double error_of(const double *a, const double *b, int64_t n, double floor) {
  return distance(a, b, n) / fmax(largest(b, n), floor);
}

static void note(double found, const char *name, rank_worst *worst) {
  if (found <= worst->difference) return;
  *worst = (rank_worst){found, name};
}

static void compare_tensor(const rank_tensor *a, const rank_tensor *b, const floors *floor,
                           rank_difference *d) {
  const int64_t n = b->count;
  note(error_of(a->gradient, b->gradient, n, floor->gradient), b->name, &d->gradient);
  note(error_of(a->last, b->last, n, floor->gradient), b->name, &d->last);
  note(error_of(a->weight, b->weight, n, floor->weight), b->name, &d->weight);
  note(distance(a->weight, b->weight, n), b->name, &d->update);
}

// Expert statistics of a step. Overflow passes are not compared: one rank buffers all tokens.
static double expert_difference(const rank_result *a, const rank_result *b, int step) {
  double most = 0;
  for (int k = 0; k < OT_EXPERT_SUMS; k++) {
    const double x = a->experts[step][k], y = b->experts[step][k];
    const bool loads = k == OT_EXPERT_LOAD_MAX || k == OT_EXPERT_LOAD_ENTROPY;
    if (k == OT_EXPERT_PASSES) continue;
    if (loads && a->micro_batch != b->micro_batch) continue;
    if (x != y) most = larger(relative(x, y), most);
  }
  return most;
}

rank_difference rank_compare(const rank_result *result, const rank_result *reference) {
  rank_difference d = {.gradient = {.tensor = ""},
                       .last = {.tensor = ""},
                       .weight = {.tensor = ""},
                       .update = {.tensor = ""}};
  const floors floor = floors_of(reference);
  int steps = 0;
  for (; steps < RANK_STEPS && reference->norm[steps] != 0; steps++) {
    d.loss = larger(relative(result->loss[steps], reference->loss[steps]), d.loss);
    d.norm = larger(relative(result->norm[steps], reference->norm[steps]), d.norm);
    d.experts = larger(expert_difference(result, reference, steps), d.experts);
  }
  assert_true(steps > 0 && reference->num_tensors > 0);
  assert_int_equal(result->num_tensors, reference->num_tensors);
  for (int i = 0; i < reference->num_tensors; i++) {
    assert_string_equal(result->tensors[i].name, reference->tensors[i].name);
    compare_tensor(&result->tensors[i], &reference->tensors[i], &floor, &d);
  }
  const ot_model model = tiny_gpt2();
  d.update.difference /= tiny_run(&model).optimizer.lr * steps;
  return d;
}

// ---- text ----

static void describe_blocks(const rank_request *r, char *text, int64_t room) {
  static const char letters[] = "nsf";
  const int layers = r->layers > 0 ? r->layers : RANK_LAYERS;
  char recompute[RANK_MAX_LAYERS + 1] = "", reshard[RANK_MAX_LAYERS + 3] = "";
  for (int i = 0; i < layers; i++) recompute[i] = letters[r->recompute[i]];
  for (int i = 0; i < layers + 2; i++) reshard[i] = r->keep[i] ? 'k' : 'r';
  ot_text_format(text, room, " recompute %s reshard %s", recompute, reshard);
}

const char *rank_describe(const rank_request *r, char *text) {
  int64_t n = ot_text_format(
      text, RANK_TEXT,
      "%s x%d%s %s: pp%d %s vpp%d%s%s, dp%dx%d zero%d %s, cp%d %s, tp%d, ep%d etp%d room "
      "%.3g of %d%s%s from %lld, "
      "mix %d",
      rank_model_name(r->model), r->layers > 0 ? r->layers : RANK_LAYERS, r->wide ? " wide" : "",
      ot_dtype_name(r->dtype), r->pp, ot_pipeline_name(r->pipeline), r->vpp,
      r->layout[0] ? " layout " : "", r->layout, r->dp_replicate, r->dp_shard, r->zero,
      r->accumulate == OT_ACCUMULATE_SHARDED ? "sharded" : "whole", r->cp,
      r->context == OT_CONTEXT_RING ? "ring" : "ulysses", r->tp, r->ep > 1 ? r->ep : 1,
      r->etp > 1 ? r->etp : 1, r->expert_buffer, r->experts, r->lone ? " lone" : "",
      r->loads == RANK_LOADS_CROWDED ? " crowded" : "", (long long)r->first_sample,
      r->residual_block);
  n += ot_text_format(
      text + n, RANK_TEXT - n, ", batch %lld of %lld, T %lld, prefetch %d%s%s%s%s%s",
      (long long)r->batch, (long long)r->micro_batch, (long long)r->length, r->prefetch,
      r->overlap ? " overlap" : "", r->storage == OT_BF16 ? " bf16" : "",
      r->gradients == OT_BF16 ? " bf16 gradients" : "",
      r->moments == OT_BF16 ? " bf16 moments" : "", r->wire == OT_BF16 ? " bf16 wire" : "");
  describe_blocks(r, text + n, RANK_TEXT - n);
  return text;
}
