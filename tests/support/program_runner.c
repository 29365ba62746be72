// SPDX-License-Identifier: Apache-2.0
// Memory of every rank, its initial values, and the loop over the ops.
#include "support/program_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ops/catalog.h"
#include "ops/collective.h"
#include "support/runner_state.h"
#include "workspace/workspace.h"

// ---- initial values: functions of the global index ----

static uint64_t scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Noise in (-1, 1), by stream and index.
static double noise(uint64_t stream, int64_t i) {
  return (double)(scramble(stream + (uint64_t)i * 0x632BE59BD9B4E019u) >> 11) / 4503599627370496.0 -
         1;
}

static uint64_t stream_of(const char *name) {
  uint64_t stream = 1;
  for (; *name; name++) stream = scramble(stream + (uint64_t)*name);
  return stream;
}

int64_t runner_place(const runner *r, int rank, int64_t row) {
  const int64_t t = r->request.sequence_length / r->request.cp;
  const int c = r->request.cp;
  const int index = rank / r->request.tp;
  const int64_t half = t / 2;
  if (c == 1) return row;
  if (r->request.context == OT_CONTEXT_ULYSSES) return index * t + row;
  return row < half ? index * half + row : (2 * c - 1 - index) * half + row - half;
}

// Documents start at position 0 and where this returns true.
static bool starts_document(int64_t sequence, int64_t place) {
  return place == 0 || (place + 3 * sequence) % 7 == 0;
}

static int64_t document_start(int64_t sequence, int64_t place) {
  while (!starts_document(sequence, place)) place--;
  return place;
}

static int32_t token_at(const runner *r, int64_t sequence, int64_t place) {
  return (int32_t)(scramble((uint64_t)(sequence * 1000 + place)) %
                   (uint64_t)r->request.model->vocab_size);
}

// Some targets are masked.
static int32_t target_at(const runner *r, int64_t sequence, int64_t place) {
  return (sequence + place) % 5 == 2 ? -1 : token_at(r, sequence, place + 1);
}

static void fill_row(const runner *r, runner_rank *rank, int64_t index, int64_t place) {
  const int64_t sequence = index / (r->request.sequence_length / r->request.cp);
  const int64_t start = document_start(sequence, place);
  ((int32_t *)rank->batch[OT_BATCH_TOKENS])[index] = token_at(r, sequence, place);
  ((int32_t *)rank->batch[OT_BATCH_TARGETS])[index] = target_at(r, sequence, place);
  ((int32_t *)rank->batch[OT_BATCH_POSITIONS])[index] = (int32_t)(place - start);
}

static void fill_batch(runner *r, int index) {
  runner_rank *const rank = &r->rank[index];
  const int64_t T = r->request.sequence_length;
  const int64_t t = T / r->request.cp;
  const bool whole = r->request.cp > 1 && r->request.context == OT_CONTEXT_ULYSSES;
  int32_t *const starts = rank->batch[OT_BATCH_DOC_STARTS];
  for (int64_t b = 0; b < r->request.micro_batch_size; b++) {
    ((int64_t *)rank->batch[OT_BATCH_SAMPLE_IDS])[b] = 40 + 3 * b;
    for (int64_t i = 0; i < t; i++) {
      const int64_t place = runner_place(r, index, i);
      fill_row(r, rank, b * t + i, place);
      if (!whole) starts[b * t + i] = (int32_t)document_start(b, place);
    }
    for (int64_t i = 0; whole && i < T; i++) starts[b * T + i] = (int32_t)document_start(b, i);
  }
}

static double inverse_tokens(const runner *r) {
  int64_t count = 0;
  for (int64_t b = 0; b < r->request.micro_batch_size; b++) {
    for (int64_t i = 0; i < r->request.sequence_length; i++) count += target_at(r, b, i) >= 0;
  }
  return 1.0 / (double)count;
}

static void fill_parameter(const runner *r, const ot_parameter *p, void *data) {
  const ot_tensor tensor = {.data = data,
                            .type = {r->request.storage, 2, {p->rows, p->cols, 0, 0}}};
  for (int k = 0; k < p->num_parts; k++) {
    const ot_parameter_part *const part = &p->parts[k];
    const uint64_t stream = stream_of(part->hf_name);
    const double around = p->initial == OT_INITIAL_NORMAL ? 0 : part->initial;
    for (int64_t i = 0; i < part->rows * p->cols; i++) {
      const int64_t row = part->hf_first + i / p->cols;
      const int64_t col = part->hf_first_col + i % p->cols;
      ot_case_set(&tensor, part->first_row * p->cols + i,
                  around + 0.3 * noise(stream, row * part->hf_cols + col));
    }
  }
}

// ---- memory ----

static void *take(runner *r, int64_t bytes) {
  const uintptr_t at = (uintptr_t)ot_arena_take(&r->arena, bytes + 64);
  return (void *)((at + 63) / 64 * 64);
}

static void *take_type(runner *r, const ot_tensor_type *type) {
  return take(r, ot_type_bytes(type));
}

static void make_constants(runner *r, runner_rank *rank) {
  for (int i = 0; i < rank->graph.num_constants; i++) {
    const ot_constant *const constant = &rank->graph.constants[i];
    rank->constant[i] = take_type(r, &constant->type);
    const ot_tensor in[OT_MAX_INPUTS] = {{0}};
    const ot_tensor out[OT_MAX_OUTPUTS] = {{rank->constant[i], constant->type}};
    const ot_kernel_call call = {.attributes = &constant->attributes, .in = in, .out = out};
    ot_kernel_find(OT_BACKEND_CPU, constant->op, constant->attributes.compute)(&call);
  }
}

static void make_parameters(runner *r, runner_rank *rank) {
  const ot_graph *const graph = &rank->graph;
  const int n = graph->num_parameters;
  rank->weight = ot_arena_array(&r->arena, n, sizeof(void *));
  rank->gradient = ot_arena_array(&r->arena, n, sizeof(void *));
  rank->added = ot_arena_array(&r->arena, n, sizeof(bool));
  void **const bucket = ot_arena_array(&r->arena, graph->num_blocks, sizeof(void *));
  for (int b = 0; b < graph->num_blocks; b++) {
    bucket[b] = take(r, graph->blocks[b].weight_elements * ot_dtype_bytes(r->request.storage));
  }
  for (int i = 0; i < n; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    rank->gradient[i] = take(r, ot_parameter_elements(p) * ot_dtype_bytes(r->request.compute));
    if (p->tied_to >= 0) {
      rank->weight[i] = rank->weight[p->tied_to];
      continue;
    }
    rank->weight[i] = (char *)bucket[p->block] + p->offset * ot_dtype_bytes(r->request.storage);
    fill_parameter(r, p, rank->weight[i]);
  }
}

static void *memory_of(runner *r, runner_rank *rank, int block, const ot_value *value) {
  const int parameter = rank->graph.blocks[block].first_parameter + value->index;
  switch (value->kind) {
    case OT_VALUE_PARAMETER:
      return rank->weight[parameter];
    case OT_VALUE_ACCUMULATOR:
      return rank->gradient[parameter];
    case OT_VALUE_BATCH:
      return (char *)rank->batch[value->index] + value->first * ot_dtype_bytes(value->type.dtype);
    case OT_VALUE_CONSTANT:
      return rank->constant[value->index];
    case OT_VALUE_SCALAR:
      return &rank->scalars[value->index];
    case OT_VALUE_STATISTIC:
      return &rank->statistics[block * OT_BLOCK_STATISTICS + value->index];
    case OT_VALUE_INPUT:
    case OT_VALUE_ACTIVATION:
    case OT_VALUE_GRADIENT:
      return take_type(r, &value->type);
    case OT_VALUE_CACHE:
    case OT_VALUE_RESULT:
      break;
  }
  fail_msg("no storage for %s", value->name);
  return NULL;
}

const ot_program *runner_program(const runner_rank *rank, int block) {
  return &rank->graph.programs[rank->graph.blocks[block].program];
}

// A block shares its input and its output gradient with its neighbours.
static void make_values(runner *r, runner_rank *rank) {
  const int n = rank->graph.num_blocks;
  rank->value = ot_arena_array(&r->arena, n, sizeof(void **));
  for (int b = 0; b < n; b++) {
    const ot_program *const program = runner_program(rank, b);
    rank->value[b] = ot_arena_array(&r->arena, program->num_values, sizeof(void *));
    for (int v = 0; v < program->num_values; v++) {
      rank->value[b][v] = memory_of(r, rank, b, &program->values[v]);
    }
    if (b == 0) continue;
    const ot_program *const before = runner_program(rank, b - 1);
    rank->value[b][program->input] = rank->value[b - 1][before->output];
    if (program->d_input < 0) continue;
    rank->value[b - 1][before->d_output] = rank->value[b][program->d_input];
  }
}

static void create_rank(runner *r, int index) {
  runner_rank *const rank = &r->rank[index];
  const runner_request *const q = &r->request;
  const ot_graph_request request = {
      .model = q->model,
      .mode = q->mode,
      .micro_batch_size = q->micro_batch_size,
      .sequence_length = q->sequence_length,
      .compute = q->compute,
      .storage = q->storage,
      .head_chunk_rows = q->head_chunk_rows,
      .threads = 1,
      .seed = 11,
      .split = {.tp = q->tp,
                .tp_index = index % q->tp,
                .cp = q->cp,
                .cp_index = index / q->tp,
                .context = q->context},
  };
  if (ot_graph_build(&request, &r->arena, &rank->graph) != OT_OK) fail_msg("%s", ot_fail_message());
  for (int f = 0; f < OT_BATCH_FIELDS; f++) {
    const ot_tensor_type type = ot_graph_batch_type(&rank->graph, (ot_batch_field)f);
    rank->batch[f] = take_type(r, &type);
  }
  rank->statistics =
      ot_arena_array(&r->arena, rank->graph.num_blocks * OT_BLOCK_STATISTICS, sizeof(double));
  rank->scalars[OT_SCALAR_INVERSE_TOKENS] = inverse_tokens(r);
  fill_batch(r, index);
  make_constants(r, rank);
  make_parameters(r, rank);
  make_values(r, rank);
}

void runner_create(const runner_request *request, runner **out) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  runner *const r = ot_arena_take(&arena, sizeof *r);
  *r = (runner){.heap = heap, .request = *request, .ranks = request->tp * request->cp};
  r->arena = ot_heap_arena_create(&r->heap);
  r->rank = ot_arena_array(&r->arena, r->ranks, sizeof *r->rank);
  for (int i = 0; i < r->ranks; i++) create_rank(r, i);
  *out = r;
}

void runner_destroy(runner **r) {
  if (!*r) return;
  ot_heap heap = (*r)->heap;
  ot_heap_release(&heap);
  *r = NULL;
}

const ot_graph *runner_graph(const runner *r, int rank) { return &r->rank[rank].graph; }

// ---- runs ----

static ot_tensor tensor_of(const runner_rank *rank, int block, int value) {
  if (value < 0) return (ot_tensor){0};
  return (ot_tensor){rank->value[block][value], runner_program(rank, block)->values[value].type};
}

// The first op that writes an accumulator overwrites it.
static bool adds(runner_rank *rank, int block, const ot_op *op) {
  const ot_program *const program = runner_program(rank, block);
  bool added = false;
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) {
    if (op->out[i] < 0 || program->values[op->out[i]].kind != OT_VALUE_ACCUMULATOR) continue;
    bool *const before =
        &rank->added[rank->graph.blocks[block].first_parameter + program->values[op->out[i]].index];
    added = *before;
    *before = true;
  }
  return added;
}

static void run_kernel(runner *r, runner_rank *rank, int block, const ot_op *op) {
  ot_op_attributes attributes = op->attributes;
  ot_op_types types;
  ot_program_types(runner_program(rank, block), op, &types);
  const ot_kernel run = ot_kernel_find(OT_BACKEND_CPU, op->kind, attributes.compute);
  if (!run) fail_msg("%s has no kernel", ot_op_info_of(op->kind)->name);
  attributes.accumulate = adds(rank, block, op);
  ot_tensor in[OT_MAX_INPUTS], out[OT_MAX_OUTPUTS];
  for (int i = 0; i < OT_MAX_INPUTS; i++) in[i] = tensor_of(rank, block, op->in[i]);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) out[i] = tensor_of(rank, block, op->out[i]);
  const int64_t bytes = ot_op_workspace(op->kind, &attributes, &types);
  const ot_kernel_call call = {.attributes = &attributes,
                               .in = in,
                               .out = out,
                               .workspace = bytes > 0 ? take(r, bytes) : NULL};
  run(&call);
}

// Operands of one collective on all members of a group.
typedef struct exchange {
  int size, index;  // of this rank in the group
  ot_tensor in[RUNNER_MAX_RANKS];
  ot_tensor out;
} exchange;

static void sum_blocks(const exchange *e, int64_t first) {
  for (int64_t i = 0; i < ot_type_elements(&e->out.type); i++) {
    double sum = 0;
    for (int k = 0; k < e->size; k++) sum += ot_case_get(&e->in[k], first + i);
    ot_case_set(&e->out, i, sum);
  }
}

static void run_exchange(ot_op_kind kind, const exchange *e) {
  const int64_t bytes = ot_type_bytes(&e->in[0].type);
  const int64_t block = bytes / e->size;
  char *const out = e->out.data;
  const int before = (e->index + e->size - 1) % e->size;
  switch (kind) {
    case OT_OP_ALL_GATHER:
      for (int k = 0; k < e->size; k++) memcpy(out + k * bytes, e->in[k].data, (size_t)bytes);
      return;
    case OT_OP_ALL_TO_ALL:
      for (int k = 0; k < e->size; k++) {
        memcpy(out + k * block, (char *)e->in[k].data + e->index * block, (size_t)block);
      }
      return;
    case OT_OP_SHIFT:
      memcpy(out, e->in[before].data, (size_t)bytes);
      return;
    case OT_OP_REDUCE_SCATTER:
      sum_blocks(e, e->index * ot_type_elements(&e->out.type));
      return;
    case OT_OP_ALL_REDUCE:
      sum_blocks(e, 0);
      return;
    default:
      fail_msg("%s is not a collective of a block", ot_op_info_of(kind)->name);
  }
}

// Rank `member` of the group of `kind` that contains `index`.
static int group_rank(const runner *r, ot_group_kind kind, int index, int member) {
  const int tp = r->request.tp;
  if (kind == OT_GROUP_TENSOR) return index / tp * tp + member;
  assert_int_equal(kind, OT_GROUP_CONTEXT);
  return member * tp + index % tp;
}

static void run_collective(runner *r, int index, int block, int op_index) {
  const ot_op *const op = &runner_program(&r->rank[index], block)->ops[op_index];
  const ot_group_kind group = op->attributes.group;
  exchange e = {.size = op->attributes.group_size, .index = op->attributes.group_index};
  assert_int_equal(e.size, group == OT_GROUP_TENSOR ? r->request.tp : r->request.cp);
  assert_int_equal(group_rank(r, group, index, e.index), index);
  for (int k = 0; k < e.size; k++) {
    const int other = group_rank(r, group, index, k);
    const ot_op *const theirs = &runner_program(&r->rank[other], block)->ops[op_index];
    assert_int_equal(theirs->kind, op->kind);
    e.in[k] = tensor_of(&r->rank[other], block, theirs->in[0]);
    assert_int_equal(ot_type_bytes(&e.in[k].type), ot_type_bytes(&e.in[0].type));
  }
  e.out = tensor_of(&r->rank[index], block, op->out[0]);
  run_exchange(op->kind, &e);
}

// Runs one op on all ranks. Values are in single assignment, so no rank overwrites a pending input.
static void run_op(runner *r, int block, int index) {
  for (int i = 0; i < r->ranks; i++) {
    const ot_op *const op = &runner_program(&r->rank[i], block)->ops[index];
    if (ot_op_communicates(op->kind)) {
      run_collective(r, i, block, index);
    } else {
      run_kernel(r, &r->rank[i], block, op);
    }
  }
}

static void run_block(runner *r, int block, bool forward) {
  const ot_program *const program = runner_program(&r->rank[0], block);
  for (int i = 0; i < r->ranks; i++) {
    assert_int_equal(runner_program(&r->rank[i], block)->num_ops, program->num_ops);
  }
  for (int i = 0; i < program->num_ops; i++) {
    if ((program->ops[i].part == OT_PART_FORWARD) == forward) run_op(r, block, i);
  }
}

void runner_run(runner *r) {
  const int n = r->rank[0].graph.num_blocks;
  for (int b = 0; b < n; b++) run_block(r, b, true);
  for (int b = n - 1; b >= 0 && r->request.mode == OT_MODE_TRAIN; b--) run_block(r, b, false);
}
