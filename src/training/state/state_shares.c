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

// One kind of values of a tensor of the map, at its place in the files.
typedef struct entry {
  int kind, tensor;
  ot_weight_place place;
  int file;                    // of its set
  int64_t offset;              // of the file's tensor
  const ot_weight_runs *runs;  // [num_pieces of the tensor]
} entry;

struct ot_state_shares {
  ot_runtime *runtime;
  char *copy;      // null: no snapshot
  int64_t bytes;   // of `copy`
  int64_t *place;  // [blocks][OT_COPIES] in `copy`; -1: not in it
  char *stage;     // [STAGE_BYTES] for memory of a device, without a snapshot

  // The share as data, made by the first write.
  ot_heap heap;
  ot_arena arena;
  bool listed;
  ot_weight_turn turn;
  entry *entries[OT_CHECKPOINT_SETS];  // [num_entries] in the order of the files
  int num_entries[OT_CHECKPOINT_SETS];
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
  shares->arena = ot_heap_arena_create(&shares->heap);
  const ot_status status = allocate(shares, snapshot);
  if (status != OT_OK) ot_state_shares_destroy(out);
  return status;
}

void ot_state_shares_destroy(ot_state_shares **shares) {
  if (!*shares) return;
  free((*shares)->copy);
  free((*shares)->place);
  free((*shares)->stage);
  ot_heap_release(&(*shares)->heap);
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

// ---- the share as data ----

// Where the elements of `range` are that this rank counts.
static ot_weight_runs list_runs(ot_state_shares *shares, const ot_parameter_rows *range) {
  ot_runtime *const runtime = shares->runtime;
  const int block = ot_runtime_whole_graph(runtime)->parameters[range->parameter].block;
  const ot_bucket_range held = ot_runtime_held_range(runtime, block, range->copy);
  const ot_shard_memory memory = {
      .held = held,
      .size = ot_dtype_bytes(ot_runtime_copy_dtype(runtime, range->copy)),
      .begin = shares->copy ? *place_of(shares, block, range->copy) : held.offset};
  if (!ot_runtime_counts(runtime, block, range->copy)) return (ot_weight_runs){0};
  const ot_slices counted = ot_runtime_counted(runtime, range);
  return ot_state_runs(&shares->arena, &counted, &memory);
}

static const ot_weight_runs *list_pieces(ot_state_shares *shares, const ot_weight_tensor *tensor,
                                         ot_parameter_copy copy) {
  ot_weight_runs *const runs = ot_arena_array(&shares->arena, tensor->num_pieces + 1, sizeof *runs);
  for (int i = 0; i < tensor->num_pieces; i++) {
    const ot_weight_slice *const p = &tensor->pieces[i];
    runs[i] = list_runs(shares, &(ot_parameter_rows){p->parameter, copy, p->first_row, p->rows});
  }
  return runs;
}

static int by_place(const void *a, const void *b, const void *context) {
  (void)context;
  const entry *const x = a, *const y = b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->place.first > y->place.first) - (x->place.first < y->place.first);
}

static void list_set(ot_state_shares *shares, const ot_state_content *content,
                     const ot_safetensors_layout *layout, int set) {
  const ot_weight_map *const map = &content->view.map;
  entry *const entries =
      ot_arena_array(&shares->arena, (int64_t)map->num_tensors * OT_STATE_KINDS, sizeof *entries);
  int count = 0;
  for (int kind = 0; kind < OT_STATE_KINDS; kind++) {
    if ((int)ot_state_kinds[kind].set != set || !content->places[kind]) continue;
    for (int i = 0; i < map->num_tensors; i++) {
      const ot_weight_place place = content->places[kind][i];
      if (place.tensor < 0) continue;
      const ot_safetensors_tensor *const tensor = &layout->tensors[place.tensor];
      entries[count++] = (entry){kind, i, place, tensor->file, tensor->offset, NULL};
    }
  }
  ot_sort(entries, count, sizeof *entries, (ot_ordering){by_place, NULL}, &shares->arena);
  for (int i = 0; i < count; i++) {
    const ot_parameter_copy copy = ot_state_kinds[entries[i].kind].copy;
    entries[i].runs = list_pieces(shares, &map->tensors[entries[i].tensor], copy);
  }
  shares->entries[set] = entries;
  shares->num_entries[set] = count;
}

// ---- writing ----

static void read_arena(void *context, int64_t offset, void *to, int64_t bytes) {
  ot_executor_read(context, offset, to, bytes);
}

// The state of writing a set.
typedef struct set_writing {
  const ot_state_shares *shares;
  const ot_weight_map *map;
  ot_weight_memory memory;
  ot_safetensors_writer *writer;
  int set;
} set_writing;

static ot_status write_file(const set_writing *w, int file) {
  const ot_state_shares *const shares = w->shares;
  for (int i = 0; i < shares->num_entries[w->set]; i++) {
    const entry *const e = &shares->entries[w->set][i];
    if (e->file != file) continue;
    const ot_weight_writing what = {
        .map = w->map,
        .dtype = ot_runtime_copy_dtype(shares->runtime, ot_state_kinds[e->kind].copy),
        .runs = e->runs,
        .memory = &w->memory,
        .turn = &shares->turn,
        .writer = w->writer};
    OT_TRY(ot_weights_write(&what, e->tensor, e->place));
  }
  return OT_OK;
}

static ot_status write_set(set_writing *w, const ot_share_target *target) {
  const ot_safetensors_layout *const layout = &target->plan->layout[w->set];
  const int before =
      w->set == OT_CHECKPOINT_MODEL ? 0 : target->plan->layout[OT_CHECKPOINT_MODEL].num_files;
  w->writer = target->writers[w->set];
  const int first = (int)((int64_t)target->rank * layout->num_files / target->size);
  for (int i = 0; i < layout->num_files; i++) {
    const int file = (first + i) % layout->num_files;
    if ((before + file) % target->size == target->rank)
      OT_TRY(ot_safetensors_write_header(w->writer, file));
    OT_TRY(write_file(w, file));
  }
  return OT_OK;
}

static void list_share(ot_state_shares *shares, const ot_state_content *content,
                       const ot_share_target *target) {
  if (shares->listed) return;
  ot_weight_turn_build(&shares->arena, &content->view.map, &shares->turn);
  for (int set = 0; set < OT_CHECKPOINT_SETS; set++)
    list_set(shares, content, &target->plan->layout[set], set);
  shares->listed = true;
}

ot_status ot_state_shares_write(ot_state_shares *shares, const ot_state_content *content,
                                const ot_share_target *target) {
  ot_executor *const executor = ot_runtime_executor(shares->runtime);
  list_share(shares, content, target);
  set_writing w = {
      .shares = shares,
      .map = &content->view.map,
      .memory = {.host = shares->copy ? shares->copy : ot_executor_host_memory(executor),
                 .read = read_arena,
                 .context = executor,
                 .stage = shares->stage,
                 .stage_bytes = STAGE_BYTES}};
  for (w.set = 0; w.set < OT_CHECKPOINT_SETS; w.set++) OT_TRY(write_set(&w, target));
  return OT_OK;
}
