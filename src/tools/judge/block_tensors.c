// SPDX-License-Identifier: Apache-2.0
#include "judge/block_tensors.h"

#include "host/heap.h"
#include "judge/assemble.h"

enum { CHUNK = 1 << 18 };

int64_t ot_weight_chunk_lines(const ot_weight_tensor *t) {
  const int64_t lines = CHUNK / ot_weight_line_elements(t);
  return lines > 0 ? lines : 1;
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

// out[i] = from[i * step], or is increased by it.
static void copy_run(ot_dtype dtype, const void *from, int64_t step, int64_t count, bool add,
                     double *out) {
  const double *const wide = from;
  const float *const narrow = from;
  for (int64_t i = 0; i < count; i++) {
    const double value = dtype == OT_F64 ? wide[i * step] : (double)narrow[i * step];
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
    copy_run(r->dtype, element_at(r->dtype, from, i), 1, 1, r->add, out + i * t->rows + row);
}

static void gather_row(const ot_weight_lines_request *r, int64_t row, double *out) {
  const place at = find_row(r->tensor, row);
  const int64_t cols = r->graph->parameters[at.parameter].cols;
  copy_run(r->dtype, element_at(r->dtype, r->values[at.parameter], at.row * cols), 1, cols, r->add,
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

static void store_run(ot_block_tensors *b, int64_t at, const double *from, int64_t step,
                      int64_t count) {
  for (int64_t i = 0; b->wide && i < count; i++) b->wide[at + i] = from[i * step];
  for (int64_t i = 0; b->narrow && i < count; i++) b->narrow[at + i] = (float)from[i * step];
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

static ot_status find_weight(const ot_block_tensors *b, const ot_weight_tensor *t,
                             ot_recorded_view *view) {
  if (!ot_recorded_find(b->step, OT_RECORDED_WEIGHT, t->name, view)) {
    ot_fail(OT_ENVIRONMENT, "%s: there is no weight %s", b->step->path, t->name);
    return ot_fail_hint(OT_ENVIRONMENT,
                        "record every parameter of the model under its Hugging Face name");
  }
  OT_CHECK(view->elements == t->rows * t->cols, OT_USAGE,
           "%s: weight %s has %lld elements, config.json says %lld", b->step->path, t->name,
           (long long)view->elements, (long long)(t->rows * t->cols));
  return OT_OK;
}

static ot_status load_tensor(ot_block_tensors *b, const ot_block *block, const ot_weight_tensor *t,
                             ot_arena *scratch) {
  const int64_t lines = ot_weight_lines(t), length = ot_weight_line_elements(t);
  const int64_t most = ot_weight_chunk_lines(t);
  double *const values = ot_arena_array(scratch, most * length, sizeof *values);
  ot_recorded_view view;
  ot_assembly copies;
  OT_TRY(find_weight(b, t, &view));
  for (int64_t first = 0; first < lines; first += most) {
    const int64_t count = lines - first < most ? lines - first : most;
    const ot_assembly_request request = {
        .view = &view, .first = first * length, .count = count * length, .dtype = OT_F64};
    OT_TRY(ot_assemble(b->step, &request, scratch, values, &copies));
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
  const ot_status status = load_all(b, &b->graph->blocks[block], &scratch);
  ot_heap_release(&heap);
  return status;
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

ot_status ot_block_tensors_create(const ot_recorded_step *step, const ot_graph *graph, bool wide,
                                  bool narrow, ot_arena *arena, ot_block_tensors *out) {
  *out = (ot_block_tensors){.step = step, .graph = graph};
  lay_out(out, arena);
  if (wide) out->wide = ot_arena_array(arena, out->elements, sizeof *out->wide);
  if (narrow) out->narrow = ot_arena_array(arena, out->elements, sizeof *out->narrow);
  return ot_weight_map_build(arena, graph->parameters, graph->num_parameters, &out->map);
}
