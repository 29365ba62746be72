// SPDX-License-Identifier: Apache-2.0
// Reads rows by tables of keys, one line per key. Ignores unknown keys: the files describe a run in
// more detail than a prediction needs.
#include "published_row.h"

#include <stddef.h>
#include <string.h>

#include "files/json_file.h"

enum { MAX_BYTES = 64 << 20, MAX_COUNT = 1 << 30 };

typedef enum key_kind {
  KEY_TEXT,   // text or null = ""
  KEY_COUNT,  // whole number of at least 0, or null = 0
  KEY_STAGE,  // the same, but null = OT_PUBLISHED_OPEN
  KEY_REAL,   // number of at least 0, or null = 0
  KEY_FLAG,   // true, false, or null = OT_PUBLISHED_OPEN
} key_kind;

typedef struct key {
  const char *name;
  key_kind kind;
  size_t offset;
} key;

static const key row_keys[] = {
    {"source", KEY_TEXT, offsetof(ot_published_row, source)},
    {"notes", KEY_TEXT, offsetof(ot_published_row, notes)},
    {"software", KEY_TEXT, offsetof(ot_published_row, software)},
    {"gpus", KEY_COUNT, offsetof(ot_published_row, gpus)},
    {"tp", KEY_COUNT, offsetof(ot_published_row, tp)},
    {"pp", KEY_COUNT, offsetof(ot_published_row, pp)},
    {"dp", KEY_COUNT, offsetof(ot_published_row, dp)},
    {"cp", KEY_COUNT, offsetof(ot_published_row, cp)},
    {"ep", KEY_COUNT, offsetof(ot_published_row, ep)},
    {"vpp", KEY_COUNT, offsetof(ot_published_row, vpp)},
    {"zero", KEY_STAGE, offsetof(ot_published_row, zero)},
    {"sp", KEY_FLAG, offsetof(ot_published_row, sp)},
    {"core", KEY_FLAG, offsetof(ot_published_row, core)},
    {"usable_for_step_time", KEY_FLAG, offsetof(ot_published_row, usable)},
    {"flash_attention", KEY_FLAG, offsetof(ot_published_row, flash_attention)},
    {"schedule", KEY_TEXT, offsetof(ot_published_row, schedule)},
    {"hsdp", KEY_TEXT, offsetof(ot_published_row, hsdp)},
    {"recompute", KEY_TEXT, offsetof(ot_published_row, recompute)},
    {"dtype", KEY_TEXT, offsetof(ot_published_row, dtype)},
    {"optimizer", KEY_TEXT, offsetof(ot_published_row, optimizer)},
    {"memory_def", KEY_TEXT, offsetof(ot_published_row, memory_def)},
    {"seq_len", KEY_COUNT, offsetof(ot_published_row, seq_len)},
    {"mbs", KEY_COUNT, offsetof(ot_published_row, mbs)},
    {"gbs", KEY_COUNT, offsetof(ot_published_row, gbs)},
    {"inter_gbps_per_gpu", KEY_REAL, offsetof(ot_published_row, inter_gbps)},
    {"power_limit_w", KEY_REAL, offsetof(ot_published_row, power_limit_w)},
    {"compile", KEY_FLAG, offsetof(ot_published_row, does.compile)},
    {"cuda_graphs", KEY_FLAG, offsetof(ot_published_row, does.cuda_graphs)},
    {"async_tp", KEY_FLAG, offsetof(ot_published_row, does.async_tp)},
    {"gradient_dtype", KEY_TEXT, offsetof(ot_published_row, does.gradient_dtype)},
    {"gather_dtype", KEY_TEXT, offsetof(ot_published_row, does.gather_dtype)},
    {"dispatcher", KEY_TEXT, offsetof(ot_published_row, does.dispatcher)},
    {"group_limited_routing", KEY_TEXT, offsetof(ot_published_row, does.routing_groups)},
    {"step_time_s", KEY_REAL, offsetof(ot_published_row, step_time_s)},
    {"memory_gb", KEY_REAL, offsetof(ot_published_row, memory_gb)},
};

static const key overlap_keys[] = {
    {"reduce", KEY_FLAG, offsetof(ot_published_software, overlap_reduce)},
    {"gather", KEY_FLAG, offsetof(ot_published_software, overlap_gather)},
    {"moe", KEY_FLAG, offsetof(ot_published_software, overlap_moe)},
};

static const key model_keys[] = {
    {"name", KEY_TEXT, offsetof(ot_published_model, name)},
    {"ffn_kind", KEY_TEXT, offsetof(ot_published_model, ffn_kind)},
    {"layers", KEY_COUNT, offsetof(ot_published_model, layers)},
    {"hidden", KEY_COUNT, offsetof(ot_published_model, hidden)},
    {"heads", KEY_COUNT, offsetof(ot_published_model, heads)},
    {"kv_heads", KEY_COUNT, offsetof(ot_published_model, kv_heads)},
    {"head_dim", KEY_COUNT, offsetof(ot_published_model, head_dim)},
    {"ffn", KEY_COUNT, offsetof(ot_published_model, ffn)},
    {"vocab", KEY_COUNT, offsetof(ot_published_model, vocab)},
    {"tied_embeddings", KEY_FLAG, offsetof(ot_published_model, tied_embeddings)},
};

static const key moe_keys[] = {
    {"experts", KEY_COUNT, offsetof(ot_published_experts, experts)},
    {"topk", KEY_COUNT, offsetof(ot_published_experts, topk)},
    {"moe_ffn", KEY_COUNT, offsetof(ot_published_experts, moe_ffn)},
    {"shared_experts", KEY_COUNT, offsetof(ot_published_experts, shared_experts)},
    {"shared_ffn", KEY_COUNT, offsetof(ot_published_experts, shared_ffn)},
    {"dense_first_layers", KEY_COUNT, offsetof(ot_published_experts, dense_first_layers)},
    {"mtp_layers", KEY_COUNT, offsetof(ot_published_experts, mtp_layers)},
};

static const key mla_keys[] = {
    {"q_lora", KEY_COUNT, offsetof(ot_published_latent, q_lora)},
    {"kv_lora", KEY_COUNT, offsetof(ot_published_latent, kv_lora)},
    {"qk_nope", KEY_COUNT, offsetof(ot_published_latent, qk_nope)},
    {"qk_rope", KEY_COUNT, offsetof(ot_published_latent, qk_rope)},
    {"v_head", KEY_COUNT, offsetof(ot_published_latent, v_head)},
};

static const key gpu_keys[] = {
    {"name", KEY_TEXT, offsetof(ot_published_gpu, name)},
    {"bf16", KEY_REAL, offsetof(ot_published_gpu, bf16)},
    {"fp8", KEY_REAL, offsetof(ot_published_gpu, fp8)},
    {"mem", KEY_REAL, offsetof(ot_published_gpu, mem)},
    {"hbm", KEY_REAL, offsetof(ot_published_gpu, hbm)},
    {"nvl", KEY_REAL, offsetof(ot_published_gpu, nvl)},
    {"dom", KEY_COUNT, offsetof(ot_published_gpu, dom)},
};

// A section of a row: its member name ("" = the row itself) and its keys.
typedef struct section {
  const char *name;
  const key *keys;
  int num_keys;
} section;

static const section row_section = {"", row_keys, OT_COUNT(row_keys)};
static const section overlap_section = {"overlap", overlap_keys, OT_COUNT(overlap_keys)};
static const section model_section = {"model", model_keys, OT_COUNT(model_keys)};
static const section moe_section = {"moe", moe_keys, OT_COUNT(moe_keys)};
static const section mla_section = {"mla", mla_keys, OT_COUNT(mla_keys)};
static const section gpu_section = {"gpu", gpu_keys, OT_COUNT(gpu_keys)};

// One value and its location.
typedef struct place {
  const char *where;  // "FILE: row ID"
  const char *key;
  const json_t *value;
} place;

static ot_status read_text(const place *p, ot_arena *arena, const char **out) {
  OT_CHECK(json_is_null(p->value) || json_is_string(p->value), OT_USAGE,
           "%s: key \"%s\" is not a string or null", p->where, p->key);
  const char *const text = json_is_null(p->value) ? "" : json_string_value(p->value);
  *out = ot_arena_text(arena, text, (int64_t)strlen(text));
  return OT_OK;
}

static ot_status read_count(const place *p, int64_t otherwise, int64_t *out) {
  *out = otherwise;
  if (json_is_null(p->value)) return OT_OK;
  *out = json_integer_value(p->value);
  OT_CHECK(json_is_integer(p->value) && *out >= 0 && *out <= MAX_COUNT, OT_USAGE,
           "%s: key \"%s\" is not an integer from 0 to %d or null", p->where, p->key, MAX_COUNT);
  return OT_OK;
}

static ot_status read_real(const place *p, double *out) {
  *out = json_number_value(p->value);  // 0 for null
  OT_CHECK(json_is_null(p->value) || (json_is_number(p->value) && *out >= 0), OT_USAGE,
           "%s: key \"%s\" is not a number >= 0 or null", p->where, p->key);
  return OT_OK;
}

static ot_status read_flag(const place *p, int *out) {
  *out = json_is_null(p->value) ? OT_PUBLISHED_OPEN : json_is_true(p->value);
  OT_CHECK(json_is_null(p->value) || json_is_boolean(p->value), OT_USAGE,
           "%s: key \"%s\" is not true, false or null", p->where, p->key);
  return OT_OK;
}

static ot_status read_value(const place *p, key_kind kind, ot_arena *arena, void *field) {
  switch (kind) {
    case KEY_TEXT:
      return read_text(p, arena, field);
    case KEY_COUNT:
      return read_count(p, 0, field);
    case KEY_STAGE:
      return read_count(p, OT_PUBLISHED_OPEN, field);
    case KEY_REAL:
      return read_real(p, field);
    case KEY_FLAG:
      return read_flag(p, field);
  }
  OT_UNREACHABLE();
}

static ot_status read_keys(const char *where, const json_t *object, const section *part,
                           ot_arena *arena, void *out) {
  json_t *const null = json_null();
  for (int i = 0; i < part->num_keys; i++) {
    const key *const k = &part->keys[i];
    const json_t *const found = json_object_get(object, k->name);
    const place p = {where, k->name, found != NULL ? found : null};
    OT_TRY(read_value(&p, k->kind, arena, (char *)out + k->offset));
  }
  return OT_OK;
}

// Reads the member `part` of `object`; absent or null leaves `out` unchanged.
static ot_status read_member(const char *where, const json_t *object, const section *part,
                             ot_arena *arena, void *out) {
  const json_t *const member = json_object_get(object, part->name);
  if (member == NULL || json_is_null(member)) return OT_OK;
  OT_CHECK(json_is_object(member), OT_USAGE, "%s: key \"%s\" is not an object", where, part->name);
  return read_keys(ot_arena_format(arena, "%s: %s", where, part->name), member, part, arena, out);
}

static ot_status read_row(const char *where, const json_t *object, ot_arena *arena,
                          ot_published_row *out) {
  out->does.overlap_reduce = out->does.overlap_gather = out->does.overlap_moe = OT_PUBLISHED_OPEN;
  OT_TRY(read_keys(where, object, &row_section, arena, out));
  OT_TRY(read_member(where, object, &overlap_section, arena, &out->does));
  OT_CHECK(out->usable != 1 || out->step_time_s > 0, OT_USAGE,
           "%s: usable_for_step_time without a step_time_s", where);
  OT_CHECK(out->source[0] != '\0', OT_USAGE, "%s: key \"source\" is missing", where);
  const json_t *const model = json_object_get(object, model_section.name);
  OT_CHECK(json_is_object(model), OT_USAGE, "%s: key \"model\" is missing or not an object", where);
  OT_CHECK(json_is_object(json_object_get(object, gpu_section.name)), OT_USAGE,
           "%s: key \"gpu\" is missing or not an object", where);
  OT_TRY(read_member(where, object, &model_section, arena, &out->model));
  OT_TRY(read_member(where, object, &gpu_section, arena, &out->gpu));
  OT_TRY(read_member(where, model, &moe_section, arena, &out->model.moe));
  out->model.has_experts = json_is_object(json_object_get(model, moe_section.name));
  out->model.has_latent = json_is_object(json_object_get(model, mla_section.name));
  return read_member(where, model, &mla_section, arena, &out->model.mla);
}

static ot_status check_unique(const char *path, const ot_published_rows *rows, const char *id) {
  for (int64_t i = 0; i < rows->num_rows; i++) {
    OT_CHECK(strcmp(rows->row[i].id, id) != 0, OT_USAGE, "%s: two rows have the id %s", path, id);
  }
  return OT_OK;
}

static ot_status read_rows(const char *path, const json_t *root, ot_arena *arena,
                           ot_published_rows *rows) {
  OT_CHECK(json_is_array(root), OT_USAGE, "%s: not a list of runs", path);
  const int64_t count = (int64_t)json_array_size(root);
  for (int64_t i = 0; i < count; i++) {
    const json_t *const object = json_array_get(root, (size_t)i);
    const json_t *const id = json_object_get(object, "id");
    OT_CHECK(json_is_string(id), OT_USAGE, "%s: row %lld (from 0) is not an object with an \"id\"",
             path, (long long)i);
    OT_TRY(check_unique(path, rows, json_string_value(id)));
    ot_published_row row = {0};
    row.id = ot_arena_format(arena, "%s", json_string_value(id));
    OT_TRY(read_row(ot_arena_format(arena, "%s: row %s", path, row.id), object, arena, &row));
    rows->row = ot_arena_grow(arena, rows->row, rows->num_rows, &rows->capacity, sizeof row);
    rows->row[rows->num_rows++] = row;
  }
  return OT_OK;
}

ot_status ot_published_rows_read(const char *path, ot_arena *arena, ot_published_rows *rows) {
  json_t *root = NULL;
  OT_TRY(ot_json_load(path, MAX_BYTES, &root));
  const ot_status status = read_rows(path, root, arena, rows);
  json_decref(root);
  return status;
}

bool ot_published_mentions(const char *text, const char *word) {
  return strcasestr(text, word) != NULL;
}
