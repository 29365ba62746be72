// SPDX-License-Identifier: Apache-2.0
// Training runs for tests of audits.
#include "support/audit_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/math.h"
#include "base/rng.h"
#include "support/scratch.h"
#include "support/shards.h"

typedef struct world {
  const audit_request *request;
  ot_run run;
  audit_body body;
  void *context;
} world;

ot_model audit_model(int kv_heads, bool tied) {
  ot_model model = tiny_llama();
  model.num_layers = 2;
  model.vocab_size = 300;
  model.hidden_size = 32;
  model.num_heads = 4;
  model.num_kv_heads = kv_heads;
  model.attention_scale = 1 / ot_sqrt(8);
  model.tie_word_embeddings = tied;
  return model;
}

static int degree(int asked) { return asked > 1 ? asked : 1; }

void audit_write_tokens(const char *directory, bool documents) {
  static int32_t ids[AUDIT_TOKENS];
  for (int i = 0; i < AUDIT_TOKENS; i++) {
    const uint64_t draw = ot_rng_below(3, 1, (uint64_t)i, 280);
    ids[i] = documents ? (int32_t)draw : (int32_t)(draw % AUDIT_DOCUMENT_END);
    if (ids[i] > AUDIT_DOCUMENT_END) ids[i] = AUDIT_DOCUMENT_END;
  }
  shard_write_llmc(directory, "tokens.bin", ids, AUDIT_TOKENS, 0);
}

static ot_run settings_of(const audit_request *r, ot_data_source *source) {
  ot_run run = tiny_run(&r->model);
  ot_recompute *const none = run.parallel.recompute;
  bool *const always = run.parallel.reshard;
  run.parallel = (ot_run_parallel){.tp = degree(r->tp),
                                   .pp = degree(r->pp),
                                   .vpp = 1,
                                   .cp = degree(r->cp),
                                   .ep = degree(r->ep),
                                   .etp = 1,
                                   .dp_replicate = degree(r->dp_replicate),
                                   .zero = r->zero,
                                   .watchdog_seconds = r->watchdog_seconds,
                                   .accumulate = r->accumulate,
                                   .pipeline = OT_PIPELINE_1F1B,
                                   .recompute = none,
                                   .num_recompute = 1,
                                   .layout = "",
                                   .order_csv = "",
                                   .prefetch = 1,
                                   .reshard = always,
                                   .num_reshard = 1};
  run.data = (ot_run_data){.train = source,
                           .num_train = 1,
                           .tokenizer = r->documents ? "bytes" : "",
                           .sequence_length = 16,
                           .document_mask = true};
  run.batch = (ot_run_batch){.global_batch_size = r->batch, .micro_batch_size = r->micro_batch};
  if (r->fp64) {
    run.precision = (ot_run_precision){OT_F64, OT_F64, OT_F64, OT_F64, OT_F64, OT_F64, OT_SUM_WIDE};
  }
  if (r->bf16) run.precision.params = OT_BF16;
  if (r->bf16_on_wire) {
    run.precision.reduce = OT_BF16;
    run.precision.sum = OT_SUM_WIRE;
  }
  run.init = "random";
  run.steps = 1000;
  run.seed = 5;
  run.threads = r->threads > 0 ? r->threads : 1;
  if (r->settings) r->settings(&run, r->settings_context);
  return run;
}

static ot_status run_rank(ot_comm *comm, void *context) {
  world *const w = context;
  audit_rank rank = {.request = w->request, .run = &w->run, .comm = comm, .context = w->context};
  rank.rank = ot_comm_rank(comm);
  rank.ranks = ot_comm_size(comm);
  OT_TRY(ot_world_create(&w->run.parallel, comm, &rank.world));
  ot_status status =
      ot_trainer_create_hooked(&w->run, rank.world, w->request->hooks, &rank.trainer);
  if (status == OT_OK) status = w->body(&rank);
  ot_trainer_destroy(&rank.trainer);
  ot_world_destroy(&rank.world);
  return status;
}

ot_status audit_run(const audit_request *request, audit_body body, void *context) {
  char directory[SCRATCH_BYTES];
  scratch_create(directory);
  audit_write_tokens(directory, request->documents);
  ot_data_source source = {.path = scratch_path(directory, "tokens.bin"), .weight = 1};
  world w = {
      .request = request, .run = settings_of(request, &source), .body = body, .context = context};
  const int ranks = degree(request->pp) * degree(request->dp_replicate) *
                    degree(request->dp_shard) * degree(request->cp) * degree(request->tp);
  const ot_status status = ot_comm_run_threads(ranks, run_rank, &w);
  scratch_destroy(directory);
  return status;
}

static void keep(char *to, size_t bytes, const char *text) {
  snprintf(to, bytes, "%s", text ? text : "");
}

void audit_copy_report(const ot_audit_report *report, audit_outcome *said) {
  *said = (audit_outcome){.verdict = report->verdict, .num_findings = report->num_findings};
  keep(said->summary, sizeof said->summary, report->summary);
  keep(said->figures, sizeof said->figures, report->figures);
  keep(said->table, sizeof said->table, report->table);
  if (report->num_findings == 0) return;
  keep(said->what, sizeof said->what, report->findings[0].what);
  keep(said->where, sizeof said->where, report->findings[0].where);
}

typedef struct asking {
  ot_audit_call call;
  const ot_audit_request *how;
  audit_outcome said;
} asking;

static ot_status ask(audit_rank *rank) {
  asking *const a = rank->context;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_audit_report report;
  ot_audit_request request = *a->how;
  request.trainer = rank->trainer;
  const ot_status status = a->call(&request, &arena, &report);
  if (status == OT_OK && ot_world_is_leader(rank->world)) {
    audit_copy_report(&report, &a->said);
    a->said.report_bytes = heap.bytes;
  }
  ot_heap_release(&heap);
  return status;
}

audit_outcome audit_run_one(const audit_request *request, ot_audit_call call,
                            const ot_audit_request *how) {
  asking a = {.call = call, .how = how};
  if (audit_run(request, ask, &a) != OT_OK) fail_msg("%s", ot_fail_message());
  return a.said;
}

audit_request audit_dense_request(int layers) {
  audit_request request = {.batch = 2, .micro_batch = 1, .model = audit_model(2, false)};
  request.model.num_layers = layers;
  return request;
}

audit_request audit_moe_request(int layers, int experts) {
  audit_request request = audit_dense_request(layers);
  ot_model *const model = &request.model;
  model->family = OT_FAMILY_MIXTRAL;
  model->model_type = ot_family_name(OT_FAMILY_MIXTRAL);
  model->architecture = ot_family_architecture(OT_FAMILY_MIXTRAL);
  model->moe = (ot_moe){.num_experts = experts,
                        .experts_per_token = 2,
                        .expert_size = 24,
                        .layer = {true, true},
                        .renormalise = true,
                        .scale = 1,
                        .num_groups = 1,
                        .groups_per_token = 1,
                        .capacity_factor = 1};
  model->intermediate_size = model->moe.expert_size;  // config.json has one size
  return request;
}

ot_status audit_step(audit_rank *rank, ot_step_report *report) {
  return ot_trainer_step(rank->trainer, report);
}

const char *audit_describe(const audit_request *r) {
  static char text[128];
  snprintf(text, sizeof text, "pp %d dp %dx%d cp %d tp %d ep %d zero %d %s", degree(r->pp),
           degree(r->dp_replicate), degree(r->dp_shard), degree(r->cp), degree(r->tp),
           degree(r->ep), r->zero, r->model.tie_word_embeddings ? "tied" : "untied");
  return text;
}
