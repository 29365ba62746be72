// SPDX-License-Identifier: Apache-2.0
// From options and ranks to a runtime.
#include "cli/model_engine.h"

#include <stdio.h>

#include "base/text.h"
#include "cli/output.h"

static void print_notes(const ot_opened_model *model, const ot_runtime *runtime) {
  const ot_model_files *const files = &model->files;
  ot_output_notes(&files->notes);
  if (model->note) fprintf(stderr, "note: %s\n", model->note);
  if (files->note) fprintf(stderr, "note: %s\nreading %s\n", files->note, files->path);
  const char *const note = ot_runtime_note(runtime);
  if (note) fprintf(stderr, "note: %s\n", note);
}

// As many ranks of a stage share out the experts as their number allows, and the others their
// columns.
static ot_status find_shards(const ot_model *model, int ranks, int pp, ot_run_parallel *p) {
  OT_CHECK(ranks % pp == 0, OT_RANKS, "--pp %d does not divide %d rank%s", pp, ranks,
           ot_text_plural(ranks, "s"));
  *p = (ot_run_parallel){
      .tp = ranks / pp, .pp = pp, .vpp = 1, .cp = 1, .ep = 1, .etp = 1, .dp_replicate = 1};
  if (model->moe.num_experts == 0) return OT_OK;
  for (int ep = 1; ep <= p->tp; ep++) {
    if (p->tp % ep == 0 && model->moe.num_experts % ep == 0) p->ep = ep;
  }
  p->etp = p->tp / p->ep;
  return OT_OK;
}

static int64_t multiple_of(int ranks, int64_t value) { return (value + ranks - 1) / ranks * ranks; }

// Rank 0 tells the shape; every rank of a stage has the same number of rows.
static ot_status share_shape(ot_world *world, ot_inference_shape *shape) {
  const bool leads = ot_world_is_leader(world);
  const int ranks = ot_world_degree(world, OT_AXIS_TP);
  double values[] = {(double)shape->slots, (double)shape->chunk, (double)shape->positions,
                     (double)shape->pages};
  for (int i = 0; i < OT_COUNT(values) && !leads; i++) values[i] = 0;
  OT_TRY(ot_world_allreduce(world, values, OT_COUNT(values)));
  *shape = (ot_inference_shape){.slots = multiple_of(ranks, (int64_t)values[0]),
                                .chunk = multiple_of(ranks, (int64_t)values[1]),
                                .positions = (int64_t)values[2],
                                .pages = (int64_t)values[3]};
  return OT_OK;
}

static ot_status load(const ot_model_files *files, const ot_runtime_request *request,
                      ot_runtime **out) {
  bool damaged = false;
  ot_runtime_request wanted = *request;
  wanted.rank.graph.model = &files->model;
  OT_TRY(ot_runtime_create(&wanted, out));
  return ot_comm_agree(request->comm, ot_runtime_load_weights(*out, files, &damaged));
}

ot_status ot_model_engine_create(const ot_model_engine_request *request, ot_model_engine *out) {
  const ot_options *const o = request->options;
  const int ranks = ot_comm_size(request->comm);
  ot_run_parallel parallel;
  *out = (ot_model_engine){0};
  OT_TRY(find_shards(&request->model->files.model, ranks, (int)ot_options_integer(o, "pp"),
                     &parallel));
  if (ranks > 1) OT_TRY(ot_world_create(&parallel, request->comm, &out->world));
  OT_TRY(ot_world_agree(out->world, request->status));
  ot_inference_shape shape = request->shape;
  OT_TRY(share_shape(out->world, &shape));
  ot_runtime_request wanted = {
      .rank = {.graph = {.compute = OT_F32,
                         .storage = OT_F32,
                         .backend = ot_runtime_choose_device(
                             (ot_run_device)ot_options_choice(o, "device"), ranks),
                         .threads = (int)ot_options_integer(o, "threads")},
               .schedule = {.mesh = ot_world_mesh(out->world), .rank = ot_world_rank(out->world)}},
      .may_fall_back = ranks == 1 && ot_options_choice(o, "device") == OT_DEVICE_AUTO,
      .comm = ot_world_comm(out->world)};
  if (wanted.rank.graph.threads == 0 && ranks > 1)
    wanted.rank.graph.threads = ot_world_threads(out->world);
  ot_inference_complete(&shape, &wanted.rank);
  OT_TRY(ranks > 1 ? load(&request->model->files, &wanted, &out->runtime)
                   : ot_model_files_runtime(&request->model->files, &wanted, &out->runtime));
  if (ot_world_is_leader(out->world)) print_notes(request->model, out->runtime);
  return OT_OK;
}

void ot_model_engine_destroy(ot_model_engine *engine) {
  ot_runtime_destroy(&engine->runtime);
  ot_world_destroy(&engine->world);
}
