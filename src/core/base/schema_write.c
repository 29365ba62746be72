// SPDX-License-Identifier: Apache-2.0
// Writes typed objects as trees, and prints text from the table alone.
#include <string.h>

#include "base/dtype.h"
#include "base/number.h"
#include "base/schema.h"
#include "base/text.h"

enum { PATH_BYTES = 256, HELP_COLUMN = 40 };

// The first spelling of a choice.
static ot_node *choice_node(ot_arena *arena, const char *choice) {
  int64_t length = 0;
  while (choice[length] != '\0' && choice[length] != '|') length++;
  return ot_node_text(arena, ot_arena_text(arena, choice, length));
}

// Writes the null value of a key as null, unless it is an ordinary value (a dropout of 0 stays 0).
static ot_node *word_or_null(ot_node *node, const ot_key *key) {
  if (!key->null_text) return node;
  double value = 0;
  double null_value = 1;
  const bool number = ot_number_parse(node->text, false, &value) &&
                      ot_number_parse(key->null_text, false, &null_value);
  const bool same = number ? value == null_value : ot_text_equal(node->text, key->null_text);
  const bool usual = key->fallback && ot_text_equal(key->fallback, "null");
  if (same && (usual || (number && value < key->minimum))) node->kind = OT_NODE_NULL;
  return node;
}

static ot_node *write_integer(const ot_key *key, int64_t value, ot_arena *arena) {
  return key->choices && value < 0 ? choice_node(arena, key->choices[0])
                                   : ot_node_integer(arena, value);
}

static ot_node *write_int(const ot_key *key, int value, ot_arena *arena) {
  if (key->type == OT_KEY_INT) return ot_node_integer(arena, value);
  if (value < 0) return ot_node_text(arena, "auto");
  if (key->type == OT_KEY_DTYPE) return ot_node_text(arena, ot_dtype_name((ot_dtype)value));
  return choice_node(arena, ot_key_choice(key, value));
}

static ot_node *write_value(const ot_key *key, const void *at, ot_arena *arena) {
  switch (key->type) {
    case OT_KEY_INTEGER:
      return word_or_null(write_integer(key, *(const int64_t *)at, arena), key);
    case OT_KEY_INT:
    case OT_KEY_CHOICE:
    case OT_KEY_DTYPE:
      return word_or_null(write_int(key, *(const int *)at, arena), key);
    case OT_KEY_REAL:
      return word_or_null(ot_node_real(arena, *(const double *)at), key);
    case OT_KEY_BOOL:
      return ot_node_bool(arena, *(const bool *)at);
    case OT_KEY_TEXT:
    case OT_KEY_PATH: {
      const char *const text = *(const char *const *)at;
      return word_or_null(ot_node_text(arena, text ? text : ""), key);
    }
    case OT_KEY_OBJECT:
      return ot_schema_write(key->object, 0, at, arena);
    case OT_KEY_FIXED:
      break;
  }
  OT_UNREACHABLE();
}

// Elements of a NAMED list are written by their shorthand, under their names.
static ot_node *write_named(const ot_key *key, const char *items, int64_t count, ot_arena *arena) {
  const ot_schema *const object = key->object;
  const ot_key *const name_key = &object->keys[0];
  const ot_key *const value_key = ot_schema_find(object, 0, object->shorthand);
  ot_node *const map = ot_node_create(arena, OT_NODE_MAP);
  for (int64_t i = 0; i < count; i++) {
    const char *const item = items + i * object->size;
    const char *name;
    memcpy(&name, item + name_key->offset, sizeof name);
    ot_node *const value = write_value(value_key, item + value_key->offset, arena);
    if (count == 1 && name[0] == '\0') return value;
    ot_node_put(arena, map, name, value);
  }
  return map;
}

static ot_node *write_key(const ot_key *key, const char *object, ot_arena *arena) {
  if (key->shape == OT_SHAPE_ONE) return write_value(key, object + key->offset, arena);
  int64_t count = key->count;
  const char *items = object + key->offset;
  if (key->shape != OT_SHAPE_ARRAY) {
    memcpy(&items, object + key->offset, sizeof items);
    memcpy(&count, object + key->count_offset, sizeof count);
  }
  if (key->shape == OT_SHAPE_NAMED) return write_named(key, items, count, arena);
  ot_node *const list = ot_node_create(arena, OT_NODE_LIST);
  const int64_t bytes = ot_key_bytes(key);
  for (int64_t i = 0; i < count; i++) {
    ot_node_append(list, write_value(key, items + i * bytes, arena));
  }
  return list;
}

ot_node *ot_schema_write(const ot_schema *schema, int variant, const void *object,
                         ot_arena *arena) {
  ot_node *const map = ot_node_create(arena, OT_NODE_MAP);
  ot_key_walk walk = {0};
  for (const ot_key *key; (key = ot_schema_next(schema, variant, &walk)) != NULL;) {
    if (key->type == OT_KEY_FIXED) continue;
    ot_node_put(arena, map, key->name, write_key(key, object, arena));
  }
  return map;
}

void ot_schema_place(const ot_schema *schema, ot_node *tree, const ot_node *given,
                     const char *fallback) {
  for (ot_node *child = tree->first; child; child = child->next) {
    const ot_key *const key = ot_schema_find(schema, 0, child->key);
    const ot_node *const from = key && given ? ot_schema_child(key, given) : NULL;
    if (key && ot_key_is_section(key) && child->kind == OT_NODE_MAP) {
      const bool map = from && from->kind == OT_NODE_MAP;
      ot_schema_place(key->object, child, map ? from : NULL, fallback);
    } else if (from) {
      ot_node_copy_place(child, from);
    } else if (!child->source) {
      child->source = fallback;
    }
  }
}

// ---- Paths ----

static int64_t extend(char *path, int64_t length, const char *name) {
  return length +
         ot_text_format(path + length, PATH_BYTES - length, length > 0 ? ".%s" : "%s", name);
}

static void list_keys(const ot_schema *schema, char *path, int64_t length, ot_schema_visit visit,
                      void *context) {
  ot_key_walk walk = {0};
  for (const ot_key *key; (key = ot_schema_next(schema, 0, &walk)) != NULL;) {
    if (key->type == OT_KEY_FIXED) continue;
    const int64_t longer = extend(path, length, key->name);
    if (ot_key_is_section(key)) {
      list_keys(key->object, path, longer, visit, context);
    } else {
      visit(context, path, key);
    }
    path[length] = '\0';
  }
}

void ot_schema_list(const ot_schema *schema, ot_schema_visit visit, void *context) {
  char path[PATH_BYTES] = "";
  list_keys(schema, path, 0, visit, context);
}

// ---- The example ----

typedef struct example {
  const char *const *samples;
  ot_text_builder *out;
  char path[PATH_BYTES];
} example;

static const char *find_sample(const example *e) {
  for (const char *const *at = e->samples; at && at[0]; at += 2) {
    if (ot_text_equal(at[0], e->path)) return at[1];
  }
  return NULL;
}

static void put_default(const ot_key *key, ot_text_builder *out) {
  const ot_node *node = ot_key_default(key, key->fallback ? key->fallback : "", out->arena);
  if (key->shape == OT_SHAPE_LIST && node->first && !node->first->next) node = node->first;
  ot_node_print_yaml(node, 0, out);
}

// "{path, weight [1] above 0}" for the entries of a list of objects.
static void put_entry(const ot_key *key, ot_text_builder *out) {
  ot_text_put(out, "; an entry: {");
  for (int i = 0; i < key->object->num_keys; i++) {
    const ot_key *const row = &key->object->keys[i];
    ot_text_appendf(out, "%s%s", i > 0 ? ", " : "", row->name);
    const bool shown = row->fallback && row->fallback[0] != '\0';
    if (shown) ot_text_appendf(out, " [%s]", row->fallback);
  }
  ot_text_put(out, "}");
}

static void put_comment(const ot_key *key, bool sampled, ot_text_builder *out) {
  ot_text_appendf(out, "# %s", key->help);
  if (key->type != OT_KEY_OBJECT) {
    ot_text_appendf(out, "; %s", ot_key_range(key, out->arena));
  } else if (key->shape != OT_SHAPE_ONE) {
    put_entry(key, out);
  }
  const bool section = ot_key_is_section(key);
  if (!key->fallback && !section) {
    ot_text_put(out, "; needed");
  } else if (sampled && !section) {
    const bool shown = key->fallback[0] != '\0';
    ot_text_appendf(out, "; default %s", shown ? key->fallback : "none");
  }
  ot_text_put(out, "\n");
}

static void put_example_key(const example *e, const ot_key *key, int64_t start) {
  ot_text_builder *const out = e->out;
  const char *const sample = find_sample(e);
  ot_text_appendf(out, "%s: ", key->name);
  if (sample) {
    ot_text_put(out, sample);
  } else {
    put_default(key, out);
    out->length--;  // its line break
  }
  do {
    ot_text_put(out, " ");
  } while (out->length - start < HELP_COLUMN);
  put_comment(key, sample != NULL, out);
}

static void put_example(example *e, const ot_schema *schema, int64_t length, int depth) {
  ot_key_walk walk = {0};
  for (const ot_key *key; (key = ot_schema_next(schema, 0, &walk)) != NULL;) {
    if (key->type == OT_KEY_FIXED) continue;
    const int64_t longer = extend(e->path, length, key->name);
    const int64_t start = e->out->length;
    for (int j = 0; j < depth; j++) ot_text_put(e->out, "  ");
    if (ot_key_is_section(key) && !find_sample(e)) {
      ot_text_appendf(e->out, "%s:  # %s\n", key->name, key->help);
      put_example(e, key->object, longer, depth + 1);
    } else {
      put_example_key(e, key, start);
    }
    e->path[length] = '\0';
  }
}

void ot_schema_example(const ot_schema *schema, const char *const *samples, ot_text_builder *out) {
  example e = {.samples = samples, .out = out};
  put_example(&e, schema, 0, 0);
}

// ---- The table ----

typedef struct table_row {
  const char *cell[4];
} table_row;

typedef struct table {
  table_row *rows;
  int64_t count, capacity;
  ot_arena *arena;
  const char *without;
  char path[PATH_BYTES];
} table;

static const char *default_of(const ot_key *key) {
  if (!key->fallback) return "needed";
  return key->shape != OT_SHAPE_ONE || key->fallback[0] == '\0' ? "none" : key->fallback;
}

static void add_rows(table *t, const ot_schema *schema, int64_t length) {
  ot_key_walk walk = {0};
  for (const ot_key *key; (key = ot_schema_next(schema, 0, &walk)) != NULL;) {
    if (t->without && ot_text_equal(key->name, t->without)) continue;
    int64_t longer = extend(t->path, length, key->name);
    const bool list = key->shape != OT_SHAPE_ONE;
    if (!ot_key_is_section(key)) {
      const char *const allowed = list ? "a list" : ot_key_range(key, t->arena);
      t->rows = ot_arena_grow(t->arena, t->rows, t->count, &t->capacity, sizeof *t->rows);
      t->rows[t->count++] = (table_row){
          {ot_arena_text(t->arena, t->path, longer), default_of(key), key->help, allowed}};
    }
    if (key->type == OT_KEY_OBJECT) {
      if (list) longer = extend(t->path, longer, "N");
      add_rows(t, key->object, longer);
    }
    t->path[length] = '\0';
  }
}

void ot_schema_table(const ot_schema *schema, const char *without, ot_text_builder *out) {
  table t = {.arena = out->arena, .without = without};
  int64_t width[2] = {0};
  add_rows(&t, schema, 0);
  for (int64_t i = 0; i < t.count; i++) {
    for (int k = 0; k < 2; k++) {
      const int64_t length = ot_text_length(t.rows[i].cell[k]);
      if (length > width[k]) width[k] = length;
    }
  }
  for (int64_t i = 0; i < t.count; i++) {
    const char *const *const cell = t.rows[i].cell;
    for (int k = 0; k < 2; k++) ot_text_appendf(out, "%-*s  ", (int)width[k], cell[k]);
    ot_text_appendf(out, "%s (%s)\n", cell[2], cell[3]);
  }
}
