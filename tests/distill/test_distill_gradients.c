// SPDX-License-Identifier: Apache-2.0
// run: any machine. A whole model that learns from a teacher, on one rank and on tp, cp, pp and
// both: loss and the gradient of every parameter are those of transformers and PyTorch in float64
// (tools/make_distill_fixtures.py), by each objective of distillation.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "data/micro_batch.h"
#include "runtime/model_files.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

static const double tolerance = 1e-12;

typedef struct objective {
  const char *name;  // in the fixture
  ot_distill_objective kind;
  double alpha;
} objective;

static const objective objectives[] = {
    {"sampled", OT_DISTILL_SAMPLED, 1},
    {"mixed", OT_DISTILL_SAMPLED, 0.75},
    {"top_k", OT_DISTILL_TOP_K, 1},
    {"reverse_kl", OT_DISTILL_REVERSE_KL, 0.75},
};

typedef struct layout {
  int tp, cp, pp;
  ot_context_parallel context;
} layout;

static const layout layouts[] = {
    {1, 1, 1, OT_CONTEXT_RING},    {2, 1, 1, OT_CONTEXT_RING}, {1, 2, 1, OT_CONTEXT_RING},
    {1, 2, 1, OT_CONTEXT_ULYSSES}, {2, 2, 1, OT_CONTEXT_RING}, {2, 1, 2, OT_CONTEXT_RING},
};

typedef struct world {
  const objective *o;
  const layout *at;
  ot_heap heap;
  ot_arena arena;
  const char *folder;
  ot_safetensors *reference;
  ot_run run;
  ot_mesh mesh;
  ot_micro_batch rows;
  double loss, data_loss, worst;  // found on rank 0
  const char *worst_name;
} world;

// ---- the fixture ----

static void *values(world *w, const char *name, ot_dtype dtype, int64_t *count) {
  const int index = ot_safetensors_find(w->reference, name);
  if (index < 0) fail_msg("no tensor %s", name);
  *count = ot_safetensors_tensor_at(w->reference, index)->elements;
  void *const to = ot_arena_take(&w->arena, *count * ot_dtype_bytes(dtype));
  const ot_safetensors_range range = {index, 0, *count};
  assert_int_equal(ot_safetensors_read(w->reference, range, dtype, to), OT_OK);
  return to;
}

static void *of_objective(world *w, const char *name, ot_dtype dtype, int64_t *count) {
  return values(w, ot_arena_format(&w->arena, "%s.%s", w->o->name, name), dtype, count);
}

static double number(world *w, const char *name) {
  int64_t count;
  return *(double *)of_objective(w, name, OT_F64, &count);
}

static void fill(world *w, const char *name, int32_t *to) {
  int64_t count;
  const int32_t *const from = values(w, name, OT_I32, &count);
  assert_int_equal(count, w->rows.B * w->rows.T);
  memcpy(to, from, (size_t)count * sizeof *to);
}

static void read_rows(world *w) {
  int64_t tokens, places;
  values(w, "tokens", OT_I32, &tokens);
  const int64_t B = 2, T = tokens / B;
  const int32_t *const ids = of_objective(w, "ids", OT_I32, &places);
  const float *const weights = of_objective(w, "weights", OT_F32, &places);
  assert_int_equal(ot_micro_batch_create_weighted(B, T, places / tokens, &w->rows), OT_OK);
  fill(w, "tokens", w->rows.tokens);
  fill(w, "targets", w->rows.targets);
  fill(w, "positions", w->rows.positions);
  fill(w, "doc_start", w->rows.doc_starts);
  memcpy(w->rows.ids, ids, (size_t)places * sizeof *ids);
  memcpy(w->rows.weights, weights, (size_t)places * sizeof *weights);
  for (int64_t b = 0; b < B; b++) w->rows.sample_ids[b] = b;
  for (int64_t i = 0; i < tokens; i++) w->rows.num_targets += w->rows.targets[i] >= 0;
}

// ---- a rank ----

static ot_status open_files(const char *folder, ot_arena *arena, ot_model_files *files) {
  static const ot_config_request no_settings = {0};
  return ot_model_files_open(folder, OT_CHECKPOINT_HASH_HEADERS, &no_settings, arena, files);
}

static ot_status create_runtime(const world *w, ot_comm *comm, ot_runtime **runtime) {
  static const int micro_batches = 1;
  const ot_runtime_request request = {
      .rank = {.modes = 1u << OT_MODE_TRAIN,
               .graph = {.model = &w->run.model,
                         .micro_batch_size = w->rows.B,
                         .sequence_length = w->rows.T,
                         .compute = OT_F64,
                         .storage = OT_F64,
                         .threads = 1,
                         .head_chunk_rows = 5},
               .schedule = {.run = &w->run,
                            .micro_batches = &micro_batches,
                            .num_micro_batches = 1,
                            .mesh = w->mesh.ranks > 1 ? &w->mesh : NULL,
                            .rank = ot_comm_rank(comm)}},
      .comm = w->mesh.ranks > 1 ? comm : NULL};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_model_files files;
  bool damaged;
  OT_TRY(ot_runtime_create(&request, runtime));
  ot_status status = open_files(w->folder, &arena, &files);
  if (status == OT_OK) status = ot_runtime_load_weights(*runtime, &files, &damaged);
  ot_heap_release(&heap);
  return status;
}

static ot_status load(const world *w, ot_runtime *runtime, int rank) {
  const ot_sequence_shard piece = {.size = w->at->cp,
                                   .index = ot_mesh_coordinate(&w->mesh, rank, OT_AXIS_CP),
                                   .context = w->at->context};
  ot_micro_batch part;
  OT_TRY(ot_micro_batch_create_weighted(w->rows.B, w->rows.T / piece.size, w->rows.K, &part));
  if (piece.size > 1) ot_micro_batch_shard(&w->rows, &piece, &part);
  const ot_micro_batch *const own = piece.size > 1 ? &part : &w->rows;
  const void *const fields[] = {
      [OT_BATCH_TOKENS] = own->tokens,         [OT_BATCH_TARGETS] = own->targets,
      [OT_BATCH_POSITIONS] = own->positions,   [OT_BATCH_DOC_STARTS] = own->doc_starts,
      [OT_BATCH_SAMPLE_IDS] = own->sample_ids, [OT_BATCH_IDS] = own->ids,
      [OT_BATCH_WEIGHTS] = own->weights};
  for (int i = 0; i < OT_COUNT(fields); i++) {
    ot_runtime_load_batch(runtime, OT_MODE_TRAIN, 0, (ot_batch_field)i, fields[i]);
  }
  ot_executor *const executor = ot_runtime_executor(runtime);
  ot_executor_set_scalar(executor, OT_SCALAR_TARGETS, (double)own->num_targets);
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE, 0);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_1, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_CORRECTION_2, 1);
  ot_executor_set_scalar(executor, OT_SCALAR_INVERSE_SEQUENCES, 1.0 / (double)own->B);
  ot_micro_batch_release(&part);
  return OT_OK;
}

// max |a - b| / max |b| of a part, which llama's files hold as whole rows.
static void compare_part(world *w, const ot_parameter *p, int k, const double *found) {
  const ot_parameter_part *const part = &p->parts[k];
  int64_t count;
  const char *const name = ot_arena_format(&w->arena, "grad.%s", part->hf_name);
  const double *const wanted = of_objective(w, name, OT_F64, &count);
  double most = 0, differs = 0;
  assert_true(!part->transposed && !part->interleaved && count == part->hf_rows * p->cols);
  for (int64_t i = 0; i < part->rows * p->cols; i++) {
    const double own = found[part->first_row * p->cols + i];
    const double other = wanted[part->hf_first * p->cols + i];
    most = fmax(most, fabs(other));
    differs = fabs(own - other) > differs || isnan(own) ? fabs(own - other) : differs;
  }
  if (differs / most <= w->worst) return;
  w->worst = differs / most;
  w->worst_name = ot_arena_format(&w->arena, "%s", part->hf_name);
}

static ot_status compare(world *w, ot_runtime *runtime, bool leads) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const ot_parameter_rows range = {i, OT_COPY_GRADIENT, 0, p->rows};
    const int64_t bytes = p->rows * p->cols * (int64_t)sizeof(double);
    double *const found = leads ? ot_arena_take(&w->arena, bytes) : NULL;
    OT_TRY(ot_runtime_read(runtime, &range, found));
    for (int k = 0; leads && k < p->num_parts; k++) compare_part(w, p, k, found);
  }
  if (!leads) return OT_OK;
  const ot_executor *const executor = ot_runtime_executor(runtime);
  w->loss = ot_executor_scalar(executor, OT_SCALAR_LOSS);
  w->data_loss = ot_executor_scalar(executor, OT_SCALAR_EVALUATE_LOSS);
  return OT_OK;
}

static ot_status run_rank(ot_comm *comm, void *context) {
  world *const w = context;
  const int rank = ot_comm_rank(comm);
  ot_runtime *runtime = NULL;
  ot_status status = create_runtime(w, comm, &runtime);
  if (status == OT_OK) status = load(w, runtime, rank);
  if (status == OT_OK) status = ot_runtime_run(runtime, OT_MODE_TRAIN, 1);
  if (status == OT_OK) status = compare(w, runtime, rank == 0);
  ot_runtime_destroy(&runtime);
  return status;
}

// ---- tests ----

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s (%s)", ot_fail_message(), ot_fail_chain());
}

static void begin(world *w, const objective *o, const layout *at) {
  ot_model_files files;
  *w = (world){.o = o, .at = at, .worst_name = ""};
  w->arena = ot_heap_arena_create(&w->heap);
  w->folder = ot_arena_format(&w->arena, "%s/tests/fixtures/distill_model", source_directory());
  must(open_files(w->folder, &w->arena, &files));
  must(ot_safetensors_create(ot_arena_format(&w->arena, "%s/reference.safetensors", w->folder), "",
                             &w->reference));
  read_rows(w);
  w->run = tiny_run(&files.model);
  w->run.precision = (ot_run_precision){.compute = OT_F64,
                                        .params = OT_F64,
                                        .gradients = OT_F64,
                                        .master = OT_F64,
                                        .moments = OT_F64,
                                        .reduce = OT_F64,
                                        .sum = OT_SUM_WIDE};
  w->run.data.sequence_length = w->rows.T;
  w->run.distill =
      (ot_run_distill){.objective = o->kind, .targets = w->rows.K, .draws = 20, .alpha = o->alpha};
  w->run.parallel.tp = at->tp;
  w->run.parallel.cp = at->cp;
  w->run.parallel.pp = at->pp;
  w->run.parallel.vpp = w->run.parallel.ep = w->run.parallel.etp = 1;
  w->run.parallel.dp_replicate = 1;
  w->run.parallel.context = at->context;
  w->run.parallel.pipeline = OT_PIPELINE_1F1B;
  w->run.parallel.layout = w->run.parallel.order_csv = "";
  must(ot_mesh_build(&w->run.parallel, at->tp * at->cp * at->pp, &w->mesh));
}

static void end(world *w) {
  ot_safetensors_destroy(&w->reference);
  ot_micro_batch_release(&w->rows);
  ot_heap_release(&w->heap);
}

static void gradients_of_a_model_are_those_of_pytorch(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(objectives) * OT_COUNT(layouts); i++) {
    const objective *const o = &objectives[i / OT_COUNT(layouts)];
    const layout *const at = &layouts[i % OT_COUNT(layouts)];
    world w;
    begin(&w, o, at);
    must(ot_comm_run_threads(w.mesh.ranks, run_rank, &w));
    const double loss = number(&w, "loss"), data = number(&w, "data_loss");
    print_message("%-10s tp%d cp%d pp%d: gradients %.1e (%s), loss %.1e\n", o->name, at->tp, at->cp,
                  at->pp, w.worst, w.worst_name, fabs(w.loss / loss - 1));
    assert_true(w.worst > 0 && w.worst < tolerance);
    assert_true(fabs(w.loss - loss) < tolerance * fabs(loss));
    assert_true(fabs(w.data_loss - data) < tolerance * fabs(data));
    end(&w);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_of_a_model_are_those_of_pytorch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
