// SPDX-License-Identifier: Apache-2.0
// Planned seconds of a full run at the target: the planner's best layout, for each arm its own.
#include <math.h>

#include "answer/question.h"
#include "base/dtype.h"
#include "base/text.h"
#include "describe/model_keys.h"
#include "host/heap.h"
#include "ledger/contamination.h"

static ot_status load_cluster(const ot_ledger *ledger, ot_arena *arena, ot_cluster *cluster) {
  const ot_ledger_planned *const p = &ledger->policy.planned;
  bool found;
  OT_TRY(ot_cluster_file_load(p->cluster, &ledger->presets, arena, cluster, &found));
  OT_CHECK(found, OT_ENVIRONMENT, "planned.cluster: %s was never measured (`orthant bench`)",
           p->cluster);
  return OT_OK;
}

// The settings of the target with those of a change, and those of a precision as the planner has
// it.
static ot_status load(const ot_ledger *ledger, const ot_ledger_sets *sets, const char *precision,
                      ot_arena *arena, ot_config *config) {
  const int count = sets ? sets->count : 0;
  const char **const all = ot_arena_array(arena, count + 1, sizeof *all);
  for (int i = 0; i < count; i++) all[i] = sets->text[i];
  all[count] = precision;
  const ot_config_request request = {.path = ledger->policy.planned.scale,
                                     .sets = all,
                                     .num_sets = count + (precision != NULL),
                                     .presets = ledger->presets};
  return ot_config_load(&request, arena, config);
}

static const char *precision_of(const ot_plan_request *request, ot_arena *arena) {
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_node_write_json(ot_plan_request_precision(request, arena), NULL, &json);
  return ot_arena_format(arena, "precision=%s", json.text);
}

static ot_status plan(const ot_ledger *ledger, const ot_ledger_sets *sets, ot_arena *arena,
                      double *seconds) {
  const ot_ledger_planned *const p = &ledger->policy.planned;
  ot_config config;
  ot_cluster cluster;
  ot_plan_page page;
  ot_plan_request *const request = ot_arena_take(arena, sizeof *request);
  OT_TRY(load_cluster(ledger, arena, &cluster));
  OT_TRY(load(ledger, sets, NULL, arena, &config));
  const ot_run *const run = &config.run;
  const ot_question question = {.cluster = &cluster,
                                .engine = &ot_engine_orthant,
                                .precision = ot_dtype_name(run->precision.compute),
                                .devices = p->gpus,
                                .global_batch_size = run->batch.global_batch_size,
                                .sequence_length = run->data.sequence_length,
                                .tokens = ot_run_tokens_after(run, ot_run_total_steps(run)),
                                .expert_imbalance = 1,
                                .given = {.zero = -1, .pipeline = -1, .recompute = -1}};
  OT_TRY(ot_plan_request_begin(&question, arena, request));
  OT_TRY(load(ledger, sets, precision_of(request, arena), arena, &config));
  request->run = *run;
  request->settings = config.settings;
  request->has_run = true;
  request->model_name = "target";
  OT_TRY(ot_plan_request_end(arena, request));
  const ot_plan_build build = {.request = request, .brief = true};
  OT_TRY(ot_plan_page_build(&build, arena, &page));
  OT_CHECK(page.num_plans > 0, OT_FINDINGS, "planned: no layout of %s fits", p->scale);
  *seconds = page.plans[0].estimate->step_s * (double)page.steps;
  return OT_OK;
}

ot_status ot_ledger_plan_target(const ot_ledger *ledger, const ot_ledger_change *change,
                                ot_ledger_target *out) {
  *out = (ot_ledger_target){NAN, NAN};
  if (ledger->policy.planned.cluster[0] == '\0') return OT_OK;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status = plan(ledger, NULL, &arena, &out->base_s);
  if (status == OT_OK) status = plan(ledger, &change->sets, &arena, &out->change_s);
  ot_heap_release(&heap);
  return status;
}
