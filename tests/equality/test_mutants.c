// SPDX-License-Identifier: Apache-2.0
// run: any machine. Every communication is necessary and every fault in one is detected: one
// collective or message of a composed layout is lost, shortened, misdirected or executed wrongly;
// then the schedule check of a rank, the check across ranks, the run or the comparison with one
// rank must fail. A sample of the mutants; all of them with OT_TESTS=full in the environment
// (minutes).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "schedule/schedule_match.h"
#include "support/rank_case_mutate.h"
#include "support/rank_case_verdict.h"

// How a mutant was detected.
typedef enum catch {
  BY_CHECK,     // ot_schedule_check of a rank
  BY_MATCH,     // ot_schedules_match
  BY_RUN,       // the run ended with a failure
  BY_EQUALITY,  // the result differs from one rank
  BY_REPORT,    // the ranks' reports differ from those of the correct run: data unused on one rank
  SURVIVED,
  CATCHES,
} catch;

typedef struct hunt {
  rank_request request;
  ot_heap heap;
  ot_arena arena;
  ot_schedule schedules[RANK_MAX];
  int ranks, count;
  rank_mutant *mutants;
  rank_result sound;  // without a fault
  int caught[RANK_FAULTS][CATCHES];
  char survivors[8192];
} hunt;

static bool full(void) {
  const char *const text = getenv("OT_TESTS");
  return text && strcmp(text, "full") == 0;
}

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

// ---- one mutant ----

// Applies the mutant to copies of the schedules and checks them.
static catch check_mutant(hunt *h, const rank_mutant *mutant) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_schedule *all[RANK_MAX];
  catch found = SURVIVED;
  for (int rank = 0; rank < h->ranks; rank++) {
    ot_schedule *const copy = ot_arena_take(&arena, sizeof *copy);
    *copy = h->schedules[rank];
    copy->orders = ot_arena_array(&arena, copy->num_orders, sizeof *copy->orders);
    memcpy(copy->orders, h->schedules[rank].orders, (size_t)copy->num_orders * sizeof(ot_order));
    for (int i = 0; i < copy->num_orders; i++) {
      ot_order *const order = &copy->orders[i];
      const ot_entry *const entries = order->entries;
      order->entries = ot_arena_array(&arena, order->num_entries, sizeof *entries);
      memcpy(order->entries, entries, (size_t)order->num_entries * sizeof *entries);
    }
    all[rank] = copy;
    rank_mutate(copy, &arena, (void *)mutant);
    const bool changed = copy->num_segments > h->schedules[rank].num_segments;
    if (found == SURVIVED && changed && ot_schedule_check(copy, &arena) != OT_OK) found = BY_CHECK;
  }
  if (found == SURVIVED && ot_schedules_match(all, h->ranks, &arena) != OT_OK) found = BY_MATCH;
  ot_heap_release(&heap);
  return found;
}

static bool same_numbers(const double *a, const double *b, int n) {
  for (int i = 0; i < n; i++) {
    if (!(fabs(a[i] - b[i]) <= 1e-9 * fabs(b[i])) && !(isnan(a[i]) && isnan(b[i]))) return false;
  }
  return true;
}

static bool same_reports(const rank_result *a, const rank_result *b, int ranks) {
  bool same = true;
  for (int rank = 0; rank < ranks; rank++) {
    same = same && same_numbers(a->scalars[rank], b->scalars[rank], OT_STEP_SCALARS);
  }
  for (int step = 0; step < RANK_STEPS; step++) {
    same = same && same_numbers(a->experts[step], b->experts[step], OT_EXPERT_SUMS);
  }
  return same;
}

static catch run_mutant(const hunt *h, const rank_mutant *mutant) {
  rank_request request = h->request;
  request.amend = rank_mutate;
  request.amend_context = (void *)mutant;
  rank_verdict verdict = {0};
  rank_result result;
  catch found = BY_RUN;
  if (rank_run(&request, &result) == OT_OK) {
    found = rank_judge(&request, &result, &verdict) ? SURVIVED : BY_EQUALITY;
    if (found == SURVIVED && !same_reports(&result, &h->sound, h->ranks)) found = BY_REPORT;
  }
  rank_release(&result);
  return found;
}

static void hunt_mutant(hunt *h, const rank_mutant *mutant) {
  char what[RANK_TEXT];
  catch found = check_mutant(h, mutant);
  if (found == SURVIVED) found = run_mutant(h, mutant);
  h->caught[mutant->fault][found]++;
  if (found != SURVIVED) return;
  const int64_t n = ot_text_length(h->survivors);
  ot_text_format(h->survivors + n, (int64_t)sizeof h->survivors - n, "  %s\n",
                 rank_describe_mutant(mutant, h->schedules, what));
}

// ---- a layout ----

static void begin(hunt *h, const rank_request *request) {
  memset(h, 0, sizeof *h);
  h->request = *request;
  h->ranks = rank_count(request);
  h->arena = ot_heap_arena_create(&h->heap);
  must(rank_plan(request, &h->arena, h->schedules));
  h->count = rank_mutants(h->schedules, h->ranks, &h->arena, &h->mutants);
  rank_verdict verdict = {0};
  must(rank_run(request, &h->sound));
  if (!rank_judge(request, &h->sound, &verdict)) fail_msg("%s", verdict.text);
}

static void end(hunt *h) {
  ot_heap_release(&h->heap);
  rank_release(&h->sound);
}

// Prints how many mutants each check detected; fails unless all were.
static void conclude(const hunt *h) {
  char text[RANK_TEXT];
  int total = 0, survived = 0;
  print_message("%s\n", rank_describe(&h->request, text));
  for (int fault = 0; fault < RANK_FAULTS; fault++) {
    const int *const caught = h->caught[fault];
    int all = 0;
    for (int i = 0; i < CATCHES; i++) all += caught[i];
    if (all == 0) continue;
    print_message("  %-14s %d / %d (check %d, match %d, run %d, equality %d, report %d)\n",
                  rank_fault_name((rank_fault)fault), all - caught[SURVIVED], all, caught[BY_CHECK],
                  caught[BY_MATCH], caught[BY_RUN], caught[BY_EQUALITY], caught[BY_REPORT]);
    total += all;
    survived += caught[SURVIVED];
  }
  print_message("  caught %d / %d of %d mutants\n", total - survived, total, h->count);
  assert_true(total > 0);
  if (survived > 0) print_message("%s", h->survivors);
  assert_int_equal(survived, 0);
}

static void hunt_layout(const rank_request *request, int sample) {
  static hunt h;
  begin(&h, request);
  const int stride = full() || h.count <= sample ? 1 : h.count / sample;
  for (int i = stride / 2; i < h.count; i += stride) hunt_mutant(&h, &h.mutants[i]);
  conclude(&h);
  end(&h);
}

static rank_request layout_of(rank_model_kind model) {
  return (rank_request){.model = model,
                        .layers = 3,
                        .dtype = OT_F64,
                        .length = 16,
                        .micro_batch = 1,
                        .steps = RANK_STEPS,
                        .pp = 1,
                        .vpp = 1,
                        .dp_replicate = 1,
                        .dp_shard = 1,
                        .cp = 1,
                        .tp = 1,
                        .prefetch = 1,
                        .pipeline = OT_PIPELINE_1F1B,
                        .overlap = true,
                        .timeout_s = 5};
}

enum { SAMPLE = 40 };

static void of_stages_and_tensors_with_weights_sharded(void **state) {
  (void)state;
  rank_request r = layout_of(RANK_GPT2);
  r.pp = r.dp_shard = r.tp = 2;
  r.zero = 3;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  r.batch = 4;
  hunt_layout(&r, SAMPLE);
}

static void of_contexts_and_tensors_with_state_sharded(void **state) {
  (void)state;
  rank_request r = layout_of(RANK_GEMMA);
  r.cp = r.tp = r.dp_shard = 2;
  r.zero = 1;
  r.batch = 4;
  hunt_layout(&r, SAMPLE);
}

static void of_exchanged_heads_and_replicas(void **state) {
  (void)state;
  rank_request r = layout_of(RANK_LLAMA);
  r.cp = r.dp_replicate = 2;
  r.context = OT_CONTEXT_ULYSSES;
  r.batch = 4;
  hunt_layout(&r, SAMPLE);
}

static void of_hybrid_shards(void **state) {
  (void)state;
  rank_request r = layout_of(RANK_QWEN);
  r.dp_replicate = r.dp_shard = 2;
  r.zero = 3;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  r.batch = 8;
  hunt_layout(&r, SAMPLE);
}

static void of_a_folded_pipeline(void **state) {
  (void)state;
  rank_request r = layout_of(RANK_GPT2);
  r.pp = r.dp_shard = 2;
  r.layers = 4;
  r.pipeline = OT_PIPELINE_ZB_V;
  r.zero = 2;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  r.batch = 6;
  hunt_layout(&r, SAMPLE);
}

// Experts over tp, replicated over dp; experts and their columns over tp and cp.
static void of_experts(void **state) {
  (void)state;
  rank_request r = layout_of(RANK_MOE);
  r.length = 20;          // head chunks with more than a last token, which has no target
  r.expert_buffer = 0.3;  // so that every layer needs overflow passes
  r.tp = r.dp_shard = 2;
  r.ep = 2;
  r.zero = 3;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  r.batch = 4;
  hunt_layout(&r, SAMPLE);
  r.cp = r.dp_replicate = 2;
  r.dp_shard = 1;
  r.ep = 2;
  r.etp = 2;
  r.zero = 0;
  r.accumulate = OT_ACCUMULATE_WHOLE;
  hunt_layout(&r, SAMPLE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_stages_and_tensors_with_weights_sharded),
      cmocka_unit_test(of_contexts_and_tensors_with_state_sharded),
      cmocka_unit_test(of_exchanged_heads_and_replicas),
      cmocka_unit_test(of_hybrid_shards),
      cmocka_unit_test(of_a_folded_pipeline),
      cmocka_unit_test(of_experts),
  };
  return cmocka_run_group_tests_name("every mutant is caught", tests, NULL,
                                     rank_references_release);
}
