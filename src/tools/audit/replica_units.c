// SPDX-License-Identifier: Apache-2.0
// From buckets, scalars and batches to units.
#include "audit/replica_units.h"

#include <xxhash.h>

#include "base/text.h"
#include "schedule/segment.h"

// ---- names ----

const char *ot_unit_kind_name(ot_unit_kind kind) {
  static const char *const names[OT_UNIT_KINDS] = {
      [OT_UNIT_WEIGHT] = "weights",         [OT_UNIT_GRADIENT] = "gradients",
      [OT_UNIT_MOMENT_1] = "first moments", [OT_UNIT_MOMENT_2] = "second moments",
      [OT_UNIT_MASTER] = "master weights",  [OT_UNIT_SCALAR] = "scalars",
      [OT_UNIT_BATCH] = "batches",          [OT_UNIT_WORD] = "counters",
  };
  return names[kind];
}

// Scalars that must be equal on all ranks after a step.
static const struct {
  ot_step_scalar scalar;
  const char *name;
} scalars[] = {
    {OT_SCALAR_LEARNING_RATE, "learning rate"},
    {OT_SCALAR_CLIP_FACTOR, "clip factor"},
    {OT_SCALAR_CORRECTION_1, "bias correction of first moments"},
    {OT_SCALAR_CORRECTION_2, "bias correction of second moments"},
    {OT_SCALAR_INVERSE_TOKENS, "1 / targets of the step"},
    {OT_SCALAR_GRADIENT_NORM, "gradient norm"},
    {OT_SCALAR_LOSS, "loss"},
    {OT_SCALAR_TARGETS, "targets of the step"},
    {OT_SCALAR_TARGET_SQUARES, "squares of targets"},
    {OT_SCALAR_LOCAL_SQUARES, "squares of local gradients"},
};

static const char *const field_names[OT_BATCH_FIELDS] = {
    [OT_BATCH_TOKENS] = "tokens",
    [OT_BATCH_TARGETS] = "targets",
    [OT_BATCH_POSITIONS] = "positions",
    [OT_BATCH_DOC_STARTS] = "document starts",
    [OT_BATCH_SAMPLE_IDS] = "sample numbers",
    [OT_BATCH_IDS] = "weighted targets",
    [OT_BATCH_WEIGHTS] = "weights of targets",
    [OT_BATCH_PICKS] = "picks",
};

static const char *const word_names[OT_REPLICA_WORDS] = {
    [OT_WORD_SEED] = "seed",
    [OT_WORD_STEP] = "step",
    [OT_WORD_NEXT_SAMPLE] = "next sample",
    [OT_WORD_TOKENS] = "tokens trained on",
};

static const char *scalar_name(int scalar) {
  for (int i = 0; i < OT_COUNT(scalars); i++) {
    if ((int)scalars[i].scalar == scalar) return scalars[i].name;
  }
  OT_UNREACHABLE();
}

static const char *part_name(const ot_graph *graph, int index) {
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    if (index < p->num_parts) return p->parts[index].hf_name;
    index -= p->num_parts;
  }
  OT_UNREACHABLE();
}

const char *ot_unit_name(const ot_runtime *runtime, ot_unit_kind kind, int index) {
  switch (kind) {
    case OT_UNIT_SCALAR:
      return scalar_name(index);
    case OT_UNIT_BATCH:
      return field_names[index];
    case OT_UNIT_WORD:
      return word_names[index];
    case OT_UNIT_WEIGHT:
    case OT_UNIT_GRADIENT:
    case OT_UNIT_MOMENT_1:
    case OT_UNIT_MOMENT_2:
    case OT_UNIT_MASTER:
      return part_name(ot_runtime_whole_graph(runtime), index);
    case OT_UNIT_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

// ---- units ----

typedef struct listing {
  const ot_runtime *runtime;
  const ot_mesh *mesh;
  int rank;
  ot_arena *arena;
  ot_unit_list *list;
  int64_t capacity;
} listing;

// Identifies the numbers of a unit.
typedef struct identity {
  int64_t kind, index;
  int64_t coordinates[6];
} identity;

static void add(listing *l, const ot_unit *unit, const int64_t *coordinates, int count) {
  identity id = {.kind = unit->kind, .index = unit->index};
  for (int i = 0; i < count; i++) id.coordinates[i] = coordinates[i];
  ot_unit_list *const list = l->list;
  list->units =
      ot_arena_grow(l->arena, list->units, list->num_units, &l->capacity, sizeof *list->units);
  list->units[list->num_units] = *unit;
  list->units[list->num_units++].key = XXH3_64bits(&id, sizeof id);
}

// The elements of a part within the held range of its bucket.
static void add_part(listing *l, ot_bucket_copy copy, const ot_parameter *p, int part, int index) {
  const ot_schedule *const schedule = ot_runtime_schedule(l->runtime);
  const ot_bucket_range *const held = &schedule->buckets[p->block].copy[copy];
  const ot_parameter_part *const slice = &p->parts[part];
  const int64_t size = ot_dtype_bytes(ot_runtime_copy_dtype(l->runtime, (ot_parameter_copy)copy));
  const int64_t start = p->offset + slice->first_row * p->cols;
  const int64_t end = start + slice->rows * p->cols;
  const int64_t from = start > held->first ? start : held->first;
  const int64_t to = end < held->first + held->count ? end : held->first + held->count;
  if (from >= to) return;
  const ot_unit unit = {
      .kind = (ot_unit_kind)copy,
      .index = index,
      .first = from - start,
      .count = to - from,
      .offset = held->offset + (from - held->first) * size,
      .size = size,
  };
  const int64_t coordinates[] = {slice->hf_first, slice->rows, slice->hf_first_col,
                                 p->cols,         unit.first,  unit.count};
  add(l, &unit, coordinates, OT_COUNT(coordinates));
}

static bool is_tied_to(const ot_graph *graph, int parameter) {
  for (int i = 0; i < graph->num_parameters; i++) {
    if (graph->parameters[i].tied_to == parameter) return true;
  }
  return false;
}

// The index in the whole parameter of a part of this rank: a rank of ep has the parts of some
// experts, with etp only some rows or columns of them.
static int part_in_whole(const ot_parameter *whole, const ot_parameter *local, int part) {
  const ot_parameter_part *const mine = &local->parts[part];
  if (whole->num_parts == local->num_parts) return part;
  for (int k = 0; k < whole->num_parts; k++) {
    const ot_parameter_part *const theirs = &whole->parts[k];
    const int64_t row = mine->hf_first - theirs->hf_first;
    const int64_t col = mine->hf_first_col - theirs->hf_first_col;
    const bool same = row >= 0 && row < theirs->rows && col >= 0 && col < whole->cols &&
                      ot_text_equal(theirs->hf_name, mine->hf_name);
    if (same) return k;
  }
  OT_UNREACHABLE();
}

static void add_copies(listing *l) {
  const ot_graph *const graph = ot_runtime_any_graph(l->runtime);
  const ot_graph *const whole = ot_runtime_whole_graph(l->runtime);
  const ot_schedule *const schedule = ot_runtime_schedule(l->runtime);
  int before = 0;
  for (int i = 0; i < graph->num_parameters; i++) {
    const ot_parameter *const p = &graph->parameters[i];
    const ot_bucket *const bucket = &schedule->buckets[p->block];
    // In the bucket that a stage holds for a tied head, only the tied tensor is used.
    const bool held = bucket->counted || is_tied_to(graph, i);
    for (int part = 0; part < p->num_parts; part++) {
      const int index = before + part_in_whole(&whole->parameters[i], p, part);
      for (int copy = 0; held && copy < OT_BUCKET_COPIES; copy++) {
        add_part(l, (ot_bucket_copy)copy, p, part, index);
      }
    }
    before += whole->parameters[i].num_parts;
  }
}

static void add_scalars(listing *l) {
  const int64_t base = ot_schedule_region(ot_runtime_schedule(l->runtime), "scalars")->offset;
  for (int i = 0; i < OT_COUNT(scalars); i++) {
    const ot_unit unit = {.kind = OT_UNIT_SCALAR,
                          .index = (int)scalars[i].scalar,
                          .count = 1,
                          .offset = base + (int64_t)scalars[i].scalar * 8,
                          .size = 8};
    add(l, &unit, NULL, 0);
  }
  for (int i = 0; i < OT_REPLICA_WORDS; i++) {
    const ot_unit unit = {.kind = OT_UNIT_WORD, .index = i, .count = 1, .size = 8};
    add(l, &unit, NULL, 0);
  }
}

static int coordinate(const listing *l, ot_axis axis) {
  return l->mesh ? ot_mesh_coordinate(l->mesh, l->rank, axis) : 0;
}

// Ranks of tp and all stages share the same tokens; those of cp hold other shards of the sequences.
static void add_batches(listing *l) {
  const ot_schedule *const schedule = ot_runtime_schedule(l->runtime);
  const ot_graph *const graph = ot_runtime_graph(l->runtime, OT_MODE_TRAIN);
  int64_t base = -1;
  for (int i = 0; i < schedule->num_regions; i++) {
    const ot_region *const region = &schedule->regions[i];
    const bool of_step = !region->persistent && region->order == (int)OT_ORDER_STEP;
    if (of_step && ot_text_equal(region->name, "batch")) base = region->offset;
  }
  OT_ASSERT(base >= 0);
  l->list->batch_stride = ot_segment_batch_bytes(graph);
  for (int field = 0; field < OT_BATCH_PICKS; field++) {
    const ot_tensor_type type = ot_graph_batch_type(graph, (ot_batch_field)field);
    const ot_unit unit = {.kind = OT_UNIT_BATCH,
                          .index = field,
                          .count = ot_type_elements(&type),
                          .offset = base + ot_segment_batch_offset(graph, (ot_batch_field)field),
                          .size = ot_dtype_bytes(type.dtype)};
    const int64_t coordinates[] = {coordinate(l, OT_AXIS_DP_REPLICATE),
                                   coordinate(l, OT_AXIS_DP_SHARD),
                                   field == OT_BATCH_SAMPLE_IDS ? 0 : coordinate(l, OT_AXIS_CP)};
    add(l, &unit, coordinates, OT_COUNT(coordinates));
  }
}

static void count_parts(listing *l) {
  const ot_graph *const whole = ot_runtime_whole_graph(l->runtime);
  ot_unit_list *const list = l->list;
  for (int i = 0; i < whole->num_parameters; i++) list->num_parts += whole->parameters[i].num_parts;
  list->part_count = ot_arena_array(l->arena, list->num_parts + 1, sizeof *list->part_count);
  int index = 0;
  for (int i = 0; i < whole->num_parameters; i++) {
    const ot_parameter *const p = &whole->parameters[i];
    for (int k = 0; k < p->num_parts; k++) list->part_count[index++] = p->parts[k].rows * p->cols;
  }
}

void ot_units_list(const ot_runtime *runtime, const ot_mesh *mesh, int rank, ot_arena *arena,
                   ot_unit_list *list) {
  listing l = {.runtime = runtime, .mesh = mesh, .rank = rank, .arena = arena, .list = list};
  *list = (ot_unit_list){0};
  count_parts(&l);
  add_copies(&l);
  add_scalars(&l);
  add_batches(&l);
}

// ---- hashes ----

enum { CHUNK_BYTES = 64 * 1024 };

static int count_chunks(const ot_unit *unit) {
  return (int)((unit->count * unit->size + CHUNK_BYTES - 1) / CHUNK_BYTES);
}

void ot_unit_hasher_build(ot_runtime *runtime, const ot_unit_list *list, const bool *wanted,
                          ot_arena *arena, ot_unit_hasher *hasher) {
  const int n = list->num_units;
  *hasher = (ot_unit_hasher){.runtime = runtime, .list = list, .wanted = wanted};
  hasher->first_chunk = ot_arena_array(arena, n + 1, sizeof *hasher->first_chunk);
  for (int i = 0; i < n; i++) {
    hasher->first_chunk[i + 1] =
        hasher->first_chunk[i] + (wanted[i] ? count_chunks(&list->units[i]) : 0);
  }
  const int chunks = hasher->first_chunk[n];
  hasher->unit = ot_arena_array(arena, chunks + 1, sizeof *hasher->unit);
  for (int i = 0; i < n; i++) {
    for (int k = hasher->first_chunk[i]; k < hasher->first_chunk[i + 1]; k++) hasher->unit[k] = i;
  }
  hasher->hashes = ot_arena_array(arena, chunks + 1, sizeof *hasher->hashes);
  hasher->staging =
      ot_arena_take(arena, (int64_t)ot_runtime_schedule(runtime)->threads * CHUNK_BYTES);
}

// At most CHUNK_BYTES.
static uint64_t hash_chunk(ot_unit_hasher *h, int64_t offset, int64_t bytes,
                           unsigned char *staging) {
  ot_executor_read(ot_runtime_executor(h->runtime), offset, staging, bytes);
  return XXH3_64bits(staging, (size_t)bytes);
}

static void hash_chunk_of_unit(ot_unit_hasher *h, int64_t chunk, unsigned char *staging) {
  const ot_unit *const unit = &h->list->units[h->unit[chunk]];
  const int64_t at = (chunk - h->first_chunk[h->unit[chunk]]) * CHUNK_BYTES;
  const int64_t left = unit->count * unit->size - at;
  h->hashes[chunk] =
      hash_chunk(h, unit->offset + at, left < CHUNK_BYTES ? left : CHUNK_BYTES, staging);
}

void ot_unit_hasher_run(ot_unit_hasher *hasher, int64_t *hashes) {
  const int threads = ot_runtime_schedule(hasher->runtime)->threads, n = hasher->list->num_units;
  const int64_t chunks = hasher->first_chunk[n];
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int t = 0; t < threads; t++) {
    unsigned char *const staging = hasher->staging + (int64_t)t * CHUNK_BYTES;
    const int64_t end = chunks * (t + 1) / threads;
    for (int64_t k = chunks * t / threads; k < end; k++) hash_chunk_of_unit(hasher, k, staging);
  }
  for (int i = 0; i < n; i++) {
    const int first = hasher->first_chunk[i], count = hasher->first_chunk[i + 1] - first;
    if (!hasher->wanted[i]) continue;
    hashes[i] =
        (int64_t)XXH3_64bits(hasher->hashes + first, (size_t)count * sizeof *hasher->hashes);
  }
}

uint64_t ot_unit_hasher_range(ot_unit_hasher *hasher, int64_t offset, int64_t bytes) {
  uint64_t hash = 0;
  for (int64_t at = 0; at < bytes; at += CHUNK_BYTES) {
    const int64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
    const uint64_t pair[] = {hash, hash_chunk(hasher, offset + at, n, hasher->staging)};
    hash = XXH3_64bits(pair, sizeof pair);
  }
  return hash;
}
