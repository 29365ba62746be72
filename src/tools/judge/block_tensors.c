// SPDX-License-Identifier: Apache-2.0
#include "judge/block_tensors.h"

#include "host/heap.h"

enum { CHUNK = 1 << 18 };

int64_t ot_weight_chunk_lines(const ot_weight_tensor *t) {
  const int64_t some = CHUNK / ot_weight_line_elements(t), all = ot_weight_lines(t);
  return some < 1 ? 1 : some < all ? some : all;
}

// ---- rows of files and of parameters ----

typedef struct place {
  int parameter;
  int64_t row;
} place;

// The parameter and its row that are row `file_row` of a tensor, before transposition.
static place find_row(const ot_weight_tensor *t, int64_t file_row) {
  const int64_t own = t->interleaved ? file_row / 2 + (file_row % 2) * (t->rows / 2) : file_row;
  int low = 0;
  for (int high = t->num_pieces - 1; low < high;) {
    const int middle = (low + high + 1) / 2;
    if (t->pieces[middle].hf_first <= own) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const ot_weight_slice *const p = &t->pieces[low];
  return (place){p->parameter, p->first_row + own - p->hf_first};
}

// ---- out of parameters ----

// out[i] = from[i], or is increased by it.
static void copy_run(ot_dtype dtype, const void *from, int64_t count, bool add, double *out) {
  const double *const wide = from;
  const float *const narrow = from;
  for (int64_t i = 0; i < count; i++) {
    const double value = dtype == OT_F64 ? wide[i] : (double)narrow[i];
    out[i] = add ? out[i] + value : value;
  }
}

static const void *element_at(ot_dtype dtype, const void *data, int64_t index) {
  return (const char *)data + index * ot_dtype_bytes(dtype);
}

// Row `row` of a tensor is column `row` of its lines.
static void gather_columns(const ot_weight_lines_request *r, int64_t row, double *out) {
  const ot_weight_tensor *const t = r->tensor;
  const place at = find_row(t, row);
  const int64_t cols = r->graph->parameters[at.parameter].cols;
  const void *const from = element_at(r->dtype, r->values[at.parameter], at.row * cols + r->first);
  for (int64_t i = 0; i < r->count; i++)
    copy_run(r->dtype, element_at(r->dtype, from, i), 1, r->add, out + i * t->rows + row);
}

static void gather_row(const ot_weight_lines_request *r, int64_t row, double *out) {
  const place at = find_row(r->tensor, row);
  const int64_t cols = r->graph->parameters[at.parameter].cols;
  copy_run(r->dtype, element_at(r->dtype, r->values[at.parameter], at.row * cols), cols, r->add,
           out + (row - r->first) * cols);
}

void ot_weight_lines_gather(const ot_weight_lines_request *r, double *out) {
  if (r->tensor->transposed) {
    for (int64_t row = 0; row < r->tensor->rows; row++) gather_columns(r, row, out);
    return;
  }
  for (int64_t row = r->first; row < r->first + r->count; row++) gather_row(r, row, out);
}

// ---- into parameters ----

static int source_of(const ot_graph *graph, int parameter) {
  const int tied = graph->parameters[parameter].tied_to;
  return tied >= 0 ? tied : parameter;
}

// The parameter of the block whose weights are those of `parameter`; -1: none.
static int user_of(const ot_graph *graph, const ot_block *block, int parameter) {
  for (int i = block->first_parameter; i < block->first_parameter + block->num_parameters; i++) {
    if (source_of(graph, i) == parameter) return i;
  }
  return -1;
}

static float round_to_bf16(float x) { return ot_bf16_to_float(ot_bf16_from_float(x)); }

static void store_run(ot_block_tensors *b, int64_t at, const double *from, int64_t step,
                      int64_t count) {
  for (int64_t i = 0; b->wide && i < count; i++) b->wide[at + i] = from[i * step];
  for (int64_t i = 0; b->narrow && i < count; i++) b->narrow[at + i] = (float)from[i * step];
  for (int64_t i = 0; b->rounded && i < count; i++)
    b->rounded[at + i] = round_to_bf16((float)from[i * step]);
}

// Lines [first, first + count) of a tensor.
typedef struct read_lines {
  const ot_weight_tensor *tensor;
  int64_t first, count;
  const double *values;
} read_lines;

// Stores lines in their parameters.
static void scatter(ot_block_tensors *b, const ot_block *block, const read_lines *l) {
  const ot_weight_tensor *const t = l->tensor;
  const int64_t length = ot_weight_line_elements(t), begin = t->transposed ? 0 : l->first;
  const int64_t rows = t->transposed ? t->rows : l->count;
  for (int64_t i = 0; i < rows; i++) {
    const place at = find_row(t, begin + i);
    const int64_t cols = b->graph->parameters[at.parameter].cols;
    const int64_t to = b->offset[user_of(b->graph, block, at.parameter)] + at.row * cols;
    if (t->transposed) {
      store_run(b, to + l->first, l->values + i, length, l->count);
    } else {
      store_run(b, to, l->values + i * length, 1, cols);
    }
  }
}

static ot_status load_tensor(ot_block_tensors *b, const ot_block *block, const ot_weight_tensor *t,
                             ot_arena *scratch) {
  const int64_t lines = ot_weight_lines(t), length = ot_weight_line_elements(t);
  const int64_t most = ot_weight_chunk_lines(t);
  double *const values = ot_arena_array(scratch, most * length, sizeof *values);
  for (int64_t first = 0; first < lines; first += most) {
    const int64_t count = lines - first < most ? lines - first : most;
    OT_TRY(b->reader.read(b->reader.context, t, first * length, count * length, values));
    scatter(b, block, &(read_lines){t, first, count, values});
  }
  return OT_OK;
}

static ot_status load_all(ot_block_tensors *b, const ot_block *block, ot_arena *scratch) {
  for (int t = 0; t < b->map.num_tensors; t++) {
    const ot_weight_tensor *const tensor = &b->map.tensors[t];
    if (user_of(b->graph, block, tensor->pieces[0].parameter) < 0) continue;
    OT_TRY(load_tensor(b, block, tensor, scratch));
  }
  return OT_OK;
}

ot_status ot_block_tensors_load(ot_block_tensors *b, int block) {
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  b->block = block;
  const ot_status status = load_all(b, &b->graph->blocks[block], &scratch);
  ot_heap_release(&heap);
  return status;
}

const void *const *ot_block_tensors_weights(const ot_block_tensors *b, ot_plain_type type) {
  const ot_block *const block = &b->graph->blocks[b->block];
  const float *const narrow = type == OT_PLAIN_BF16 ? b->rounded : b->narrow;
  const void *const from = type == OT_PLAIN_F64 ? (const void *)b->wide : narrow;
  for (int i = 0; i < block->num_parameters; i++)
    b->weights[i] = element_at(ot_plain_dtype(type), from, b->offset[block->first_parameter + i]);
  return b->weights;
}

// ---- memory ----

static void lay_out(ot_block_tensors *b, ot_arena *arena) {
  b->offset = ot_arena_array(arena, b->graph->num_parameters, sizeof *b->offset);
  for (int i = 0; i < b->graph->num_blocks; i++) {
    const ot_block *const block = &b->graph->blocks[i];
    int64_t used = 0;
    for (int p = block->first_parameter; p < block->first_parameter + block->num_parameters; p++) {
      b->offset[p] = used;
      used += ot_parameter_elements(&b->graph->parameters[p]);
    }
    b->elements = used > b->elements ? used : b->elements;
  }
}

ot_status ot_block_tensors_create(const ot_graph *graph, const ot_block_reader *reader,
                                  unsigned types, ot_arena *arena, ot_block_tensors *out) {
  const bool narrow = types & (1u << OT_PLAIN_F32 | 1u << OT_PLAIN_AUTOCAST);
  *out = (ot_block_tensors){.graph = graph, .reader = *reader, .block = -1};
  lay_out(out, arena);
  out->weights = ot_arena_array(arena, graph->num_parameters, sizeof *out->weights);
  if (types & 1u << OT_PLAIN_F64)
    out->wide = ot_arena_array(arena, out->elements, sizeof *out->wide);
  if (narrow) out->narrow = ot_arena_array(arena, out->elements, sizeof *out->narrow);
  if (types & 1u << OT_PLAIN_BF16)
    out->rounded = ot_arena_array(arena, out->elements, sizeof *out->rounded);
  return ot_weight_map_build(arena, graph->parameters, graph->num_parameters, &out->map);
}
