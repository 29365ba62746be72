// SPDX-License-Identifier: Apache-2.0
// Typed settings from one table. An entry gives the spelling of a key (HF's other spellings are a
// second column), type, unit, range, default, one line of help, and the offset of its value in a
// struct. The table drives parsing with precise errors, setting by path ("model.hidden_size",
// "model.layer_types.17"), the resolved settings, the commented example, help and completion. This
// file does not access files; file readers build a tree (base/tree.h).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/tree.h"

typedef enum ot_key_type {
  OT_KEY_INTEGER,  // int64_t; sizes with units (4k, 2GiB, 15T)
  OT_KEY_INT,      // int; the same text
  OT_KEY_REAL,     // double
  OT_KEY_BOOL,     // bool
  OT_KEY_TEXT,     // const char *
  OT_KEY_PATH,     // const char *; relative to its node's directory, except for words in `choices`
  OT_KEY_CHOICE,   // int: index in `choices`
  OT_KEY_DTYPE,    // int: ot_dtype, one of the words in `choices`
  OT_KEY_OBJECT,   // the struct that `object` describes
  OT_KEY_FIXED,    // not stored: only the words in `choices` are accepted
} ot_key_type;

typedef enum ot_key_shape {
  OT_SHAPE_ONE,
  OT_SHAPE_ARRAY,  // exactly `count` in place, written as a list
  OT_SHAPE_LIST,   // any number: a pointer at `offset`, an int64_t at `count_offset`. One value
                   // without brackets is a list of one
  OT_SHAPE_NAMED,  // a list of objects written as a map: the key becomes the object's first field
} ot_key_shape;

// The maximum of an unbounded range.
#define OT_NO_MAXIMUM 1e300

struct ot_schema;

// A key. Tables give its first members in order and the others by name:
//   {"clip", OT_KEY_REAL, offsetof(ot_run_optimizer, clip), "1.0", 0, OT_NO_MAXIMUM, .help = "..."}
typedef struct ot_key {
  const char *name;
  ot_key_type type;
  int32_t offset;  // bytes into the object
  // Default, as written in a file (arrays: words separated by spaces); "" with LIST and NAMED:
  // empty; null: the key is required.
  const char *fallback;
  double minimum, maximum;  // inclusive; of numbers. Both 0: no limits
  bool above_minimum;       // the minimum itself is not allowed
  bool below_maximum;       // the maximum itself is not allowed
  const char *also;         // other spellings, separated by spaces, or null
  ot_key_shape shape;
  int32_t count_offset;  // of LIST and NAMED
  int count;             // of ARRAY
  // Words of CHOICE, DTYPE and FIXED, null after the last; "silu|swish" lists spellings of one. A
  // CHOICE or DTYPE whose fallback is "auto" also accepts auto, stored as -1. Of INTEGER: one word
  // that may stand for the number, stored as -1.
  const char *const *choices;
  const char *(*choice)(int index);  // of CHOICE, instead of `choices`: null after the last
  const struct ot_schema *object;    // of OBJECT
  const char *null_text;  // meaning of an explicit null, as written in a file; null: not allowed
  const char *unit;       // "tokens", or null
  uint32_t variants;      // which variants have this key, for ot_schema.has; 0 = all
  const char *after;      // of keys that variants add: the table's key before it, of a name that it
                          // has once; null: the last
  bool local;             // names files or a machine, which have no meaning elsewhere
  const char *help;       // one line, no full stop
} ot_key;

typedef struct ot_schema {
  const char *name;  // what it describes, for messages: "run", "model"
  const ot_key *keys;
  int num_keys;
  int64_t size;              // bytes of the object
  const char *shorthand;     // key that a scalar in place of the map sets, or null
  const char *inert;         // patterns of keys that are ignored, separated by '|'; or null
  const char *unknown_hint;  // hint for an unknown key without similar keys, or null
  // Adds a hint for a key that only other variants have to the failure; null: unknown_hint.
  ot_status (*foreign_hint)(const ot_key *key);
  // The variant of a map, from its own keys, 0 if it has none; null: the schema has no variants,
  // and the next three are not used.
  int (*variant)(const ot_node *map);
  // Whether a variant (not 0) has this key of the table.
  bool (*has)(const ot_key *key, int variant);
  // Key `index` of those that a variant adds to the table, 0: all variants; null after the last.
  const ot_key *(*added)(int variant, int index);
  // The default of a key in a variant, instead of the key's own; may return null. Null: none.
  const char *(*fallback)(const ot_key *key, int variant);
} ot_schema;

// A position in the keys of a schema; {0} at the start.
typedef struct ot_key_walk {
  int next;   // of the table
  int added;  // of those that variants add
} ot_key_walk;

// The next key of `variant` (0 = any) in the order in which they are written; null after the last.
const ot_key *ot_schema_next(const ot_schema *schema, int variant, ot_key_walk *walk);

// Whether the value of `key` is a map of keys.
static inline bool ot_key_is_section(const ot_key *key) {
  return key->type == OT_KEY_OBJECT && key->shape == OT_SHAPE_ONE;
}

// Fills `object` from `tree` (a map, or null for all defaults): defaults, then the values of the
// tree. Text and lists are allocated in `arena`. OT_USAGE, with file, line and column, the allowed
// values and the nearest key, for unknown or repeated keys, wrong types, values out of range and
// missing keys. OT_ENVIRONMENT for a dtype that exists but that this program cannot compute in.
ot_status ot_schema_read(const ot_schema *schema, const ot_node *tree, ot_arena *arena,
                         void *object);

// Settings under construction: a tree of a schema and the arena of its nodes.
typedef struct ot_settings {
  const ot_schema *schema;
  ot_arena *arena;
  ot_node *tree;  // a map
} ot_settings;

// Sets `path` to `value`, creating or replacing nodes: maps and lists on the way are created, a
// scalar that stands for a map or a list becomes one, an index one past the end appends. Fails like
// ot_schema_read on a path that the schema does not have; `value` itself is checked when the tree
// is read.
ot_status ot_settings_put(ot_settings *settings, const char *path, const ot_node *value);

// Like ot_settings_put with a scalar ("null": null); `source` is its origin for messages.
ot_status ot_settings_set(ot_settings *settings, const char *path, const char *text,
                          const char *source);

// The object as a tree, every key of `variant` in table order (without FIXED ones), without places.
ot_node *ot_schema_write(const ot_schema *schema, int variant, const void *object, ot_arena *arena);

// Gives every node of `tree`, as written by ot_schema_write, the place of the node in `given` with
// the same path under any spelling; other nodes keep their source, or get `fallback`.
void ot_schema_place(const ot_schema *schema, ot_node *tree, const ot_node *given,
                     const char *fallback);

// The key called `name` under any spelling in `variant` (0 = any), or null.
const ot_key *ot_schema_find(const ot_schema *schema, int variant, const char *name);

// The key at a path such as "data.train.0.weight" in any variant, or null.
const ot_key *ot_schema_find_path(const ot_schema *schema, const char *path);

// The variant of `map` (may be null), 0 for a schema without variants.
int ot_schema_variant(const ot_schema *schema, const ot_node *map);

// The default of `key` in `variant`, as written in a file; null when it is required.
const char *ot_schema_fallback(const ot_schema *schema, int variant, const ot_key *key);

// The child of `map` that sets `key`, under any spelling, or null.
ot_node *ot_schema_child(const ot_key *key, const ot_node *map);

// True when `word` is one of the spellings in `choice` [null: none] ("silu|swish"), in which '*'
// matches any characters.
bool ot_choice_matches(const char *choice, const char *word);

// Records the failure of an unknown key `name` of `map` at `path` (of the map; "" at the top).
ot_status ot_schema_unknown(const ot_schema *schema, int variant, const char *path,
                            const char *name, const char *place);

// Bytes of one value of `key` in its object (of one entry of a list).
int64_t ot_key_bytes(const ot_key *key);

// The tree node of `text`, a default of `key` as written in a table.
ot_node *ot_key_default(const ot_key *key, const char *text, ot_arena *arena);

// Word `index` of a key's choices, null after the last.
const char *ot_key_choice(const ot_key *key, int index);

// All words of a key's choices, "bf16|fp8|fp32"; text in `arena`.
const char *ot_key_choices(const ot_key *key, ot_arena *arena);

// "1 to 16777216 tokens", "above 0", "one of a, b, c", "true or false"; text in `arena`.
const char *ot_key_range(const ot_key *key, ot_arena *arena);

// A complete commented file: every key with default, unit, range and help. `samples` are pairs of
// path and text, null after the last: values to show instead of the default, as one line of YAML.
void ot_schema_example(const ot_schema *schema, const char *const *samples, ot_text_builder *out);

// A table of the keys, one line each: path, default, help, allowed values with their unit. Entries
// of lists have paths such as "levels.N.size". `without`: a key that is left out; null: none.
void ot_schema_table(const ot_schema *schema, const char *without, ot_text_builder *out);

// Every path of scalars and lists, one call each (completion); `path` is valid during the call.
typedef void (*ot_schema_visit)(void *context, const char *path, const ot_key *key);
void ot_schema_list(const ot_schema *schema, ot_schema_visit visit, void *context);
