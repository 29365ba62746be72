// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// The HTML page of a plan: well-formed, complete, self-contained, reproducible; the effect of
// special characters in names and of empty searches.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "report/chart.h"
#include "report/plan_report.h"
#include "support/html_checker.h"
#include "support/paper_job.h"

static const ot_candidate pipelined = {.tp = 2,
                                       .pp = 4,
                                       .vpp = 2,
                                       .cp = 1,
                                       .ep = 1,
                                       .etp = 1,
                                       .dp = 4,
                                       .dp_shard = 4,
                                       .zero = 1,
                                       .micro_batch_size = 1,
                                       .micro_batches = 16,
                                       .pipeline = OT_PIPELINE_INTERLEAVED};
static const ot_candidate sharded = {.tp = 1,
                                     .pp = 1,
                                     .vpp = 1,
                                     .cp = 1,
                                     .ep = 1,
                                     .etp = 1,
                                     .dp = 32,
                                     .dp_shard = 32,
                                     .zero = 3,
                                     .micro_batch_size = 1,
                                     .micro_batches = 2,
                                     .pipeline = OT_PIPELINE_1F1B,
                                     .recompute = OT_RECOMPUTE_FULL};

typedef struct page_case {
  paper_job paper;
  ot_model_totals totals;
  ot_limits limits;
  ot_search search;
  ot_estimate estimates[2];
  ot_page_plan plans[2];
  ot_rejection rejection;
  const char *note;
  ot_plan_page page;
} page_case;

static void price(page_case *c, ot_estimator *estimator, int i, const ot_candidate *candidate) {
  ot_stage_estimate *stages;
  const ot_explanation explanation = {
      .job = &c->paper.job, .totals = &c->totals, .limits = &c->limits, .best = &c->estimates[0]};
  assert_int_equal(ot_estimate_build(estimator, candidate, &c->estimates[i]), OT_OK);
  assert_int_equal(ot_estimate_stages(estimator, candidate, &c->paper.arena, &stages), OT_OK);
  c->plans[i] = (ot_page_plan){.estimate = &c->estimates[i], .stages = stages};
  if (i == 0) {
    ot_explain_best(&explanation, &c->paper.arena, &c->plans[i].why);
  } else {
    ot_explain_other(&explanation, &c->estimates[i], &c->paper.arena, &c->plans[i].why);
  }
}

static void create(const char *name, int num_plans, page_case *c) {
  *c = (page_case){.note = "figures of a preset & nothing measured"};
  paper_job_create("llama3-8b", 32, 64, 4096, &c->paper);
  c->paper.job.tokens = 1e12;
  ot_model_totals_build(&c->paper.job, &c->totals);
  const ot_limits_request limits = {
      .job = &c->paper.job, .totals = &c->totals, .flops_per_s = 5e14};
  ot_limits_build(&limits, &c->limits);
  ot_estimator *estimator;
  assert_int_equal(ot_estimator_build(&c->paper.job, &c->paper.arena, &estimator), OT_OK);
  price(c, estimator, 0, &pipelined);
  price(c, estimator, 1, &sharded);
  c->rejection = (ot_rejection){.candidate = sharded, .reason = "takes 99 GB of <80> GB"};
  c->search = (ot_search){.num_plans = num_plans,
                          .plans = c->estimates,
                          .num_candidates = 1234,
                          .num_simulated = 56,
                          .num_rejections = 1,
                          .rejections = &c->rejection};
  c->page = (ot_plan_page){.job = &c->paper.job,
                           .estimator = estimator,
                           .model_name = name,
                           .model_source = "llama3-8b",
                           .totals = &c->totals,
                           .limits = &c->limits,
                           .search = &c->search,
                           .num_plans = num_plans,
                           .plans = c->plans,
                           .basis_note = "guessed: constants & figures",
                           .num_notes = 1,
                           .notes = &c->note};
}

static const char *html_of(page_case *c) {
  ot_text_builder out = {.arena = &c->paper.arena};
  if (ot_plan_html(&c->page, &out) != OT_OK) fail_msg("%s", ot_fail_message());
  return ot_text_builder_text(&out);
}

// ---- tests ----

static void the_page_is_well_formed_and_has_every_section(void **state) {
  (void)state;
  static const char *const ids[] = {"summary", "memory", "timeline", "devices",  "plans",
                                    "why",     "state",  "limits",   "rejected", "run"};
  page_case c;
  create("llama3-8b", 2, &c);
  const char *const text = html_of(&c);
  check_document(text);
  for (int i = 0; i < OT_COUNT(ids); i++) {
    char section[64], link[64];
    ot_text_format(section, sizeof section, "<section id=\"%s\"", ids[i]);
    ot_text_format(link, sizeof link, "href=\"#%s\"", ids[i]);
    if (!ot_text_find(text, section) || !ot_text_find(text, link)) fail_msg("no %s", ids[i]);
  }
  paper_job_destroy(&c.paper);
}

static void the_page_is_self_contained(void **state) {
  (void)state;
  page_case c;
  create("llama3-8b", 2, &c);
  check_self_contained(html_of(&c));
  paper_job_destroy(&c.paper);
}

static void names_are_escaped(void **state) {
  (void)state;
  page_case c;
  create("<script>\"a\" & 'b'</script>\n", 2, &c);
  const char *const text = html_of(&c);
  check_document(text);
  assert_non_null(
      ot_text_find(text, "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;"));
  assert_null(ot_text_find(text, "<script"));
  assert_non_null(ot_text_find(text, "takes 99 GB of &lt;80&gt; GB"));
  paper_job_destroy(&c.paper);
}

static void the_same_page_has_the_same_bytes(void **state) {
  (void)state;
  page_case a, b;
  create("llama3-8b", 2, &a);
  create("llama3-8b", 2, &b);
  assert_string_equal(html_of(&a), html_of(&b));
  paper_job_destroy(&a.paper);
  paper_job_destroy(&b.paper);
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at++) count++;
  return count;
}

static void charts_have_a_row_for_each_stage_and_a_point_for_each_number_of_devices(void **state) {
  (void)state;
  page_case c;
  create("llama3-8b", 2, &c);
  c.limits.batch_floor_devices = 100;
  const char *const text = html_of(&c);
  // The batch is the same for any number of devices, so its limits do not depend on that number.
  assert_null(ot_text_find(text, "critical batch</text>"));
  // Memory, timeline, and the enlarged parts of a step with many actions: 4 labels each.
  assert_int_equal(count_of(text, "stage 3</text>"), 2);
  assert_null(ot_text_find(text, "stage 4</text>"));
  assert_int_equal(count_of(text, "<title>stage 2, weights:"), 1);
  // dp 1 to 64 of 8 devices each.
  assert_non_null(ot_text_find(text, "<title>8 devices, step:"));
  assert_non_null(ot_text_find(text, "<title>512 devices, step:"));
  assert_non_null(ot_text_find(text, ">this job</text>"));
  assert_non_null(ot_text_find(text, ">capacity 80"));
  assert_non_null(ot_text_find(text, "Why not number 2"));
  assert_non_null(ot_text_find(text, "guessed: constants &amp; figures"));
  assert_non_null(ot_text_find(text, "500 TFLOP/s while kernels run"));
  paper_job_destroy(&c.paper);
}

static void a_page_without_plan_states_it_and_has_the_rest(void **state) {
  (void)state;
  page_case c;
  static const char *const remedies[] = {"without --tp: tp 2 & pp 4"};
  create("llama3-8b", 0, &c);
  c.search.nearest = c.estimates[0];
  c.search.nearest.memory.reserved = 90000000000;
  c.search.nearest.memory.context = 1000000000;
  c.page.num_remedies = 1;
  c.page.remedies = remedies;
  const char *const text = html_of(&c);
  check_document(text);
  assert_non_null(ot_text_find(text, "No plan fits"));
  assert_non_null(ot_text_find(text, "The nearest takes 91 GB of 80 GB a device: tp 2 pp 4"));
  assert_non_null(ot_text_find(text, "without --tp: tp 2 &amp; pp 4"));
  assert_null(ot_text_find(text, "id=\"memory\""));
  assert_null(ot_text_find(text, "href=\"#run\""));
  assert_non_null(ot_text_find(text, "id=\"state\""));
  paper_job_destroy(&c.paper);
}

static void scales_map_ends_to_ends_and_have_round_ticks(void **state) {
  (void)state;
  double ticks[OT_SCALE_TICKS];
  const ot_scale linear = {.maximum = 10.2, .from = 100, .to = 202};
  assert_float_equal(ot_scale_at(&linear, 0), 100, 1e-9);
  assert_float_equal(ot_scale_at(&linear, 5.1), 151, 1e-9);
  assert_int_equal(ot_scale_ticks(&linear, 8, ticks), 6);
  assert_float_equal(ticks[5], 10, 1e-12);
  const ot_scale logarithmic = {.log = true, .minimum = 8, .maximum = 512, .from = 0, .to = 60};
  assert_float_equal(ot_scale_at(&logarithmic, 64), 30, 1e-9);
  assert_float_equal(ot_scale_at(&logarithmic, 512), 60, 1e-9);
  assert_int_equal(ot_scale_ticks(&logarithmic, 8, ticks), 6);  // 10 20 50 ... 500
  assert_float_equal(ticks[0], 10, 1e-12);
  assert_float_equal(ticks[5], 500, 1e-9);
  const ot_scale wide = {.log = true, .minimum = 8, .maximum = 1e5};
  assert_int_equal(ot_scale_ticks(&wide, 8, ticks), 5);  // powers of ten
  const ot_scale narrow = {.log = true, .minimum = 1.2e6, .maximum = 1.9e6};
  assert_int_equal(ot_scale_ticks(&narrow, 8, ticks), 8);  // 1.2 1.3 ... 1.9
  assert_float_equal(ticks[0], 1.2e6, 1e-3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_page_is_well_formed_and_has_every_section),
      cmocka_unit_test(the_page_is_self_contained),
      cmocka_unit_test(names_are_escaped),
      cmocka_unit_test(the_same_page_has_the_same_bytes),
      cmocka_unit_test(charts_have_a_row_for_each_stage_and_a_point_for_each_number_of_devices),
      cmocka_unit_test(a_page_without_plan_states_it_and_has_the_rest),
      cmocka_unit_test(scales_map_ends_to_ends_and_have_round_ticks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
