// SPDX-License-Identifier: Apache-2.0
#include "support/plain_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "describe/model_keys.h"
#include "files/tree_file.h"
#include "support/scratch.h"

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s (%s)", ot_fail_message(), ot_fail_chain());
}

// ---- the fixture ----

static const char *path_of(plain_case *c, const char *file) {
  return ot_arena_format(&c->arena, "%s/tests/fixtures/parity/%s/%s", source_directory(), c->name,
                         file);
}

static void *tensor(plain_case *c, const char *name, ot_dtype dtype, int64_t *count) {
  const int index = ot_safetensors_find(c->reference, name);
  if (index < 0) fail_msg("%s: no tensor %s", c->name, name);
  *count = ot_safetensors_tensor_at(c->reference, index)->elements;
  void *const values = ot_arena_array(&c->arena, *count + 1, ot_dtype_bytes(dtype));
  must(ot_safetensors_read(c->reference, (ot_safetensors_range){index, 0, *count}, dtype, values));
  return values;
}

static void read_batch(plain_case *c) {
  int64_t rows;
  const int32_t *const ids = tensor(c, "tokens", OT_I32, &rows);
  const int32_t *const targets = tensor(c, "targets", OT_I32, &rows);
  const int32_t *const starts = tensor(c, "doc_start", OT_I32, &rows);
  const int64_t length =
      ot_safetensors_tensor_at(c->reference, ot_safetensors_find(c->reference, "tokens"))->dim[1];
  int64_t *const first = ot_arena_array(&c->arena, rows, sizeof *first);
  double *const weights = ot_arena_array(&c->arena, rows, sizeof *weights);
  int64_t *const ends = ot_arena_array(&c->arena, rows / length, sizeof *ends);
  int64_t counted = 0;
  for (int64_t r = 0; r < rows; r++) counted += targets[r] >= 0;
  for (int64_t r = 0; r < rows; r++) {
    weights[r] = 1 / (double)counted;
    first[r] = r / length * length + starts[r];
    ends[r / length] = r + 1;
  }
  c->batch = (ot_plain_batch){.rows = rows,
                              .ids = ids,
                              .targets = targets,
                              .positions = tensor(c, "positions", OT_I32, &rows),
                              .first = first,
                              .weights = weights,
                              .num_groups = (int)(rows / length),
                              .group_end = ends,
                              .group_weight = (double)length / (double)rows};
}

static void write_rows(void *context, const ot_weight_slice *rows, const void *from) {
  const plain_case *const c = context;
  const ot_parameter *const p = &c->graph.parameters[rows->parameter];
  memcpy(c->weights[rows->parameter] + rows->first_row * p->cols, from,
         (size_t)(rows->rows * p->cols) * sizeof(double));
}

static ot_status read_rows(void *context, const ot_weight_slice *rows, void *to) {
  const plain_case *const c = context;
  const ot_parameter *const p = &c->graph.parameters[rows->parameter];
  memcpy(to, c->gradients[rows->parameter] + rows->first_row * p->cols,
         (size_t)(rows->rows * p->cols) * sizeof(double));
  return OT_OK;
}

static void make_parameters(plain_case *c) {
  const ot_graph_request request = {.model = &c->model,
                                    .mode = OT_MODE_TRAIN,
                                    .micro_batch_size = c->batch.num_groups,
                                    .sequence_length = c->batch.rows / c->batch.num_groups,
                                    .compute = OT_F64,
                                    .storage = OT_F64,
                                    .threads = 1};
  const ot_graph *const graph = &c->graph;
  must(ot_graph_build(&request, &c->arena, &c->graph));
  c->weights = ot_arena_array(&c->arena, graph->num_parameters, sizeof *c->weights);
  c->gradients = ot_arena_array(&c->arena, graph->num_parameters, sizeof *c->gradients);
  for (int i = 0; i < graph->num_parameters; i++) {
    const int tied = graph->parameters[i].tied_to;
    const int64_t count = ot_parameter_elements(&graph->parameters[i]);
    const bool own = tied < 0;
    c->weights[i] = own ? ot_arena_array(&c->arena, count, sizeof(double)) : c->weights[tied];
    c->gradients[i] = own ? ot_arena_array(&c->arena, count, sizeof(double)) : c->gradients[tied];
  }
}

static void read_weights(plain_case *c) {
  must(ot_weight_map_build(&c->arena, c->graph.parameters, c->graph.num_parameters, &c->map));
  c->map.files = &c->model;
  const ot_weight_access access = {
      .dtype = OT_F64, .read = read_rows, .write = write_rows, .context = c};
  const ot_weight_import into = {.map = &c->map, .access = &access, .num_access = 1};
  ot_checkpoint *checkpoint;
  ot_weight_notes notes = {0};
  must(ot_checkpoint_create(path_of(c, ""), &checkpoint));
  must(ot_weights_import(&c->arena, &into, checkpoint, &notes));
  ot_checkpoint_destroy(&checkpoint);
}

void plain_case_create(const char *name, plain_case *c) {
  *c = (plain_case){.name = name};
  c->arena = ot_heap_arena_create(&c->heap);
  ot_node *tree = NULL;
  must(ot_tree_load(path_of(c, "config.json"), &c->arena, &tree));
  must(ot_model_read(tree, &c->arena, &c->model));
  // transformers adds no router loss to the gradients by default.
  if (c->model.moe.aux_scale != OT_MOE_AUX_TRANSFORMERS) c->model.moe.aux_coefficient = 0;
  must(ot_safetensors_create(path_of(c, "reference.safetensors"), "", &c->reference));
  read_batch(c);
  make_parameters(c);
  read_weights(c);
}

// Numbers in [0, 1), always the same.
static double next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 11) * 0x1p-53;
}

void plain_case_make(const ot_model *model, int64_t rows, plain_case *c) {
  uint64_t state = 1;
  *c = (plain_case){.name = "random", .model = *model};
  c->arena = ot_heap_arena_create(&c->heap);
  int32_t *const ids = ot_arena_array(&c->arena, rows, sizeof *ids);
  int32_t *const targets = ot_arena_array(&c->arena, rows, sizeof *targets);
  int32_t *const positions = ot_arena_array(&c->arena, rows, sizeof *positions);
  int64_t *const first = ot_arena_array(&c->arena, rows, sizeof *first);
  double *const weights = ot_arena_array(&c->arena, rows, sizeof *weights);
  int64_t *const end = ot_arena_array(&c->arena, 1, sizeof *end);
  *end = rows;
  for (int64_t r = 0; r < rows; r++) {
    ids[r] = (int32_t)(next(&state) * (double)model->vocab_size);
    targets[r] = (int32_t)(next(&state) * (double)model->vocab_size);
    positions[r] = (int32_t)r;
    weights[r] = 1 / (double)rows;
  }
  c->batch = (ot_plain_batch){.rows = rows,
                              .ids = ids,
                              .targets = targets,
                              .positions = positions,
                              .first = first,
                              .weights = weights,
                              .num_groups = 1,
                              .group_end = end,
                              .group_weight = 1};
  make_parameters(c);
  for (int i = 0; i < c->graph.num_parameters; i++) {
    const ot_parameter *const p = &c->graph.parameters[i];
    const double center = p->initial == OT_INITIAL_GAIN ? 1 - model->norm_offset : 0;
    for (int64_t k = 0; p->tied_to < 0 && k < ot_parameter_elements(p); k++) {
      c->weights[i][k] = center + 0.5 * (next(&state) - 0.5);
    }
  }
}

void plain_case_destroy(plain_case *c) {
  ot_safetensors_destroy(&c->reference);
  ot_heap_release(&c->heap);
}

// ---- a step ----

// The parameters in the type of a run.
typedef struct typed {
  ot_dtype dtype;
  void **weights, **gradients;  // [num_parameters]
} typed;

static double get(ot_dtype dtype, const void *data, int64_t i) {
  return dtype == OT_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set(ot_dtype dtype, void *data, int64_t i, double value) {
  if (dtype == OT_F64) {
    ((double *)data)[i] = value;
  } else {
    ((float *)data)[i] = (float)value;
  }
}

static typed make_typed(plain_case *c, ot_plain_type type) {
  const ot_graph *const graph = &c->graph;
  typed t = {.dtype = ot_plain_dtype(type)};
  t.weights = ot_arena_array(&c->arena, graph->num_parameters, sizeof *t.weights);
  t.gradients = ot_arena_array(&c->arena, graph->num_parameters, sizeof *t.gradients);
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const int64_t count = ot_parameter_elements(p), bytes = ot_dtype_bytes(t.dtype);
    if (p->tied_to >= 0) {
      t.weights[i] = t.weights[p->tied_to];
      t.gradients[i] = t.gradients[p->tied_to];
      continue;
    }
    t.weights[i] = ot_arena_array(&c->arena, count, bytes);
    t.gradients[i] = ot_arena_array(&c->arena, count, bytes);
    for (int64_t k = 0; k < count; k++) {
      const double value = c->weights[i][k];
      const double narrow = (double)ot_bf16_to_float(ot_bf16_from_float((float)value));
      set(t.dtype, t.weights[i], k, type == OT_PLAIN_BF16 ? narrow : value);
    }
  }
  return t;
}

static ot_plain_block block_of(const plain_case *c, const typed *t, int index) {
  const int first = c->graph.blocks[index].first_parameter;
  return (ot_plain_block){.index = index,
                          .weights = (const void *const *)t->weights + first,
                          .gradients = t->gradients + first};
}

static void note_router(plain_case *c, ot_plain_router router, int layer) {
  const int64_t slots = c->batch.rows * c->model.moe.experts_per_token;
  c->balance += router.balance;
  c->z += router.z;
  if (!router.choices) return;
  c->choices[layer] = ot_arena_array(&c->arena, slots, sizeof(int32_t));
  memcpy(c->choices[layer], router.choices, (size_t)slots * sizeof(int32_t));
}

static void run_blocks(plain_case *c, ot_plain *plain, const typed *t) {
  const int head = c->graph.num_blocks - 1;
  const int64_t size = c->batch.rows * c->model.hidden_size * ot_dtype_bytes(t->dtype);
  void **const x = ot_arena_array(&c->arena, head + 1, sizeof *x);
  for (int i = 1; i <= head; i++) x[i] = ot_arena_array(&c->arena, ot_plain_inputs(plain, i), size);
  for (int i = 0; i < head; i++) {
    ot_plain_router router;
    ot_plain_block block = block_of(c, t, i);
    block.router = &router;
    ot_plain_forward(plain, &block, x[i], x[i + 1]);
    note_router(c, router, i - 1);
  }
  const ot_plain_block block = block_of(c, t, head);
  void *d = ot_arena_array(&c->arena, ot_plain_inputs(plain, head), size);
  c->loss = ot_plain_head(plain, &block, x[head], d);
  for (int i = head - 1; i >= 0; i--) {
    const ot_plain_block back = block_of(c, t, i);
    void *const dx = i > 0 ? ot_arena_array(&c->arena, ot_plain_inputs(plain, i), size) : NULL;
    ot_plain_backward(plain, &back, x[i], d, dx);
    d = dx;
  }
}

void plain_case_run(plain_case *c, const plain_variant *variant) {
  const ot_plain_request request = {.graph = &c->graph,
                                    .batch = &c->batch,
                                    .type = variant->type,
                                    .reversed = variant->reversed,
                                    .threads = variant->threads,
                                    .losses = variant->losses};
  const typed t = make_typed(c, variant->type);
  ot_plain *plain;
  c->balance = c->z = 0;
  c->choices = ot_arena_array(&c->arena, c->model.num_layers, sizeof *c->choices);
  must(ot_plain_create(&request, &plain));
  run_blocks(c, plain, &t);
  ot_plain_destroy(&plain);
  for (int i = 0; i < c->graph.num_parameters; i++) {
    const ot_parameter *const p = &c->graph.parameters[i];
    for (int64_t k = 0; k < ot_parameter_elements(p); k++) {
      c->gradients[i][k] = get(t.dtype, t.gradients[i], k);
    }
  }
}

// ---- comparison ----

// A buffer holds the loads of experts in the reference.
static bool is_gradient(const char *name) { return !ot_text_find(name, "e_score_correction_bias"); }

static double reference_rms(plain_case *c, const char *prefix) {
  double sum = 0;
  int64_t elements = 0;
  for (int i = 0; i < ot_safetensors_count(c->reference); i++) {
    const char *const name = ot_safetensors_tensor_at(c->reference, i)->name;
    if (!ot_text_starts_with(name, prefix) || !is_gradient(name)) continue;
    int64_t count;
    const double *const values = tensor(c, name, OT_F64, &count);
    for (int64_t k = 0; k < count; k++) sum += values[k] * values[k];
    elements += count;
  }
  assert_true(elements > 0);
  return sqrt(sum / (double)elements);
}

double plain_case_error(plain_case *c, const char *suffix, const char **worst) {
  const char *const prefix = ot_arena_format(&c->arena, "grad.%s.", suffix);
  const double floor = 1e-3 * reference_rms(c, prefix);
  const ot_weight_access access = {
      .dtype = OT_F64, .read = read_rows, .write = write_rows, .context = c};
  ot_weight_stage stage;
  ot_weight_stage_build(&c->arena, &c->map, &access, &stage);
  double error = 0;
  for (int i = 0; i < c->map.num_tensors; i++) {
    const ot_weight_tensor *const t = &c->map.tensors[i];
    if (!is_gradient(t->name)) continue;
    // A matrix of a stack is compared by itself.
    const char *const bracket = ot_text_find(t->name, "[");
    const int64_t length = bracket ? bracket - t->name : ot_text_length(t->name);
    const char *const name = ot_arena_format(&c->arena, "%s%.*s", prefix, (int)length, t->name);
    const int64_t elements = t->rows * t->cols;
    int64_t count;
    const double *const whole = tensor(c, name, OT_F64, &count);
    const double *const wanted = whole + (bracket ? atoi(bracket + 1) * elements : 0);
    double *const got = ot_arena_array(&c->arena, elements, sizeof *got);
    must(ot_weights_assemble(&stage, (ot_safetensors_range){i, 0, elements}, OT_F64, got));
    double difference = 0, largest = 0;
    for (int64_t k = 0; k < elements; k++) {
      const double d = fabs(got[k] - wanted[k]);
      difference = d > difference || isnan(d) ? d : difference;
      largest = fmax(largest, fabs(wanted[k]));
    }
    if (difference / fmax(largest, floor) <= error) continue;
    error = difference / fmax(largest, floor);
    *worst = t->name;
  }
  return error;
}

double plain_case_reference_loss(plain_case *c, const char *suffix) {
  int64_t count;
  const char *const name = ot_arena_format(&c->arena, "loss.%s", suffix);
  return *(const double *)tensor(c, name, OT_F64, &count);
}
