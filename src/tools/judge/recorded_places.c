// SPDX-License-Identifier: Apache-2.0
// The tensors of one rank: each key of its tensor file has an entry that says where the values lie
// in the whole tensor.
#include <assert.h>

#include "base/name_list.h"
#include "base/text.h"
#include "judge/recorded_parts.h"

static const char *const kind_names[] = {
    [OT_RECORDED_WEIGHT] = "weight",
    [OT_RECORDED_GRAD] = "grad",
    [OT_RECORDED_AFTER] = "after",
    [OT_RECORDED_M] = "m",
    [OT_RECORDED_V] = "v",
    [OT_RECORDED_M_BEFORE] = "m_before",
    [OT_RECORDED_V_BEFORE] = "v_before",
    [OT_RECORDED_MASTER] = "master",
    [OT_RECORDED_ACT] = "act",
    [OT_RECORDED_MASTER_AFTER] = "master_after",
    [OT_RECORDED_ROUTES] = "routes",
    [OT_RECORDED_ACT_GRAD] = "act_grad",
    [OT_RECORDED_BATCH] = "batch",
    [OT_RECORDED_LOGPROB] = "logprob",
};
static_assert(OT_COUNT(kind_names) == OT_RECORDED_KINDS, "a name for each kind");

enum { RUNS_MAX = 1 << 24 };

const char *ot_recorded_kind_name(ot_recorded_kind kind) { return kind_names[kind]; }

// An entry while it is read.
typedef struct place {
  const ot_recorded_reading *reading;
  const char *key;                      // "grad/model.norm.weight"
  const json_t *entry;                  // its place
  const ot_safetensors_tensor *stored;  // its values
} place;

// ---- keys ----

// MICRO.NAME of kinds with one tensor for each batch. Digits, of which none is too many, and a dot.
static bool split_micro(const char **name, int *micro) {
  const char *at = *name;
  int64_t number = 0;
  for (; ot_is_digit(*at) && number < OT_RECORDED_MICRO_MAX; at++) number = 10 * number + *at - '0';
  if (at == *name || *at != '.' || number >= OT_RECORDED_MICRO_MAX) return false;
  *name = at + 1;
  *micro = (int)number;
  return true;
}

// *known is false for a kind that this program does not know.
static ot_status read_key(const place *p, ot_recorded_tensor *tensor, bool *known) {
  const char *const slash = ot_text_find(p->key, "/");
  OT_CHECK(slash != NULL, OT_ENVIRONMENT,
           "%s: tensor %s: its name is not KIND/NAME, such as grad/model.norm.weight",
           p->reading->file, p->key);
  const char *const kind = ot_arena_text(p->reading->arena, p->key, slash - p->key);
  const char *name = slash + 1;
  *tensor = (ot_recorded_tensor){.kind = OT_RECORDED_KINDS, .micro = -1, .dp_rank = -1};
  for (int i = 0; i < OT_RECORDED_KINDS; i++)
    if (ot_text_equal(kind_names[i], kind)) tensor->kind = (ot_recorded_kind)i;
  *known = tensor->kind != OT_RECORDED_KINDS;
  OT_CHECK(!*known || tensor->kind < OT_RECORDED_ACT || split_micro(&name, &tensor->micro),
           OT_ENVIRONMENT,
           "%s: tensor %s: its name is not %s/MICRO.NAME with the number of a batch below %d",
           p->reading->file, p->key, kind, OT_RECORDED_MICRO_MAX);
  OT_CHECK(name[0] != '\0', OT_ENVIRONMENT, "%s: tensor %s has no name after its kind",
           p->reading->file, p->key);
  tensor->name = ot_arena_text(p->reading->arena, name, ot_text_length(name));
  return OT_OK;
}

// ---- places ----

// A list of at most OT_RECORDED_DIMS counts; *num is -1 if the entry has none.
static ot_status read_dims(const place *p, const char *key, int64_t dims[OT_RECORDED_DIMS],
                           int *num) {
  const json_t *const list = json_object_get(p->entry, key);
  const int64_t many = (int64_t)json_array_size(list);
  *num = -1;
  if (list == NULL) return OT_OK;
  OT_CHECK(json_is_array(list) && many <= OT_RECORDED_DIMS, OT_ENVIRONMENT,
           "%s: tensor %s: key \"%s\" is not a list of at most %d numbers", p->reading->file,
           p->key, key, OT_RECORDED_DIMS);
  for (int i = 0; i < many; i++) {
    const json_t *const item = json_array_get(list, (size_t)i);
    dims[i] = json_integer_value(item);
    OT_CHECK(json_is_integer(item) && dims[i] >= 0, OT_ENVIRONMENT,
             "%s: tensor %s: number %d of key \"%s\" is not a count", p->reading->file, p->key, i,
             key);
  }
  *num = (int)many;
  return OT_OK;
}

static ot_status count_elements(const place *p, const int64_t *dims, int num, int64_t *elements) {
  *elements = 1;
  bool fits = true, empty = false;
  for (int i = 0; i < num; i++) empty = empty || dims[i] == 0;
  for (int i = 0; i < num && !empty; i++)
    fits = fits && !__builtin_mul_overflow(*elements, dims[i], elements);
  if (empty) *elements = 0;
  OT_CHECK(fits && *elements <= INT64_MAX / 8, OT_ENVIRONMENT,
           "%s: tensor %s: the size of shape [%s] overflows 64 bits", p->reading->file, p->key,
           ot_dims_text(p->reading->arena, dims, num));
  return OT_OK;
}

// The block that the values are a part of: given, that of the stored tensor, or all of it.
static ot_status read_block(const place *p, bool flat, const ot_recorded_tensor *tensor,
                            ot_recorded_piece *piece) {
  const ot_safetensors_tensor *const stored = p->stored;
  ot_arena *const arena = p->reading->arena;
  int given;
  OT_TRY(read_dims(p, "block", piece->block, &given));
  if (given >= 0) {
    OT_CHECK(flat && given == tensor->num_dims, OT_ENVIRONMENT,
             "%s: tensor %s: key \"block\" is a list of %d numbers; it stands beside \"flat\" and "
             "has the %d dimensions of \"shape\"",
             p->reading->file, p->key, given, tensor->num_dims);
    return OT_OK;
  }
  OT_CHECK(flat || stored->rank == tensor->num_dims, OT_ENVIRONMENT,
           "%s: tensor %s has shape [%s], but its values [%s] have other dimensions",
           p->reading->file, p->key, ot_dims_text(arena, tensor->shape, tensor->num_dims),
           ot_dims_text(arena, stored->dim, stored->rank));
  for (int i = 0; i < tensor->num_dims; i++)
    piece->block[i] = flat ? tensor->shape[i] : stored->dim[i];
  return OT_OK;
}

static ot_status check_block(const place *p, const ot_recorded_tensor *tensor,
                             const ot_recorded_piece *piece) {
  ot_arena *const arena = p->reading->arena;
  const int num = tensor->num_dims;
  bool inside = true;
  for (int i = 0; i < num; i++)
    inside = inside && piece->block[i] <= tensor->shape[i] &&
             piece->offset[i] <= tensor->shape[i] - piece->block[i];
  OT_CHECK(inside, OT_USAGE, "%s: tensor %s: a block of [%s] at [%s] passes the end of [%s]",
           p->reading->file, p->key, ot_dims_text(arena, piece->block, num),
           ot_dims_text(arena, piece->offset, num), ot_dims_text(arena, tensor->shape, num));
  return OT_OK;
}

// Runs of the block's elements: first, count, first, count, ...
static ot_status read_runs(const place *p, const json_t *flat, int64_t block,
                           ot_recorded_piece *piece) {
  const int64_t many = (int64_t)json_array_size(flat);
  OT_CHECK(json_is_array(flat) && many % 2 == 0 && many / 2 <= RUNS_MAX, OT_ENVIRONMENT,
           "%s: tensor %s: key \"flat\" is not a list of pairs of first element and count",
           p->reading->file, p->key);
  int64_t *const runs = ot_arena_array(p->reading->arena, many, sizeof *runs);
  int64_t end = 0, sum = 0;
  for (int64_t i = 0; i < many; i += 2) {
    const json_t *const first = json_array_get(flat, (size_t)i);
    const json_t *const count = json_array_get(flat, (size_t)i + 1);
    runs[i] = json_integer_value(first);
    runs[i + 1] = json_integer_value(count);
    OT_CHECK(json_is_integer(first) && json_is_integer(count) && runs[i] >= end &&
                 runs[i + 1] > 0 && runs[i] <= block && runs[i + 1] <= block - runs[i],
             OT_USAGE,
             "%s: tensor %s: run %lld of key \"flat\" is not after the one before it and within "
             "the %lld elements of its block",
             p->reading->file, p->key, (long long)(i / 2), (long long)block);
    end = runs[i] + runs[i + 1];
    sum += runs[i + 1];
  }
  OT_CHECK(sum == p->stored->elements, OT_USAGE,
           "%s: tensor %s: the runs of key \"flat\" are %lld elements, its values are %lld",
           p->reading->file, p->key, (long long)sum, (long long)p->stored->elements);
  piece->num_runs = (int)(many / 2);
  piece->runs = runs;
  return OT_OK;
}

static ot_status read_partial(const place *p, uint32_t *partial) {
  const ot_recorded_step *const step = p->reading->step;
  const json_t *axes;
  size_t index;
  json_t *item;
  OT_TRY(ot_recorded_member(p->reading, p->entry, "partial", JSON_ARRAY, &axes));
  json_array_foreach(axes, index, item) {
    const char *const name = json_is_string(item) ? json_string_value(item) : "";
    int axis = 0;
    while (axis < step->num_axes && !ot_text_equal(step->axes[axis].name, name)) axis++;
    if (axis == step->num_axes) {
      ot_fail(OT_USAGE, "%s: tensor %s is partial over axis \"%s\", which the mesh lacks",
              p->reading->file, p->key, name);
      return ot_fail_hint(OT_USAGE, "give the Recorder the mesh with all its axes");
    }
    *partial |= (uint32_t)1 << axis;
  }
  return OT_OK;
}

static ot_status read_place(const place *p, ot_recorded_tensor *tensor, ot_recorded_piece *piece) {
  int num;
  int64_t block;
  OT_CHECK(json_is_object(p->entry), OT_ENVIRONMENT, "%s: tensor %s: its place is not an object",
           p->reading->file, p->key);
  const json_t *const flat = json_object_get(p->entry, "flat");
  OT_TRY(read_dims(p, "shape", tensor->shape, &tensor->num_dims));
  if (tensor->num_dims < 0) {
    OT_CHECK(p->stored->rank <= OT_RECORDED_DIMS, OT_ENVIRONMENT,
             "%s: tensor %s has %d dimensions, at most %d are allowed", p->reading->file, p->key,
             p->stored->rank, OT_RECORDED_DIMS);
    tensor->num_dims = p->stored->rank;
    for (int i = 0; i < tensor->num_dims; i++) tensor->shape[i] = p->stored->dim[i];
  }
  OT_TRY(count_elements(p, tensor->shape, tensor->num_dims, &tensor->elements));
  OT_TRY(read_dims(p, "offset", piece->offset, &num));
  OT_CHECK(num < 0 || num == tensor->num_dims, OT_ENVIRONMENT,
           "%s: tensor %s: key \"offset\" has %d numbers, the shape has %d", p->reading->file,
           p->key, num, tensor->num_dims);
  OT_TRY(read_block(p, flat != NULL, tensor, piece));
  OT_TRY(check_block(p, tensor, piece));
  OT_TRY(count_elements(p, piece->block, tensor->num_dims, &block));
  if (flat != NULL) OT_TRY(read_runs(p, flat, block, piece));
  piece->rank = p->reading->rank;
  piece->elements = p->stored->elements;
  piece->file_offset = p->stored->offset;
  return read_partial(p, &tensor->partial);
}

// ---- types ----

static ot_status read_type(const place *p, ot_recorded_tensor *tensor) {
  const ot_safetensors_type type = p->stored->type;
  const bool known = ot_safetensors_type_dtype(type, &tensor->dtype);
  const bool real = known && ot_dtype_is_real(tensor->dtype);
  const bool integer = known && (tensor->dtype == OT_I32 || tensor->dtype == OT_I64);
  const bool weights = tensor->kind == OT_RECORDED_BATCH && ot_text_equal(tensor->name, "weight");
  const bool integers =
      tensor->kind == OT_RECORDED_ROUTES || (tensor->kind == OT_RECORDED_BATCH && !weights);
  OT_CHECK(integers ? integer : real, OT_ENVIRONMENT, "%s: tensor %s is %s, allowed: %s",
           p->reading->file, p->key, ot_safetensors_type_name(type),
           integers ? "I32, I64" : "F64, F32, BF16, F16");
  return OT_OK;
}

// ---- all tensors ----

static ot_status read_tensor(ot_recorded_reading *reading, const place *p) {
  ot_recorded_entry entry = {0};
  bool known = false;
  OT_TRY(read_key(p, &entry.tensor, &known));
  if (!known) {
    if (reading->num_unknown++ == 0)
      reading->unknown_kind =
          ot_arena_text(reading->arena, p->key, ot_text_find(p->key, "/") - p->key);
    return OT_OK;
  }
  OT_TRY(read_place(p, &entry.tensor, &entry.piece));
  OT_TRY(read_type(p, &entry.tensor));
  OT_CHECK(reading->num_entries < OT_RECORDED_PIECES_MAX, OT_ENVIRONMENT,
           "%s: the record has more than %d tensors in all ranks", reading->file,
           OT_RECORDED_PIECES_MAX);
  reading->entries = ot_arena_grow(reading->arena, reading->entries, reading->num_entries,
                                   &reading->entries_capacity, sizeof *reading->entries);
  reading->entries[reading->num_entries++] = entry;
  return OT_OK;
}

ot_status ot_recorded_read_tensors(ot_recorded_reading *reading, const json_t *places,
                                   const ot_safetensors *files) {
  const int count = ot_safetensors_count(files);
  const char *name;
  json_t *value;
  for (int i = 0; i < count; i++) {
    const ot_safetensors_tensor *const stored = ot_safetensors_tensor_at(files, i);
    const place p = {reading, stored->name, json_object_get(places, stored->name), stored};
    OT_CHECK(p.entry != NULL, OT_USAGE, "%s: key \"tensors\" has no place of tensor %s of %s",
             reading->file, stored->name, ot_safetensors_file_path(files, 0));
    OT_TRY(read_tensor(reading, &p));
  }
  if ((int)json_object_size(places) == count) return OT_OK;
  json_object_foreach((json_t *)(uintptr_t)places, name, value)
      OT_CHECK(ot_safetensors_find(files, name) >= 0, OT_USAGE, "%s: tensor %s is not in %s",
               reading->file, name, ot_safetensors_file_path(files, 0));
  return OT_OK;
}
