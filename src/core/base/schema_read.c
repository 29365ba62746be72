// SPDX-License-Identifier: Apache-2.0
// Reads trees into typed objects; a precise message names the first error.
#include <string.h>

#include "base/dtype.h"
#include "base/number.h"
#include "base/quantity.h"
#include "base/schema.h"
#include "base/text.h"

enum { PATH_BYTES = 256 };

typedef struct reader {
  ot_arena *arena;
  char path[PATH_BYTES];  // of the value being read
  int64_t length;
  bool is_null;  // the text is an explicit null: no range
} reader;

// Extends the path by ".name"; returns the length to restore afterwards.
static int64_t enter(reader *r, const char *name) {
  const int64_t before = r->length;
  r->length +=
      ot_text_format(r->path + before, PATH_BYTES - before, before > 0 ? ".%s" : "%s", name);
  return before;
}

static int64_t enter_index(reader *r, int64_t index) {
  char text[32];
  ot_text_format(text, sizeof text, "%lld", (long long)index);
  return enter(r, text);
}

static void leave(reader *r, int64_t before) {
  r->length = before;
  r->path[before] = '\0';
}

static const char *place_of(const reader *r, const ot_node *node) {
  return ot_node_place(r->arena, node);
}

// The expected type of a numeric key; null for other keys.
static const char *number_type(const ot_key *key) {
  const bool whole = key->type == OT_KEY_INTEGER || key->type == OT_KEY_INT;
  return whole ? "a whole number" : key->type == OT_KEY_REAL ? "a number" : NULL;
}

static ot_status wrong_type(const reader *r, const ot_key *key, const ot_node *node) {
  static const char *const kinds[] = {"null", "text", "a list", "a map"};
  const char *const range = ot_key_range(key, r->arena);
  const char *const type = number_type(key);
  const bool limited = type && !ot_text_starts_with(range, type);
  if (node->kind != OT_NODE_SCALAR) {
    return ot_fail(OT_USAGE, "%s: expects %s, not %s (%s)", r->path, range, kinds[node->kind],
                   place_of(r, node));
  }
  return ot_fail(OT_USAGE, "%s: \"%s\" is not %s%s%s (%s)", r->path, node->text,
                 limited ? type : range, limited ? "; allowed: " : "", limited ? range : "",
                 place_of(r, node));
}

// Fails for a number that exceeds its C type.
static ot_status too_large(const reader *r, const ot_key *key, const ot_node *node) {
  return ot_fail(OT_USAGE, "%s: %s is too large; allowed: %s (%s)", r->path, node->text,
                 ot_key_range(key, r->arena), place_of(r, node));
}

static ot_status check_range(const reader *r, const ot_key *key, double value,
                             const ot_node *node) {
  if (r->is_null || (key->minimum == 0 && key->maximum == 0)) return OT_OK;
  const bool low = key->above_minimum ? value > key->minimum : value >= key->minimum;
  const bool high = key->below_maximum ? value < key->maximum : value <= key->maximum;
  OT_CHECK(low && high, OT_USAGE, "%s: %s is out of range; allowed: %s (%s)", r->path, node->text,
           ot_key_range(key, r->arena), place_of(r, node));
  return OT_OK;
}

static ot_status read_whole(const reader *r, const ot_key *key, const ot_node *node, void *out) {
  int64_t value;
  double real;
  if (!ot_number_parse_size(node->text, &value)) {
    const bool large = ot_number_parse(node->text, false, &real) && (real > 1e18 || real < -1e18);
    return large ? too_large(r, key, node) : wrong_type(r, key, node);
  }
  OT_TRY(check_range(r, key, (double)value, node));
  if (key->type == OT_KEY_INTEGER) {
    memcpy(out, &value, sizeof value);
    return OT_OK;
  }
  OT_CHECK(value >= INT32_MIN && value <= INT32_MAX, OT_USAGE, "%s: %s is out of range (%s)",
           r->path, node->text, place_of(r, node));
  const int narrow = (int)value;
  memcpy(out, &narrow, sizeof narrow);
  return OT_OK;
}

static ot_status read_real(const reader *r, const ot_key *key, const ot_node *node, void *out) {
  double value;
  if (!ot_quantity_parse(node->text, key->unit, &value)) {
    const bool large = ot_number_parse(node->text, true, &value) && value == value;
    return large ? too_large(r, key, node) : wrong_type(r, key, node);
  }
  OT_TRY(check_range(r, key, value, node));
  memcpy(out, &value, sizeof value);
  return OT_OK;
}

static ot_status read_bool(const reader *r, const ot_key *key, const ot_node *node, void *out) {
  const bool yes = ot_choice_matches("true|True|TRUE", node->text);
  if (!yes && !ot_choice_matches("false|False|FALSE", node->text)) return wrong_type(r, key, node);
  memcpy(out, &yes, sizeof yes);
  return OT_OK;
}

static int find_choice(const ot_key *key, const char *word) {
  const char *choice;
  for (int i = 0; (choice = ot_key_choice(key, i)) != NULL; i++) {
    if (ot_choice_matches(choice, word)) return i;
  }
  return -1;
}

static ot_status read_path(const reader *r, const ot_key *key, const ot_node *node, void *out) {
  const char *text = node->text;
  OT_CHECK(ot_text_length(text) < 4096, OT_USAGE, "%s: the path is longer than 4095 bytes (%s)",
           r->path, place_of(r, node));
  if (node->directory && text[0] != '/' && text[0] != '\0' && find_choice(key, text) < 0) {
    ot_text_builder joined = {.arena = r->arena};
    ot_text_put(&joined, node->directory);
    ot_text_put(&joined, "/");
    while (ot_text_starts_with(text, "./")) text += 2;
    ot_text_put(&joined, text);
    text = joined.text;
  } else {
    text = ot_arena_text(r->arena, text, ot_text_length(text));
  }
  memcpy(out, &text, sizeof text);
  return OT_OK;
}

static bool takes_auto(const ot_key *key) {
  return key->fallback && ot_text_equal(key->fallback, "auto");
}

static ot_status unknown_choice(const reader *r, const ot_key *key, const ot_node *node) {
  ot_fail(OT_USAGE, "%s: \"%s\" is not one of %s (%s)", r->path, node->text,
          ot_key_range(key, r->arena), place_of(r, node));
  const char *choice;
  for (int i = 0; (choice = ot_key_choice(key, i)) != NULL; i++) {
    if (ot_text_distance(choice, node->text) > 2) continue;
    return ot_fail_hint(OT_USAGE, "did you mean \"%s\"?", choice);
  }
  return OT_USAGE;
}

static ot_status read_choice(const reader *r, const ot_key *key, const ot_node *node, void *out) {
  int index = find_choice(key, node->text);
  const bool automatic = index < 0 && takes_auto(key) && ot_text_equal(node->text, "auto");
  if (index < 0 && !automatic) return unknown_choice(r, key, node);
  if (automatic) index = -1;
  memcpy(out, &index, sizeof index);
  return OT_OK;
}

static ot_status read_dtype(const reader *r, const ot_key *key, const ot_node *node, void *out) {
  int value = -1;
  if (!takes_auto(key) || !ot_text_equal(node->text, "auto")) {
    ot_dtype dtype;
    const bool known = ot_dtype_parse(node->text, &dtype);
    const bool exists = known ? ot_dtype_is_real(dtype) || dtype == OT_F8
                              : ot_choice_matches("float8_e5m2", node->text);
    if (!exists) return unknown_choice(r, key, node);
    OT_CHECK(known && find_choice(key, ot_dtype_name(dtype)) >= 0, OT_ENVIRONMENT,
             "%s: %s is not available on the CPU back end; allowed: %s (%s)", r->path, node->text,
             ot_key_range(key, r->arena), place_of(r, node));
    value = (int)dtype;
  }
  memcpy(out, &value, sizeof value);
  return OT_OK;
}

static ot_status read_fixed(const reader *r, const ot_key *key, const ot_node *node) {
  const bool empty = !node->first;
  const char *const text = node->kind == OT_NODE_SCALAR ? node->text
                           : node->kind == OT_NODE_NULL ? "null"
                           : node->kind == OT_NODE_LIST ? (empty ? "[]" : "[...]")
                                                        : (empty ? "{}" : "{...}");
  double value = 0;
  double allowed = 1;
  for (int i = 0; key->choices[i]; i++) {
    if (ot_choice_matches(key->choices[i], text)) return OT_OK;
    const bool numbers =
        ot_number_parse(text, false, &value) && ot_number_parse(key->choices[i], false, &allowed);
    if (numbers && value == allowed) return OT_OK;
  }
  ot_fail(OT_USAGE, "%s: %s is not supported: %s; allowed: %s (%s)", r->path, text, key->help,
          ot_key_range(key, r->arena), place_of(r, node));
  return OT_USAGE;
}

static ot_status read_text(const reader *r, const ot_node *node, void *out) {
  const char *const text = ot_arena_text(r->arena, node->text, ot_text_length(node->text));
  memcpy(out, &text, sizeof text);
  return OT_OK;
}

static ot_status read_map(reader *r, const ot_schema *schema, const ot_node *map, void *object);

static ot_status read_object(reader *r, const ot_key *key, const ot_node *node, void *out) {
  if (node->kind == OT_NODE_MAP) return read_map(r, key->object, node, out);
  if (node->kind != OT_NODE_SCALAR || !key->object->shorthand) return wrong_type(r, key, node);
  ot_node *const map = ot_node_create(r->arena, OT_NODE_MAP);
  ot_node *const value = ot_node_create(r->arena, OT_NODE_SCALAR);
  *value = *node;
  *map = (ot_node){
      .kind = OT_NODE_MAP, .source = node->source, .line = node->line, .column = node->column};
  value->key = key->object->shorthand;
  ot_node_append(map, value);
  return read_map(r, key->object, map, out);
}

static ot_status read_integer(const reader *r, const ot_key *key, const ot_node *node, void *out) {
  static const int64_t word = -1;
  if (find_choice(key, node->text) < 0) return read_whole(r, key, node, out);
  memcpy(out, &word, sizeof word);
  return OT_OK;
}

// One value of `key`, ignoring the key's shape.
static ot_status read_value(reader *r, const ot_key *key, const ot_node *node, void *out) {
  if (key->type == OT_KEY_FIXED) return read_fixed(r, key, node);
  if (key->type == OT_KEY_OBJECT) return read_object(r, key, node, out);
  ot_node stand_in = *node;
  r->is_null = node->kind == OT_NODE_NULL && key->null_text;
  if (r->is_null) {
    stand_in.kind = OT_NODE_SCALAR;
    stand_in.text = key->null_text;
    node = &stand_in;
  }
  if (node->kind != OT_NODE_SCALAR) return wrong_type(r, key, node);
  switch (key->type) {
    case OT_KEY_INTEGER:
      return read_integer(r, key, node, out);
    case OT_KEY_INT:
      return read_whole(r, key, node, out);
    case OT_KEY_REAL:
      return read_real(r, key, node, out);
    case OT_KEY_BOOL:
      return read_bool(r, key, node, out);
    case OT_KEY_TEXT:
      return read_text(r, node, out);
    case OT_KEY_PATH:
      return read_path(r, key, node, out);
    case OT_KEY_CHOICE:
      return read_choice(r, key, node, out);
    case OT_KEY_DTYPE:
      return read_dtype(r, key, node, out);
    case OT_KEY_OBJECT:
    case OT_KEY_FIXED:
      break;
  }
  OT_UNREACHABLE();
}

static ot_status read_array(reader *r, const ot_key *key, const ot_node *node, char *out) {
  const int64_t bytes = ot_key_bytes(key);
  if (node->kind != OT_NODE_LIST) return wrong_type(r, key, node);
  OT_CHECK(ot_node_count(node) == key->count, OT_USAGE,
           "%s: has %lld entries; needed: exactly %d (%s)", r->path, (long long)ot_node_count(node),
           key->count, place_of(r, node));
  int64_t i = 0;
  for (const ot_node *child = node->first; child; child = child->next, i++) {
    const int64_t before = enter_index(r, i);
    OT_TRY(read_value(r, key, child, out + i * bytes));
    leave(r, before);
  }
  return OT_OK;
}

// Stores the name of an element of a NAMED list in the first field of its object, which is text.
static void set_name(reader *r, const ot_key *key, const char *name, char *item) {
  const ot_key *const first = &key->object->keys[0];
  OT_ASSERT(first->type == OT_KEY_TEXT);
  const char *const copy = ot_arena_text(r->arena, name, ot_text_length(name));
  memcpy(item + first->offset, &copy, sizeof copy);
}

static ot_status read_list(reader *r, const ot_key *key, const ot_node *node, char *object) {
  const int64_t bytes = ot_key_bytes(key);
  const bool named = key->shape == OT_SHAPE_NAMED;
  const bool many = node->kind == (named ? OT_NODE_MAP : OT_NODE_LIST);
  const bool none = node->kind == OT_NODE_NULL && key->null_text;
  const int64_t count = none ? 0 : many ? ot_node_count(node) : 1;
  char *const items = count > 0 ? ot_arena_array(r->arena, count, bytes) : NULL;
  memcpy(object + key->offset, &items, sizeof items);
  memcpy(object + key->count_offset, &count, sizeof count);
  const ot_node *child = many ? node->first : node;
  for (int64_t i = 0; i < count; i++, child = child->next) {
    const bool has_name = many && named;
    const int64_t before = has_name ? enter(r, child->key) : many ? enter_index(r, i) : r->length;
    OT_TRY(read_value(r, key, child, items + i * bytes));
    if (named) set_name(r, key, has_name ? child->key : "", items + i * bytes);
    leave(r, before);
  }
  return OT_OK;
}

static ot_status read_key(reader *r, const ot_key *key, const ot_node *node, char *object) {
  switch (key->shape) {
    case OT_SHAPE_ONE:
      return read_value(r, key, node, object + key->offset);
    case OT_SHAPE_ARRAY:
      return read_array(r, key, node, object + key->offset);
    case OT_SHAPE_LIST:
    case OT_SHAPE_NAMED:
      return read_list(r, key, node, object);
  }
  OT_UNREACHABLE();
}

static ot_status read_default(reader *r, const ot_key *key, const char *text, const ot_node *map,
                              char *object) {
  if (key->type == OT_KEY_FIXED) return OT_OK;
  if (ot_key_is_section(key)) {
    return read_map(r, key->object, NULL, object + key->offset);
  }
  if (!text) {
    ot_fail(OT_USAGE, "%s is needed (%s)", r->path, map ? place_of(r, map) : "not given");
    return ot_fail_hint(OT_USAGE, "%s: %s", key->name, key->help);
  }
  ot_node *const node = ot_key_default(key, text, r->arena);
  node->source = "default";
  return read_key(r, key, node, object);
}

static ot_status check_names(const reader *r, const ot_schema *schema, int variant,
                             const ot_node *map) {
  for (const ot_node *child = map->first; child; child = child->next) {
    const ot_key *const key = ot_schema_find(schema, variant, child->key);
    if (!key && !ot_choice_matches(schema->inert, child->key)) {
      return ot_schema_unknown(schema, variant, r->path, child->key, place_of(r, child));
    }
    const ot_node *const first = key ? ot_schema_child(key, map) : child;
    OT_CHECK(first == child, OT_USAGE, "%s%s%s is given twice, at %s and as \"%s\" (%s)", r->path,
             r->length > 0 ? "." : "", key->name, place_of(r, first), child->key,
             place_of(r, child));
  }
  return OT_OK;
}

static ot_status read_map(reader *r, const ot_schema *schema, const ot_node *map, void *object) {
  const int variant = ot_schema_variant(schema, map);
  if (map) OT_TRY(check_names(r, schema, variant, map));
  ot_key_walk walk = {0};
  for (const ot_key *key; (key = ot_schema_next(schema, variant, &walk)) != NULL;) {
    const ot_node *const node = map ? ot_schema_child(key, map) : NULL;
    const bool absent =
        !node || (node->kind == OT_NODE_NULL && ot_key_is_section(key) && key->null_text);
    const int64_t before = enter(r, key->name);
    if (absent) {
      OT_TRY(read_default(r, key, ot_schema_fallback(schema, variant, key), map, object));
    } else {
      OT_TRY(read_key(r, key, node, object));
    }
    leave(r, before);
  }
  return OT_OK;
}

ot_status ot_schema_read(const ot_schema *schema, const ot_node *tree, ot_arena *arena,
                         void *object) {
  reader r = {.arena = arena};
  memset(object, 0, (size_t)schema->size);
  if (tree && tree->kind != OT_NODE_MAP && tree->kind != OT_NODE_NULL) {
    return ot_fail(OT_USAGE, "the settings of a %s are a map of keys (%s)", schema->name,
                   ot_node_place(arena, tree));
  }
  return read_map(&r, schema, tree && tree->kind == OT_NODE_MAP ? tree : NULL, object);
}
