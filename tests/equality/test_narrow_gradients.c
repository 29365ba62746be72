// SPDX-License-Identifier: Apache-2.0
// run: any machine. bf16 gradient accumulators against the same run with float32 accumulators: the
// same loss, and gradients that differ only by the expected number of roundings.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "support/rank_case.h"

enum { HEAD_CHUNKS = 4 };  // 16 rows, 5 at a time (rank_case.c)

static rank_request request_of(rank_model_kind model, int64_t batch) {
  return (rank_request){.model = model,
                        .dtype = OT_F32,
                        .storage = OT_BF16,
                        .length = 16,
                        .batch = batch,
                        .micro_batch = 1,
                        .steps = 1,
                        .prefetch = 1,
                        .pipeline = OT_PIPELINE_1F1B,
                        .overlap = true};
}

typedef struct pair {
  rank_result wide, narrow;
} pair;

static void run(const rank_request *request, rank_result *result) {
  char text[RANK_TEXT];
  if (rank_run(request, result) == OT_OK) return;
  fail_msg("%s: %s", rank_describe(request, text), ot_fail_message());
}

static void run_both(const rank_request *wide, pair *p) {
  rank_request narrow = *wide;
  narrow.gradients = OT_BF16;
  run(wide, &p->wide);
  run(&narrow, &p->narrow);
  assert_true(p->wide.loss[0] == p->narrow.loss[0]);
}

static void release(pair *p) {
  rank_release(&p->wide);
  rank_release(&p->narrow);
}

// ---- one micro-batch on one rank ----

// The head rounds once per chunk. If tied, it adds to the already rounded gradient of the
// embedding.
static bool is_of_head(const char *name) {
  return strstr(name, "lm_head") || strstr(name, "wte") || strstr(name, "embed_tokens");
}

static void expect_rounded(const rank_tensor *narrow, const rank_tensor *wide) {
  double largest = 0;
  for (int64_t i = 0; i < wide->count; i++) largest = fmax(largest, fabs(wide->gradient[i]));
  const bool head = is_of_head(wide->name);
  const double allowed = head ? (HEAD_CHUNKS + 2) * largest / 256 : 0;
  for (int64_t i = 0; i < wide->count; i++) {
    const uint16_t bits = ot_bf16_from_float((float)wide->gradient[i]);
    const double once = (double)ot_bf16_to_float(bits);
    if (fabs(narrow->gradient[i] - once) <= allowed) continue;
    fail_msg("%s[%d] is %.9g, rounded once it is %.9g", wide->name, (int)i, narrow->gradient[i],
             once);
  }
}

static void one_micro_batch_gives_the_gradients_in_float32_rounded_once(void **state) {
  (void)state;
  for (int m = 0; m < RANK_MODELS; m++) {
    const rank_request request = request_of((rank_model_kind)m, 1);
    pair p;
    run_both(&request, &p);
    for (int i = 0; i < p.wide.num_tensors; i++) {
      expect_rounded(&p.narrow.tensors[i], &p.wide.tensors[i]);
    }
    release(&p);
  }
}

// ---- many, on ranks ----

static double rms_of(const rank_result *result) {
  double sum = 0;
  int64_t count = 0;
  for (int i = 0; i < result->num_tensors; i++) {
    const rank_tensor *const tensor = &result->tensors[i];
    if (strstr(tensor->name, "e_score_correction_bias")) continue;  // loads, no gradient
    count += tensor->count;
    for (int64_t k = 0; k < tensor->count; k++) sum += tensor->gradient[k] * tensor->gradient[k];
  }
  return sqrt(sum / (double)count);
}

// max |a - b| relative to the largest of b, or to `rms` if larger: terms may cancel.
static double distance(const rank_tensor *a, const rank_tensor *b, double rms) {
  double most = 0, largest = rms;
  for (int64_t i = 0; i < b->count; i++) {
    most = fmax(most, fabs(a->gradient[i] - b->gradient[i]));
    largest = fmax(largest, fabs(b->gradient[i]));
  }
  return most / largest;
}

// A value is rounded once per micro-batch (in the head: and per chunk), once per reduction axis,
// and where tied uses are added.
static void expect_near(const rank_request *request, int micro_batches) {
  char text[RANK_TEXT];
  pair p;
  run_both(request, &p);
  const double rms = rms_of(&p.wide);
  double most = 0;
  for (int i = 0; i < p.wide.num_tensors; i++) {
    const int roundings = micro_batches * (is_of_head(p.wide.tensors[i].name) ? HEAD_CHUNKS : 1);
    const double found = distance(&p.narrow.tensors[i], &p.wide.tensors[i], rms);
    most = fmax(most, found);
    if (found <= (roundings + 4) / 512.0) continue;
    fail_msg("%s: %s differs by %.3g", rank_describe(request, text), p.wide.tensors[i].name, found);
  }
  assert_true(most > 0);
  release(&p);
}

static void ranks_and_micro_batches_add_a_rounding_each(void **state) {
  (void)state;
  for (int m = 0; m < RANK_MODELS; m++) {
    rank_request r = request_of((rank_model_kind)m, 4);
    expect_near(&r, 4);
    r.dp_shard = 2;
    r.zero = 2;
    r.accumulate = OT_ACCUMULATE_SHARDED;
    r.wire = m % 2 == 0 ? OT_BF16 : OT_F32;
    expect_near(&r, 2);
    r.dp_shard = 1;
    r.zero = 0;
    r.accumulate = OT_ACCUMULATE_WHOLE;
    r.pp = r.cp = 2;
    r.pipeline = OT_PIPELINE_ZB_H1;
    expect_near(&r, 4);
  }
  rank_request r = request_of(RANK_MOE, 4);
  r.tp = r.dp_replicate = r.ep = 2;
  r.expert_buffer = 0.3;
  expect_near(&r, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_micro_batch_gives_the_gradients_in_float32_rounded_once),
      cmocka_unit_test(ranks_and_micro_batches_add_a_rounding_each),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
