// SPDX-License-Identifier: Apache-2.0
// Every rank goes through the files in their order, so that it reads its memory and writes each
// file from front to back; ranks begin at different files, because writers of one file wait for
// each other.
#include "state/state_shares.h"

#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "host/heap.h"

enum { STAGE_BYTES = 4 << 20 };

struct ot_state_shares {
  ot_runtime *runtime;
  char *copy;      // null: no snapshot
  int64_t bytes;   // of `copy`
  int64_t *place;  // [blocks][OT_COPIES] in `copy`; -1: not in it
  char *stage;     // [STAGE_BYTES] for memory of a device, without a snapshot
};

// ---- the snapshot ----

static int64_t *place_of(const ot_state_shares *shares, int block, ot_parameter_copy copy) {
  return &shares->place[block * OT_COPIES + (int)copy];
}

static ot_bucket_range range_of(const ot_state_shares *shares, int block, ot_parameter_copy copy,
                                int64_t *bytes) {
  const ot_bucket_range held = ot_runtime_held_range(shares->runtime, block, copy);
  *bytes = held.count * ot_dtype_bytes(ot_runtime_copy_dtype(shares->runtime, copy));
  return held;
}

static void lay_out_copy(ot_state_shares *shares, int num_blocks) {
  for (int block = 0; block < num_blocks; block++) {
    for (int i = 0; i < OT_STATE_KINDS; i++) {
      const ot_parameter_copy copy = ot_state_kinds[i].copy;
      int64_t bytes;
      *place_of(shares, block, copy) = -1;
      if (!ot_runtime_counts(shares->runtime, block, copy)) continue;
      (void)range_of(shares, block, copy, &bytes);
      *place_of(shares, block, copy) = shares->bytes;
      shares->bytes += (bytes + 63) / 64 * 64;
    }
  }
}

static ot_status create_copy(ot_state_shares *shares) {
  const int num_blocks = ot_runtime_schedule(shares->runtime)->num_blocks;
  shares->place = malloc((size_t)num_blocks * OT_COPIES * sizeof *shares->place);
  OT_CHECK(shares->place, OT_ENVIRONMENT, "out of memory for saving");
  lay_out_copy(shares, num_blocks);
  shares->copy = malloc((size_t)shares->bytes + 1);
  OT_CHECK(shares->copy, OT_ENVIRONMENT,
           "out of memory: a copy of the state of this rank needs %lld bytes (checkpoint.async)",
           (long long)shares->bytes);
  // Pages that are touched now cost nothing in the first save.
  memset(shares->copy, 0, (size_t)shares->bytes + 1);
  return OT_OK;
}

static ot_status allocate(ot_state_shares *shares, bool snapshot) {
  if (snapshot) return create_copy(shares);
  if (ot_executor_host_memory(ot_runtime_executor(shares->runtime))) return OT_OK;
  shares->stage = malloc(STAGE_BYTES);
  OT_CHECK(shares->stage, OT_ENVIRONMENT, "out of memory for saving");
  return OT_OK;
}

ot_status ot_state_shares_create(ot_runtime *runtime, bool snapshot, ot_state_shares **out) {
  ot_state_shares *const shares = calloc(1, sizeof *shares);
  *out = shares;
  OT_CHECK(shares, OT_ENVIRONMENT, "out of memory for saving");
  shares->runtime = runtime;
  const ot_status status = allocate(shares, snapshot);
  if (status != OT_OK) ot_state_shares_destroy(out);
  return status;
}

void ot_state_shares_destroy(ot_state_shares **shares) {
  if (!*shares) return;
  free((*shares)->copy);
  free((*shares)->place);
  free((*shares)->stage);
  free(*shares);
  *shares = NULL;
}

void ot_state_shares_take(ot_state_shares *shares) {
  if (!shares->copy) return;
  ot_executor *const executor = ot_runtime_executor(shares->runtime);
  const int num_blocks = ot_runtime_schedule(shares->runtime)->num_blocks;
  for (int block = 0; block < num_blocks; block++) {
    for (int i = 0; i < OT_STATE_KINDS; i++) {
      const ot_parameter_copy copy = ot_state_kinds[i].copy;
      const int64_t to = *place_of(shares, block, copy);
      int64_t bytes;
      if (to < 0) continue;
      const ot_bucket_range held = range_of(shares, block, copy, &bytes);
      ot_executor_read(executor, held.offset, shares->copy + to, bytes);
    }
  }
}

// ---- visiting ----

// The counted runs of rows, on their way to a visitor.
typedef struct visiting {
  const ot_state_shares *shares;
  ot_bucket_range held;
  int64_t size;        // of an element
  const char *memory;  // of the range held; null: on a device
  ot_weight_visitor visitor;
  void *context;
} visiting;

static void pass_device_run(const visiting *v, const ot_slice *run) {
  ot_executor *const executor = ot_runtime_executor(v->shares->runtime);
  const int64_t most = STAGE_BYTES / v->size;
  for (int64_t done = 0; done < run->count; done += most) {
    const int64_t left = run->count - done, count = left < most ? left : most;
    const int64_t element = run->bucket - v->held.first + done;
    ot_executor_read(executor, v->held.offset + element * v->size, v->shares->stage,
                     count * v->size);
    v->visitor(v->context, run->whole + done, count, v->shares->stage);
  }
}

static void pass_run(void *context, const ot_slice *run) {
  const visiting *const v = context;
  if (!v->memory) {
    pass_device_run(v, run);
    return;
  }
  v->visitor(v->context, run->whole, run->count,
             v->memory + (run->bucket - v->held.first) * v->size);
}

typedef struct share_context {
  const ot_state_shares *shares;
  ot_parameter_copy copy;
} share_context;

static ot_status visit(void *context, const ot_weight_slice *rows, ot_weight_visitor visitor,
                       void *visitor_context) {
  const share_context *const c = context;
  ot_runtime *const runtime = c->shares->runtime;
  const int block = ot_runtime_whole_graph(runtime)->parameters[rows->parameter].block;
  if (!ot_runtime_counts(runtime, block, c->copy)) return OT_OK;
  const char *const arena = ot_executor_host_memory(ot_runtime_executor(runtime));
  visiting v = {.shares = c->shares,
                .held = ot_runtime_held_range(runtime, block, c->copy),
                .size = ot_dtype_bytes(ot_runtime_copy_dtype(runtime, c->copy)),
                .visitor = visitor,
                .context = visitor_context};
  if (c->shares->copy)
    v.memory = c->shares->copy + *place_of(c->shares, block, c->copy);
  else if (arena)
    v.memory = arena + v.held.offset;
  const ot_parameter_rows range = {rows->parameter, c->copy, rows->first_row, rows->rows};
  ot_runtime_visit_counted(runtime, &range, pass_run, &v);
  return OT_OK;
}

// ---- writing ----

// One kind of values of a tensor of the map, at its place in the files.
typedef struct entry {
  int kind, tensor;
  ot_weight_place place;
  int file;        // of its set
  int64_t offset;  // of the file's tensor
} entry;

static int by_place(const void *a, const void *b, const void *context) {
  (void)context;
  const entry *const x = a, *const y = b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->place.first > y->place.first) - (x->place.first < y->place.first);
}

static int list_entries(ot_arena *arena, const ot_state_content *content,
                        const ot_safetensors_layout *layout, int set, entry *entries) {
  int count = 0;
  for (int kind = 0; kind < OT_STATE_KINDS; kind++) {
    if ((int)ot_state_kinds[kind].set != set || !content->places[kind]) continue;
    for (int i = 0; i < content->view.map.num_tensors; i++) {
      const ot_weight_place place = content->places[kind][i];
      if (place.tensor < 0) continue;
      const ot_safetensors_tensor *const tensor = &layout->tensors[place.tensor];
      entries[count++] = (entry){kind, i, place, tensor->file, tensor->offset};
    }
  }
  ot_sort(entries, count, sizeof *entries, (ot_ordering){by_place, NULL}, arena);
  return count;
}

// The state of writing a set.
typedef struct set_writing {
  const ot_state_content *content;
  ot_weight_share share[OT_STATE_KINDS];
  ot_weight_turn turn;
  ot_safetensors_writer *writer;
  const entry *entries;  // [num_entries] in the order of the files
  int num_entries;
} set_writing;

static ot_status write_file(const set_writing *w, int file) {
  for (int i = 0; i < w->num_entries; i++) {
    const entry *const e = &w->entries[i];
    if (e->file != file) continue;
    const ot_weight_writing what = {.map = &w->content->view.map,
                                    .share = &w->share[e->kind],
                                    .turn = &w->turn,
                                    .writer = w->writer};
    OT_TRY(ot_weights_write(&what, e->tensor, e->place));
  }
  return OT_OK;
}

static ot_status write_set(set_writing *w, const ot_share_target *target, int set,
                           ot_arena *arena) {
  const ot_safetensors_layout *const layout = &target->plan->layout[set];
  const int before =
      set == OT_CHECKPOINT_MODEL ? 0 : target->plan->layout[OT_CHECKPOINT_MODEL].num_files;
  entry *const entries = ot_arena_array(
      arena, (int64_t)w->content->view.map.num_tensors * OT_STATE_KINDS, sizeof *entries);
  w->num_entries = list_entries(arena, w->content, layout, set, entries);
  w->entries = entries;
  w->writer = target->writers[set];
  const int first = (int)((int64_t)target->rank * layout->num_files / target->size);
  for (int i = 0; i < layout->num_files; i++) {
    const int file = (first + i) % layout->num_files;
    if ((before + file) % target->size == target->rank)
      OT_TRY(ot_safetensors_write_header(w->writer, file));
    OT_TRY(write_file(w, file));
  }
  return OT_OK;
}

ot_status ot_state_shares_write(ot_state_shares *shares, const ot_state_content *content,
                                const ot_share_target *target) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  share_context contexts[OT_STATE_KINDS];
  set_writing w = {.content = content};
  for (int i = 0; i < OT_STATE_KINDS; i++) {
    const ot_parameter_copy copy = ot_state_kinds[i].copy;
    contexts[i] = (share_context){shares, copy};
    w.share[i] = (ot_weight_share){.dtype = ot_runtime_copy_dtype(shares->runtime, copy),
                                   .visit = visit,
                                   .context = &contexts[i]};
  }
  ot_weight_turn_build(&arena, &content->view.map, &w.turn);
  ot_status status = OT_OK;
  for (int set = 0; set < OT_CHECKPOINT_SETS && status == OT_OK; set++)
    status = write_set(&w, target, set, &arena);
  ot_heap_release(&heap);
  return status;
}
