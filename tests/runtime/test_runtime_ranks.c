// SPDX-License-Identifier: Apache-2.0
// run: any machine. A sharded model equals the model of one rank, parameter by parameter: its
// initial weights bit for bit, and every copy after it is written, whatever is sharded or
// replicated. Ranks are threads and report errors as a status; the test's thread asserts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "runtime/model_runtime.h"
#include "support/tiny_model.h"

typedef struct layout {
  const char *name;
  int ranks;
  ot_run_parallel parallel;
  bool muon;  // the matrices are whole on every rank
} layout;

static const layout layouts[] = {
    {"zero 0", 2, {.tp = 1, .pp = 1, .cp = 1, .zero = 0}, true},
    {"replicas", 2, {.tp = 1, .pp = 1, .cp = 1, .zero = 1, .dp_replicate = 2}, true},
    {"zero 1", 2, {.tp = 1, .pp = 1, .cp = 1, .zero = 1}, false},
    {"zero 2 with replicas", 4, {.tp = 1, .pp = 1, .cp = 1, .zero = 2, .dp_replicate = 2}, false},
    {"zero 3", 4, {.tp = 1, .pp = 1, .cp = 1, .zero = 3}, false},
    {"tp 2", 2, {.tp = 2, .pp = 1, .cp = 1, .zero = 1}, false},
    {"tp 4", 4, {.tp = 4, .pp = 1, .cp = 1, .zero = 1}, false},
    {"cp 2", 2, {.tp = 1, .pp = 1, .cp = 2, .zero = 1}, true},
    {"cp 2, zero 3", 4, {.tp = 1, .pp = 1, .cp = 2, .zero = 3}, false},
    {"pp 2", 2, {.tp = 1, .pp = 2, .cp = 1, .zero = 1}, true},
    {"tp 2, pp 2, zero 3", 8, {.tp = 2, .pp = 2, .cp = 1, .zero = 3}, false},
};

// Odd vocabulary, one KV head per two query heads: with tp 4, ranks share KV heads.
static ot_model model_of(bool tied_gpt2) {
  ot_model model = tied_gpt2 ? tiny_gpt2() : tiny_llama();
  model.num_heads = 4;
  model.num_kv_heads = tied_gpt2 ? 4 : 2;
  model.head_dim = 6;
  model.rotary_dim = tied_gpt2 ? 0 : 6;
  return model;
}

typedef struct setting {
  const layout *at;
  ot_model model;
  ot_run run;
  ot_dtype storage;
  const uint64_t *expected;  // [OT_BUCKET_COPIES] hashes of all parameters, or null
} setting;

static ot_status create(const setting *s, const ot_mesh *mesh, ot_comm *comm, ot_runtime **out) {
  static const int micro_batches = 2;
  const ot_runtime_request request = {.rank = {.modes = 1u << OT_MODE_TRAIN,
                                               .graph = {.model = &s->model,
                                                         .micro_batch_size = 1,
                                                         .sequence_length = 16,
                                                         .compute = OT_F32,
                                                         .storage = s->storage,
                                                         .threads = 1},
                                               .schedule = {.run = &s->run,
                                                            .micro_batches = &micro_batches,
                                                            .num_micro_batches = 1,
                                                            .mesh = mesh,
                                                            .rank = comm ? ot_comm_rank(comm) : 0}},
                                      .comm = comm};
  return ot_runtime_create(&request, out);
}

// ---- all elements of a copy ----

// Muon keeps no second moment of a matrix; a shard may have unused memory for it.
static bool is_kept(const setting *s, const ot_parameter *p, ot_parameter_copy copy) {
  const bool matrix = p->kind == OT_PARAMETER_MATRIX;
  return copy != OT_COPY_MOMENT_2 || ot_run_moments(&s->run, matrix) == 2;
}

// Reads every parameter some rows at a time.
static ot_status hash_copy(const setting *s, ot_runtime *runtime, ot_parameter_copy copy,
                           uint64_t *hash) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  const int64_t size = ot_dtype_bytes(ot_runtime_copy_dtype(runtime, copy));
  *hash = OT_HASH_START;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    if (p->tied_to >= 0 || !is_kept(s, p, copy)) continue;
    char *const rows = calloc((size_t)ot_parameter_elements(p), (size_t)size);
    ot_status status = OT_OK;
    for (int64_t first = 0; first < p->rows && status == OT_OK; first += 5) {
      const int64_t count = p->rows - first < 5 ? p->rows - first : 5;
      const ot_parameter_rows range = {i, copy, first, count};
      status = ot_runtime_read(runtime, &range, rows + first * p->cols * size);
    }
    *hash = ot_hash_bytes(*hash, rows, ot_parameter_elements(p) * size);
    free(rows);
    OT_TRY(status);
  }
  return OT_OK;
}

// Writes a distinct number to every element, exact in both types.
static void write_copy(ot_runtime *runtime, ot_parameter_copy copy) {
  const ot_graph *const graph = ot_runtime_whole_graph(runtime);
  const ot_dtype dtype = ot_runtime_copy_dtype(runtime, copy);
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    if (p->tied_to >= 0) continue;
    const int64_t n = ot_parameter_elements(p);
    float *const wide = calloc((size_t)n, sizeof *wide);
    uint16_t *const narrow = calloc((size_t)n, sizeof *narrow);
    for (int64_t e = 0; e < n; e++) {
      wide[e] = (float)((i * 7 + e * 13 + (int)copy) % 251);
      narrow[e] = ot_bf16_from_float(wide[e]);
    }
    const ot_parameter_rows range = {i, copy, 0, p->rows};
    ot_runtime_write(runtime, &range, dtype == OT_BF16 ? (void *)narrow : (void *)wide);
    free(wide);
    free(narrow);
  }
}

// Initial weights, then written copies: hashes[copy] and hashes[OT_BUCKET_COPIES + copy].
static ot_status hash_all(const setting *s, ot_runtime *runtime, uint64_t *hashes) {
  OT_TRY(ot_runtime_initialize(runtime, 11));
  for (int pass = 0; pass < 2; pass++) {
    for (int copy = 0; copy < OT_BUCKET_COPIES; copy++) {
      // A step leaves gradients in another form than they are written here.
      const bool kept = copy != OT_COPY_GRADIENT && ot_runtime_has_copy(runtime, copy);
      if (!kept) continue;
      if (pass == 1) write_copy(runtime, (ot_parameter_copy)copy);
      uint64_t *const hash = &hashes[pass * OT_BUCKET_COPIES + copy];
      OT_TRY(hash_copy(s, runtime, (ot_parameter_copy)copy, hash));
    }
  }
  return OT_OK;
}

static ot_status compare(ot_runtime *runtime, const setting *s) {
  uint64_t hashes[2 * OT_BUCKET_COPIES] = {0};
  OT_TRY(hash_all(s, runtime, hashes));
  for (int i = 0; i < 2 * OT_BUCKET_COPIES; i++) {
    OT_CHECK(hashes[i] == s->expected[i], OT_FINDINGS, "%s: copy %d %s are not those of one rank",
             s->at->name, i % OT_BUCKET_COPIES, i < OT_BUCKET_COPIES ? "at first" : "as written");
  }
  return OT_OK;
}

static ot_status run_rank(ot_comm *comm, void *context) {
  const setting *const s = context;
  ot_mesh mesh;
  ot_runtime *runtime = NULL;
  OT_TRY(ot_mesh_build(&s->run.parallel, ot_comm_size(comm), &mesh));
  OT_TRY(create(s, &mesh, comm, &runtime));
  const ot_status status = compare(runtime, s);
  ot_runtime_destroy(&runtime);
  return status;
}

// ---- tests ----

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s (%s)", ot_fail_message(), ot_fail_chain());
}

static void check_layouts(bool tied_gpt2, ot_dtype storage, ot_optimizer_name optimizer) {
  setting s = {.model = model_of(tied_gpt2), .storage = storage};
  uint64_t expected[2 * OT_BUCKET_COPIES] = {0};
  ot_runtime *one = NULL;
  s.run = tiny_run(&s.model);
  s.run.optimizer.name = optimizer;
  must(create(&s, NULL, NULL, &one));
  must(hash_all(&s, one, expected));
  ot_runtime_destroy(&one);
  s.expected = expected;
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    if (optimizer == OT_OPTIMIZER_MUON && !layouts[i].muon) continue;
    ot_run_parallel *const parallel = &s.run.parallel;
    ot_recompute *const recompute = parallel->recompute;
    s.at = &layouts[i];
    *parallel = layouts[i].parallel;
    parallel->vpp = parallel->ep = parallel->etp = 1;
    if (parallel->dp_replicate == 0) parallel->dp_replicate = 1;
    parallel->pipeline = OT_PIPELINE_1F1B;
    parallel->recompute = recompute;
    parallel->num_recompute = 1;
    parallel->prefetch = 1;
    parallel->accumulate = parallel->zero >= 2 ? OT_ACCUMULATE_SHARDED : OT_ACCUMULATE_WHOLE;
    const ot_status status = ot_comm_run_threads(layouts[i].ranks, run_rank, &s);
    if (status != OT_OK) fail_msg("%s: %s", layouts[i].name, ot_fail_message());
  }
}

static void untied_models_are_those_of_one_rank(void **state) {
  (void)state;
  check_layouts(false, OT_F32, OT_OPTIMIZER_ADAMW);
}

static void tied_models_with_turned_tensors_are_those_of_one_rank(void **state) {
  (void)state;
  check_layouts(true, OT_F32, OT_OPTIMIZER_ADAMW);
}

static void master_copies_are_those_of_one_rank(void **state) {
  (void)state;
  check_layouts(false, OT_BF16, OT_OPTIMIZER_ADAMW);
}

static void second_moments_of_a_part_of_a_block_are_those_of_one_rank(void **state) {
  (void)state;
  check_layouts(false, OT_F32, OT_OPTIMIZER_MUON);
  check_layouts(true, OT_F32, OT_OPTIMIZER_MUON);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(untied_models_are_those_of_one_rank),
      cmocka_unit_test(tied_models_with_turned_tensors_are_those_of_one_rank),
      cmocka_unit_test(master_copies_are_those_of_one_rank),
      cmocka_unit_test(second_moments_of_a_part_of_a_block_are_those_of_one_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
