// SPDX-License-Identifier: Apache-2.0
// run: alone. What software can run: the search stays inside, a given value outside is refused with
// the software that has it, and engine files agree with each other. Expected facts are from the
// documentation of the software, cited in its file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "estimate/framework.h"
#include "search/search.h"
#include "software/ability_check.h"
#include "support/paper_job.h"

static const ot_candidate nothing = {
    .zero = -1, .pipeline = (ot_pipeline)-1, .recompute = (ot_recompute)-1};

static void create(const char *model, const char *engine, int devices, paper_job *out) {
  paper_job_create(model, devices, 64, 2048, out);
  out->job.engine = paper_engine(engine);
  out->job.given = nothing;
}

// ---- the search ----

static void assert_inside(const ot_engine *engine, const ot_candidate *c) {
  char text[256];
  const ot_abilities *const a = &engine->runs;
  const char stage[] = {(char)('0' + c->zero), '\0'};
  ot_candidate_print(c, text, sizeof text);
  const bool inside =
      (c->tp == 1 || ot_names_allow(&a->axes, "tp")) &&
      (c->pp == 1 || ot_names_allow(&a->axes, "pp")) &&
      (c->cp == 1 || ot_names_allow(&a->axes, "cp")) &&
      (c->pp == 1 || ot_names_allow(&a->pipelines, ot_pipeline_name(c->pipeline))) &&
      (c->dp == 1 || ot_names_allow(&a->zero, stage)) &&
      (c->dp == 1 || c->pp == 1 || ot_names_allow(&a->zero_with_pp, stage)) &&
      (c->dp == 1 || c->tp * c->cp == 1 || ot_names_allow(&a->zero_with_tp, stage)) &&
      ot_names_allow(&a->recompute, ot_recompute_names[c->recompute]) &&
      (c->modules == 0 || a->modules.num > 0);
  if (!inside) fail_msg("engine %s: %s", engine->name, text);
}

static void plans_stay_inside_what_the_software_runs(void **state) {
  (void)state;
  const ot_engine *engine;
  for (int i = 1; (engine = paper_engine_at(i)) != NULL; i++) {
    const bool gpt = ot_names_allow(&engine->runs.families, "gpt2");
    paper_job p;
    ot_search found;
    create(gpt ? "gpt2-xl" : "llama2-7b", engine->name, 8, &p);
    p.job.sequence_length = 1024;
    p.cluster.device.flops[OT_F16] = p.cluster.device.flops[OT_BF16];
    p.job.recipe = *ot_recipe_find(engine->recipe);
    const ot_search_request request = {.job = &p.job, .top = 40, .distinct = true};
    if (ot_search_build(&request, &p.arena, &found) != OT_OK) fail_msg("%s", ot_fail_message());
    assert_true(found.num_plans > 0);
    for (int k = 0; k < found.num_plans; k++) assert_inside(engine, &found.plans[k].candidate);
    paper_job_destroy(&p);
  }
}

// ---- refusals ----

typedef struct refusal {
  const char *model, *engine;
  int devices;
  int tp, pp, zero, pipeline, recompute;  // 0, -1: not given
  const char *recipe;                     // null: the engine's own
  const char *message;                    // null: it runs
} refusal;

static void a_given_value_outside_names_the_capability_and_who_has_it(void **state) {
  (void)state;
  enum { ANY = -1 };
  static const refusal cases[] = {
      // Megatron-LM has no zero-bubble schedule (core/pipeline_parallel/schedules.py).
      {"llama2-7b", "megatron-core", 8, 0, 2, ANY, OT_PIPELINE_ZB_V, ANY, NULL,
       "engine megatron-core (Megatron-core) does not support zb-v; "
       "supported by the zero-bubble fork of sail-sg, torchtitan (engine torchtitan)"},
      {"llama2-7b", "megatron-core", 8, 0, 0, 3, ANY, ANY, NULL, "(engine megatron-bridge)"},
      // DeepSpeed's pipeline engine excludes ZeRO 2 and 3 (runtime/pipe/engine.py).
      {"gpt2-xl", "megatron-deepspeed", 8, 0, 2, 2, ANY, ANY, NULL,
       "does not support zero 2; supported by DeepSpeed without pp"},
      {"llama2-7b", "megatron-bridge", 8, 0, 2, 3, ANY, ANY, NULL,
       "does not support zero 3 with pp; supported by torchtitan"},
      {"llama2-7b", "megatron-bridge", 8, 0, 1, 3, ANY, ANY, NULL, NULL},
      // parallelize.py of torchtitan: no plain data parallelism next to other axes.
      {"llama3-8b", "torchtitan", 8, 2, 0, 0, ANY, ANY, NULL,
       "does not support zero 0 with tp; supported: 2, 3"},
      {"llama3-8b", "torchtitan", 8, 0, 2, ANY, OT_PIPELINE_ZB_V, ANY, NULL, NULL},
      {"llama2-7b", "fsdp", 8, 2, 0, ANY, ANY, ANY, NULL,
       "engine fsdp (llm-foundry 0.1 to 0.4) does not support tp; supported by torchtitan"},
      {"llama2-7b", "nanotron", 8, 0, 0, ANY, ANY, OT_RECOMPUTE_SELECTIVE, NULL,
       "does not support recompute selective"},
      {"mixtral-8x7b", "nanotron", 8, 0, 0, ANY, ANY, ANY, NULL,
       "does not support mixtral; supported by Megatron-core (engine megatron-core)"},
      {"llama2-7b", "deepspeed", 8, 0, 0, ANY, ANY, ANY, "fp8", "does not support fp8"},
      {"llama2-7b", "llmq", 16, 0, 0, ANY, ANY, ANY, NULL,
       "runs on 1 host: 16 devices of paper are on 2 (try --gpus 8)"},
      {"gpt2-xl", "jax", 8, 0, 0, 2, ANY, ANY, NULL, "does not support zero 2; supported: 0, 1, 3"},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    paper_job p;
    create(cases[i].model, cases[i].engine, cases[i].devices, &p);
    p.job.given = (ot_candidate){.tp = cases[i].tp,
                                 .pp = cases[i].pp,
                                 .zero = cases[i].zero,
                                 .pipeline = (ot_pipeline)cases[i].pipeline,
                                 .recompute = (ot_recompute)cases[i].recompute};
    p.job.recipe = *ot_recipe_find(cases[i].recipe ? cases[i].recipe : p.job.engine->recipe);
    const ot_status status = ot_ability_check_job(&p.job);
    if ((status == OT_OK) != (cases[i].message == NULL)) fail_msg("case %d", i);
    if (status != OT_OK && !ot_text_find(ot_fail_message(), cases[i].message)) {
      fail_msg("case %d: \"%s\" is not in \"%s\"", i, cases[i].message, ot_fail_message());
    }
    paper_job_destroy(&p);
  }
}

static void orthant_has_no_limits_of_an_engine(void **state) {
  (void)state;
  paper_job p;
  create("llama2-7b", "orthant", 16, &p);
  p.job.given.zero = 3;
  p.job.given.pipeline = OT_PIPELINE_ZB_V;
  assert_int_equal(ot_ability_check_job(&p.job), OT_OK);
  paper_job_destroy(&p);
}

// ---- engine files ----

// Whether `a` has the capability that `elsewhere` would call `what`.
static bool has(const ot_abilities *a, const char *what) {
  char stage[2] = {0};
  if (ot_text_starts_with(what, "zero ")) {
    stage[0] = what[5];
    const bool runs = ot_names_allow(&a->zero, stage);
    if (ot_text_ends_with(what, " with pp")) return runs && ot_names_allow(&a->zero_with_pp, stage);
    if (ot_text_ends_with(what, " with tp")) return runs && ot_names_allow(&a->zero_with_tp, stage);
    return runs;
  }
  if (ot_text_starts_with(what, "recompute ")) return ot_names_allow(&a->recompute, what + 10);
  if (strlen(what) == 2) return ot_names_allow(&a->axes, what);
  if (ot_text_starts_with(what, "fp") || ot_text_equal(what, "bf16"))
    return ot_names_allow(&a->precisions, what);
  for (int i = 0; ot_pipeline_names[i]; i++) {
    if (ot_text_equal(ot_pipeline_names[i], what)) return ot_names_allow(&a->pipelines, what);
  }
  return ot_names_allow(&a->families, what);
}

// Each "engine NAME" in `where` runs `what`.
static void assert_named_engines_have(const char *what, const char *where) {
  for (const char *at = where; (at = strstr(at, "engine ")) != NULL;) {
    char name[64] = "";
    at += strlen("engine ");
    const size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789.-");
    assert_true(length > 0 && length < sizeof name);
    memcpy(name, at, length);
    if (ot_text_equal(name, "with")) continue;
    if (!has(&paper_engine(name)->runs, what))
      fail_msg("engine %s does not support %s", name, what);
  }
}

static void what_is_elsewhere_is_lacking_here_and_had_there(void **state) {
  (void)state;
  const ot_engine *engine;
  int count = 0;
  for (int i = 1; (engine = paper_engine_at(i)) != NULL; i++) {
    const ot_abilities *const a = &engine->runs;
    for (int64_t k = 0; k < a->num_elsewhere; k++, count++) {
      if (has(a, a->elsewhere[k].what)) {
        fail_msg("engine %s supports %s", engine->name, a->elsewhere[k].what);
      }
      assert_named_engines_have(a->elsewhere[k].what, a->elsewhere[k].where);
    }
  }
  assert_true(count > 60);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plans_stay_inside_what_the_software_runs),
      cmocka_unit_test(a_given_value_outside_names_the_capability_and_who_has_it),
      cmocka_unit_test(orthant_has_no_limits_of_an_engine),
      cmocka_unit_test(what_is_elsewhere_is_lacking_here_and_had_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
