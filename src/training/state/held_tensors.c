// SPDX-License-Identifier: Apache-2.0
// Tensors are read by the writer of checkpoints (ot_weights_write), whose bytes go to a receiver
// instead of a file. A first reading finds which elements there are.
#include "state/held_tensors.h"

#include "base/sort.h"

enum { STAGE_BYTES = 1 << 20 };

// ---- reading ----

typedef struct held_reading {
  const ot_held_tensors *held;
  const ot_safetensors_tensor *whole;
  const ot_held_receiver *receiver;
} held_reading;

static ot_status receive(void *context, int file, int64_t offset, const void *data, int64_t bytes) {
  const held_reading *const r = context;
  const int64_t size = ot_safetensors_type_bits(r->whole->type) / 8;
  (void)file;
  return r->receiver->put(r->receiver->context, (offset - r->whole->offset) / size, bytes / size,
                          data);
}

static void read_arena(void *context, int64_t offset, void *to, int64_t bytes) {
  ot_executor_read(context, offset, to, bytes);
}

void ot_held_access_build(const ot_state_view *view, ot_held_access *access) {
  ot_executor *const executor = ot_runtime_executor(view->runtime);
  *access = (ot_held_access){.view = view,
                             .memory = {.host = ot_executor_host_memory(executor),
                                        .read = read_arena,
                                        .context = executor,
                                        .stage = ot_arena_take(view->arena, STAGE_BYTES),
                                        .stage_bytes = STAGE_BYTES}};
  ot_weight_turn_build(view->arena, &view->map, &access->turn);
}

static ot_status read_parts(const held_reading *r, const ot_held_tensor *tensor,
                            ot_safetensors_writer *writer) {
  const ot_held_tensors *const held = r->held;
  for (int i = tensor->first_part; i < tensor->first_part + tensor->parts; i++) {
    if (!held->pieces[i]) continue;
    const ot_weight_writing what = {.map = &held->view->map,
                                    .dtype = ot_runtime_copy_dtype(held->view->runtime, held->copy),
                                    .runs = held->pieces[i],
                                    .memory = &held->access->memory,
                                    .turn = &held->access->turn,
                                    .writer = writer};
    OT_TRY(ot_weights_write(&what, i, held->places[i]));
  }
  return OT_OK;
}

ot_status ot_held_read(const ot_held_tensors *held, int tensor, const ot_held_receiver *receiver) {
  held_reading reading = {held, &held->whole.tensors[tensor], receiver};
  ot_safetensors_writer *writer = NULL;
  OT_TRY(ot_safetensors_writer_create("", &held->whole, &writer));
  ot_safetensors_writer_redirect(writer, (ot_safetensors_sink){receive, &reading});
  const ot_status status = read_parts(&reading, &held->tensors[tensor], writer);
  ot_safetensors_writer_destroy(&writer);
  return status;
}

// ---- runs ----

typedef struct held_finding {
  ot_arena *arena;
  ot_held_tensor *tensor;
} held_finding;

static ot_status add_run(void *context, int64_t first, int64_t count, const void *data) {
  const held_finding *const f = context;
  ot_held_tensor *const t = f->tensor;
  ot_held_run *const last = t->num_runs > 0 ? &t->runs[t->num_runs - 1] : NULL;
  (void)data;
  if (last && last->first + last->count == first) {
    last->count += count;
    return OT_OK;
  }
  t->runs = ot_arena_grow(f->arena, t->runs, t->num_runs, &t->capacity, sizeof *t->runs);
  t->runs[t->num_runs++] = (ot_held_run){first, count, 0};
  return OT_OK;
}

static int compare_runs(const void *a, const void *b, const void *context) {
  const ot_held_run *const x = a, *const y = b;
  (void)context;
  return (x->first > y->first) - (x->first < y->first);
}

// Sorts the runs, joins those that follow each other, and counts their elements.
static void order_runs(ot_held_tensor *tensor, ot_arena *arena) {
  int64_t kept = 0;
  ot_sort(tensor->runs, tensor->num_runs, sizeof *tensor->runs, (ot_ordering){compare_runs, NULL},
          arena);
  for (int64_t i = 0; i < tensor->num_runs; i++) {
    ot_held_run run = tensor->runs[i];
    ot_held_run *const last = kept > 0 ? &tensor->runs[kept - 1] : NULL;
    run.position = tensor->elements;
    tensor->elements += run.count;
    if (last && last->first + last->count == run.first) {
      last->count += run.count;
    } else {
      tensor->runs[kept++] = run;
    }
  }
  tensor->num_runs = kept;
}

int64_t ot_held_position(const ot_held_tensor *tensor, int64_t first) {
  int64_t low = 0, high = tensor->num_runs;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (tensor->runs[middle].first <= first) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const ot_held_run *const run = &tensor->runs[low];
  OT_ASSERT(first >= run->first && first < run->first + run->count);
  return run->position + first - run->first;
}

// ---- listing ----

static bool is_held(const ot_held_tensors *held, const ot_weight_tensor *tensor) {
  const ot_parameter *const p = &held->view->map.parameters[tensor->pieces[0].parameter];
  const bool weights = held->copy == OT_COPY_WEIGHT || held->copy == OT_COPY_MASTER;
  return weights || ot_parameter_is_trained(p);
}

// Where the elements of a tensor of the map are in the memory of this rank.
static ot_weight_runs *list_pieces(const ot_held_tensors *held, const ot_weight_tensor *tensor) {
  const ot_state_view *const v = held->view;
  ot_weight_runs *const pieces = ot_arena_array(v->arena, tensor->num_pieces + 1, sizeof *pieces);
  for (int i = 0; i < tensor->num_pieces; i++) {
    const ot_weight_slice *const p = &tensor->pieces[i];
    const ot_parameter_rows rows = {p->parameter, held->copy, p->first_row, p->rows};
    const int block = v->map.parameters[p->parameter].block;
    const ot_bucket_range range = ot_runtime_held_range(v->runtime, block, held->copy);
    const ot_shard_memory memory = {
        .held = range,
        .size = ot_dtype_bytes(ot_runtime_copy_dtype(v->runtime, held->copy)),
        .begin = range.offset};
    const ot_slices slices = ot_runtime_held(v->runtime, &rows);
    pieces[i] = ot_state_runs(v->arena, &slices, &memory);
  }
  return pieces;
}

static ot_status lay_out(ot_held_tensors *held) {
  const ot_state_view *const v = held->view;
  const ot_state_kind kind = {OT_CHECKPOINT_MODEL, "", held->copy};
  const ot_weight_export what = ot_state_export(v, &kind);
  const int most = v->map.num_tensors;
  ot_tensor_source *const sources = ot_arena_array(v->arena, most, sizeof *sources);
  ot_safetensors_request request = {.stem = "tensors"};
  held->places = ot_arena_array(v->arena, most, sizeof *held->places);
  ot_weight_sources_build(v->arena, &what, sources, &request.num_tensors, held->places);
  ot_safetensors_tensor *const tensors =
      ot_arena_array(v->arena, request.num_tensors, sizeof *tensors);
  for (int i = 0; i < request.num_tensors; i++) {
    tensors[i] = (ot_safetensors_tensor){.name = sources[i].name,
                                         .type = ot_safetensors_type_of(sources[i].dtype),
                                         .rank = sources[i].rank};
    for (int k = 0; k < sources[i].rank; k++) tensors[i].dim[k] = sources[i].dim[k];
  }
  request.tensors = tensors;
  return ot_safetensors_layout_build(v->arena, &request, &held->whole);
}

// The parts of a stack follow each other in the map.
static void list_parts(ot_held_tensors *held) {
  const ot_weight_map *const map = &held->view->map;
  ot_arena *const arena = held->view->arena;
  held->tensors = ot_arena_array(arena, held->whole.num_tensors + 1, sizeof *held->tensors);
  held->pieces = ot_arena_array(arena, map->num_tensors + 1, sizeof *held->pieces);
  for (int i = 0; i < map->num_tensors; i++) {
    if (held->places[i].tensor < 0) continue;
    ot_held_tensor *const tensor = &held->tensors[held->places[i].tensor];
    if (tensor->parts++ == 0) tensor->first_part = i;
    if (is_held(held, &map->tensors[i])) held->pieces[i] = list_pieces(held, &map->tensors[i]);
  }
}

ot_status ot_held_build(const ot_held_access *access, ot_parameter_copy copy,
                        ot_held_tensors *held) {
  ot_arena *const arena = access->view->arena;
  *held = (ot_held_tensors){.access = access, .view = access->view, .copy = copy};
  OT_TRY(lay_out(held));
  list_parts(held);
  for (int i = 0; i < held->whole.num_tensors; i++) {
    held_finding finding = {arena, &held->tensors[i]};
    const ot_held_receiver receiver = {add_run, &finding};
    OT_TRY(ot_held_read(held, i, &receiver));
    order_runs(&held->tensors[i], arena);
  }
  return OT_OK;
}

// ---- blocks ----

// Extends the bounds [low, high) of each dimension by elements [first, end).
static void extend(const ot_safetensors_tensor *whole, int64_t first, int64_t end, int64_t *low,
                   int64_t *high) {
  int64_t last = end - 1;
  for (int i = whole->rank - 1; i >= 0; i--) {
    const int64_t dim = whole->dim[i];
    const bool several = first / dim != last / dim;  // rows, and so all of this dimension
    const int64_t from = several ? 0 : first % dim, to = several ? dim : last % dim + 1;
    if (from < low[i]) low[i] = from;
    if (to > high[i]) high[i] = to;
    first /= dim;
    last /= dim;
  }
}

bool ot_held_block(const ot_held_tensor *tensor, const ot_safetensors_tensor *whole,
                   int64_t *offset, int64_t *block) {
  int64_t high[OT_SAFETENSORS_DIMS] = {0}, elements = 1;
  for (int i = 0; i < whole->rank; i++) offset[i] = whole->dim[i];
  for (int64_t i = 0; i < tensor->num_runs; i++) {
    const ot_held_run *const run = &tensor->runs[i];
    extend(whole, run->first, run->first + run->count, offset, high);
  }
  for (int i = 0; i < whole->rank; i++) elements *= block[i] = high[i] - offset[i];
  return elements == tensor->elements;
}
