// SPDX-License-Identifier: Apache-2.0
// Finding keys, describing their ranges, and setting by path.
#include "base/schema.h"

#include "base/number.h"
#include "base/text.h"

enum { PATH_BYTES = 256, SEGMENT_BYTES = 128, NEAREST_MAX = 3, LIST_MAX = 100000 };

// True when `word` matches one of the patterns of `list` [null: none], separated by `separator`.
static bool is_among(const char *list, char separator, const char *word) {
  for (const char *at = list; at && *at != '\0';) {
    char pattern[SEGMENT_BYTES];
    int64_t width = 0;
    while (at[width] != '\0' && at[width] != separator) width++;
    ot_text_format(pattern, sizeof pattern, "%.*s", (int)width, at);
    if (ot_text_matches(word, pattern)) return true;
    at += width + (at[width] == separator);
  }
  return false;
}

bool ot_choice_matches(const char *choice, const char *word) { return is_among(choice, '|', word); }

int ot_schema_variant(const ot_schema *schema, const ot_node *map) {
  return schema->variant && map ? schema->variant(map) : 0;
}

const char *ot_schema_fallback(const ot_schema *schema, int variant, const ot_key *key) {
  const char *const special = schema->fallback ? schema->fallback(key, variant) : NULL;
  return special ? special : key->fallback;
}

static bool is_in_force(const ot_schema *schema, int variant, const ot_key *key) {
  return key->variants == 0 || variant == 0 || schema->has(key, variant);
}

// The next key that variants add after `key`, or null; `key` may be the last of the table.
static const ot_key *added_after(const ot_schema *schema, int variant, const ot_key *key,
                                 ot_key_walk *walk) {
  const bool last = key == schema->keys + schema->num_keys - 1;
  const ot_key *added;
  while ((added = schema->added(variant, walk->added++)) != NULL) {
    if (added->after ? ot_text_equal(added->after, key->name) : last) return added;
  }
  walk->added = 0;
  return NULL;
}

const ot_key *ot_schema_next(const ot_schema *schema, int variant, ot_key_walk *walk) {
  while (walk->next <= schema->num_keys) {
    const ot_key *const before = walk->next > 0 ? &schema->keys[walk->next - 1] : NULL;
    const ot_key *const added =
        before && schema->added ? added_after(schema, variant, before, walk) : NULL;
    if (added) return added;
    if (walk->next == schema->num_keys) return NULL;
    const ot_key *const key = &schema->keys[walk->next++];
    if (is_in_force(schema, variant, key)) return key;
  }
  return NULL;
}

static bool is_called(const ot_key *key, const char *name) {
  return ot_text_equal(key->name, name) || is_among(key->also, ' ', name);
}

const ot_key *ot_schema_find(const ot_schema *schema, int variant, const char *name) {
  const ot_key *const end = schema->keys + schema->num_keys;
  for (const ot_key *key = schema->keys; key < end; key++) {
    if (is_called(key, name) && is_in_force(schema, variant, key)) return key;
  }
  const ot_key *key;
  for (int i = 0; schema->added && (key = schema->added(variant, i)) != NULL; i++) {
    if (is_called(key, name)) return key;
  }
  return NULL;
}

ot_node *ot_schema_child(const ot_key *key, const ot_node *map) {
  for (ot_node *child = map->first; child; child = child->next) {
    if (child->key && is_called(key, child->key)) return child;
  }
  return NULL;
}

// ---- Keys ----

int64_t ot_key_bytes(const ot_key *key) {
  switch (key->type) {
    case OT_KEY_INTEGER:
      return sizeof(int64_t);
    case OT_KEY_INT:
    case OT_KEY_CHOICE:
    case OT_KEY_DTYPE:
      return sizeof(int);
    case OT_KEY_REAL:
      return sizeof(double);
    case OT_KEY_BOOL:
      return sizeof(bool);
    case OT_KEY_TEXT:
    case OT_KEY_PATH:
      return sizeof(const char *);
    case OT_KEY_OBJECT:
      return key->object->size;
    case OT_KEY_FIXED:
      return 0;
  }
  OT_UNREACHABLE();
}

static void put_limit(ot_text_builder *out, const ot_key *key, double limit) {
  const bool whole = key->type == OT_KEY_INTEGER || key->type == OT_KEY_INT;
  if (whole) {
    ot_text_appendf(out, "%lld", (long long)limit);
  } else {
    ot_text_appendf(out, "%.9g", limit);
  }
}

static void put_number_range(ot_text_builder *out, const ot_key *key) {
  const bool none = key->minimum == 0 && key->maximum == 0;
  const bool low = !none;
  const bool high = !none && key->maximum < OT_NO_MAXIMUM;
  if (!low && !high) {
    ot_text_put(out, key->type == OT_KEY_REAL ? "a number" : "a whole number");
  } else if (low && high && !key->above_minimum && !key->below_maximum) {
    put_limit(out, key, key->minimum);
    ot_text_put(out, " to ");
    put_limit(out, key, key->maximum);
  } else {
    if (low) ot_text_put(out, key->above_minimum ? "above " : "at least ");
    if (low) put_limit(out, key, key->minimum);
    if (low && high) ot_text_put(out, " and ");
    if (high) ot_text_put(out, key->below_maximum ? "below " : "at most ");
    if (high) put_limit(out, key, key->maximum);
  }
  if (key->unit) ot_text_appendf(out, " %s", key->unit);
}

const char *ot_key_choice(const ot_key *key, int index) {
  if (key->choice) return key->choice(index);
  return key->choices ? key->choices[index] : NULL;
}

const char *ot_key_choices(const ot_key *key, ot_arena *arena) {
  ot_text_builder words = {.arena = arena};
  for (int i = 0; ot_key_choice(key, i); i++) {
    ot_text_appendf(&words, "%s%s", i > 0 ? "|" : "", ot_key_choice(key, i));
  }
  return ot_text_builder_text(&words);
}

static void put_choices(ot_text_builder *out, const ot_key *key) {
  const char *choice;
  for (int i = 0; (choice = ot_key_choice(key, i)) != NULL; i++) {
    if (i > 0) ot_text_put(out, ", ");
    for (const char *at = choice; *at != '\0'; at++) {
      ot_text_append(out, *at == '|' ? " = " : at, *at == '|' ? 3 : 1);
    }
  }
}

const char *ot_key_range(const ot_key *key, ot_arena *arena) {
  ot_text_builder out = {.arena = arena};
  switch (key->type) {
    case OT_KEY_INTEGER:
    case OT_KEY_INT:
    case OT_KEY_REAL:
      put_number_range(&out, key);
      if (key->choices) ot_text_put(&out, " or ");
      put_choices(&out, key);
      break;
    case OT_KEY_BOOL:
      ot_text_put(&out, "true or false");
      break;
    case OT_KEY_TEXT:
      ot_text_put(&out, "text");
      break;
    case OT_KEY_PATH:
      ot_text_put(&out, "a path");
      if (key->choices) ot_text_put(&out, " or ");
      put_choices(&out, key);
      break;
    case OT_KEY_CHOICE:
    case OT_KEY_DTYPE:
    case OT_KEY_FIXED:
      if (key->fallback && ot_text_equal(key->fallback, "auto") &&
          !ot_text_equal(ot_key_choice(key, 0), "auto")) {
        ot_text_put(&out, "auto, ");
      }
      put_choices(&out, key);
      break;
    case OT_KEY_OBJECT:
      ot_text_put(&out, "a map");
      break;
  }
  return out.text ? out.text : "";
}

static ot_node *word_node(const ot_key *key, const char *word, ot_arena *arena) {
  const bool is_text = key->type == OT_KEY_TEXT || key->type == OT_KEY_PATH;
  return is_text ? ot_node_text(arena, word) : ot_node_word(arena, word);
}

ot_node *ot_key_default(const ot_key *key, const char *text, ot_arena *arena) {
  if (ot_text_equal(text, "null")) return ot_node_create(arena, OT_NODE_NULL);
  if (key->shape == OT_SHAPE_ONE) return word_node(key, text, arena);
  if (key->shape == OT_SHAPE_NAMED) return ot_node_create(arena, OT_NODE_MAP);
  ot_node *const list = ot_node_create(arena, OT_NODE_LIST);
  for (const char *at = text; *at != '\0';) {
    int64_t length = 0;
    while (at[length] != '\0' && at[length] != ' ') length++;
    ot_node_append(list, word_node(key, ot_arena_text(arena, at, length), arena));
    at += length + (at[length] == ' ');
  }
  return list;
}

// ---- Unknown keys ----

// Alternative names of keys in other software: our name, then theirs separated by spaces.
static const struct {
  const char *name, *others;
} synonyms[] = {
    {"lr", "learning_rate"},
    {"warmup_steps", "warmup num_warmup_steps"},
    {"decay", "lr_scheduler_type scheduler schedule"},
    {"min", "min_lr"},
    {"clip", "grad_clip max_grad_norm gradient_clipping"},
    {"eps", "adam_epsilon"},
    {"betas", "adam_beta1 adam_beta2 beta1 beta2"},
    {"steps", "max_steps num_steps train_steps train_iters"},
    {"global_batch_size", "batch_size train_batch_size gbs"},
    {"micro_batch_size", "mbs per_device_train_batch_size"},
    {"sequence_length", "seq_length seq_len max_seq_len block_size"},
    {"tp", "tensor_parallel tensor_model_parallel_size"},
    {"pp", "pipeline_parallel pipeline_model_parallel_size"},
    {"cp", "context_parallel context_parallel_size"},
    {"ep", "expert_parallel expert_model_parallel_size"},
    {"dp", "data_parallel"},
    {"zero", "zero_stage"},
    {"compute", "dtype"},
    {"every", "save_steps save_interval"},
    {"output", "output_dir"},
    {"num_hidden_layers", "num_layers n_layers n_layer"},
    {"num_attention_heads", "num_heads n_heads n_head"},
    {"num_key_value_heads", "num_kv_heads n_kv_heads num_query_groups"},
    {"hidden_size", "d_model n_embd"},
    {"intermediate_size", "d_ff ffn_hidden_size n_inner"},
    {"max_position_embeddings", "max_sequence_length n_positions"},
    {"num_local_experts", "num_experts"},
    {"num_devices", "gpus num_gpus devices ranks"},
    {"host_devices", "gpus_per_node devices_per_host"},
    {"memory_bytes", "memory hbm vram memory_gb"},
    {"memory_bytes_per_s", "bandwidth memory_bandwidth hbm_bandwidth"},
    {"bytes_per_s", "bandwidth gb_per_s"},
    {"flops_bf16", "flops peak_flops tflops"},
    {"levels", "links network interconnect"},
    {"latency_s", "latency"},
};

// A section of `schema` that has the key `name`, so that `lr: 1` gets the hint optimizer.lr.
static const char *section_with(const ot_schema *schema, const char *name) {
  const ot_key *const end = schema->keys + schema->num_keys;
  for (const ot_key *key = schema->keys; key < end; key++) {
    if (ot_key_is_section(key) && ot_schema_find(key->object, 0, name)) return key->name;
  }
  return NULL;
}

// Settings that are looked for in a section, and where they are.
static const struct {
  const char *section, *names, *path;
} moved[] = {
    {"learning_rate", "peak peak_lr max max_lr lr base_lr value rate", "optimizer.lr"},
    {"batch", "sequence_length seq_len seq_length", "data.sequence_length"},
    {"parallel", "micro_batch_size mbs", "batch.micro_batch_size"},
    {"data", "batch_size global_batch_size", "batch.global_batch_size"},
    {"optimizer", "warmup warmup_steps", "learning_rate.warmup_steps"},
    {"checkpoint", "output dir directory path", "output"},
};

static const char *moved_to(const char *section, const char *name) {
  for (int i = 0; i < OT_COUNT(moved); i++) {
    if (ot_text_equal(moved[i].section, section) && is_among(moved[i].names, ' ', name))
      return moved[i].path;
  }
  return NULL;
}

enum { WORD_LENGTH = 4 };  // shorter names begin too many keys

// The only key that begins with `name`, as micro_batch_size with micro_batch, or null.
static const char *begun_by(const ot_schema *schema, int variant, const char *name) {
  const char *found = NULL;
  if (ot_text_length(name) < WORD_LENGTH) return NULL;
  ot_key_walk walk = {0};
  for (const ot_key *key; (key = ot_schema_next(schema, variant, &walk)) != NULL;) {
    if (!ot_text_starts_with(key->name, name)) continue;
    if (found) return NULL;
    found = key->name;
  }
  return found;
}

static ot_status hint_key(const char *name) {
  return ot_fail_hint(OT_USAGE, "did you mean \"%s\"?", name);
}

ot_status ot_schema_unknown(const ot_schema *schema, int variant, const char *path,
                            const char *name, const char *place) {
  const char *const colon = path[0] == '\0' ? "" : ": ";
  const ot_key *const foreign = variant != 0 ? ot_schema_find(schema, 0, name) : NULL;
  if (foreign) {
    ot_fail(OT_USAGE, "%s%sthe key \"%s\" belongs to another kind of %s (%s)", path, colon, name,
            schema->name, place);
  } else {
    ot_fail(OT_USAGE, "%s%sunknown key \"%s\" (%s)", path, colon, name, place);
  }
  const char *const other = moved_to(path, name);
  if (other) return ot_fail_hint(OT_USAGE, "did you mean %s?", other);
  const char *meant = NULL, *section = section_with(schema, name);
  if (section) meant = name;
  for (int i = 0; !meant && i < OT_COUNT(synonyms); i++) {
    if (!is_among(synonyms[i].others, ' ', name)) continue;
    const char *const word = synonyms[i].name;
    if (ot_schema_find(schema, variant, word)) return hint_key(word);
    section = section_with(schema, word);
    if (section) meant = word;
  }
  if (meant) return ot_fail_hint(OT_USAGE, "did you mean %s.%s?", section, meant);
  const char *nearest = NULL;
  const int64_t third = ot_text_length(name) / 3 + 1;
  int best = third < NEAREST_MAX ? (int)third + 1 : NEAREST_MAX + 1;
  ot_key_walk walk = {0};
  for (const ot_key *key; (key = ot_schema_next(schema, variant, &walk)) != NULL;) {
    ot_text_nearest(name, key->name, &nearest, &best);
  }
  if (!nearest) nearest = begun_by(schema, variant, name);
  if (nearest) return hint_key(nearest);
  if (foreign && schema->foreign_hint) return schema->foreign_hint(foreign);
  if (schema->unknown_hint) return ot_fail_hint(OT_USAGE, schema->unknown_hint, name);
  return OT_USAGE;
}

// ---- Paths ----

// One walk along a path.
typedef struct walk {
  ot_arena *arena;
  const char *path;    // the whole path
  const char *place;   // for messages
  const char *source;  // of nodes created on the way
  int64_t done;        // bytes of `path` already processed
} walk;

// The next segment of the path into `segment` [SEGMENT_BYTES]; false at the end.
static bool next_segment(walk *w, char *segment) {
  const char *at = w->path + w->done;
  if (w->done > 0 && *at == '.') at++;
  if (*at == '\0') return false;
  int64_t length = 0;
  while (at[length] != '\0' && at[length] != '.') length++;
  ot_text_format(segment, SEGMENT_BYTES, "%.*s", (int)(length < SEGMENT_BYTES ? length : 0), at);
  w->done = at + length - w->path;
  return true;
}

const ot_key *ot_schema_find_path(const ot_schema *schema, const char *path) {
  const ot_key *key = NULL;
  bool entry = false;  // the next segment names an entry of a list
  walk w = {.path = path};
  char segment[SEGMENT_BYTES];
  while (next_segment(&w, segment)) {
    if (entry) {
      entry = false;
      continue;
    }
    const ot_schema *const table = !key ? schema : key->type == OT_KEY_OBJECT ? key->object : NULL;
    key = table ? ot_schema_find(table, 0, segment) : NULL;
    if (!key) return NULL;
    entry = key->shape != OT_SHAPE_ONE;
  }
  return key;
}

static ot_node *create_node(const walk *w, ot_node_kind kind) {
  ot_node *const node = ot_node_create(w->arena, kind);
  node->source = w->source;
  return node;
}

// Turns `node` into a collection of `kind`: a null becomes empty, anything else its only child.
static void become(const walk *w, ot_node *node, ot_node_kind kind, const char *key) {
  if (node->kind == kind) return;
  ot_node *const old = create_node(w, node->kind);
  *old = *node;
  node->kind = kind;
  node->text = NULL;
  node->first = NULL;
  node->last = NULL;
  if (old->kind == OT_NODE_NULL) return;
  old->key = key;
  ot_node_append(node, old);
}

// The child of list `node` at `segment`; an index one past the end appends.
static ot_status list_child(walk *w, ot_node *node, const char *segment, ot_node **child) {
  int64_t index;
  const int64_t count = ot_node_count(node);
  OT_CHECK(
      ot_number_parse_size(segment, &index) && index >= 0 && index <= count && index < LIST_MAX,
      OT_USAGE, "%.*s: there is no entry \"%s\"; entries are 0 to %lld (%s)", (int)w->done, w->path,
      segment, (long long)count, w->place);
  *child = ot_node_at(node, index);
  if (!*child) *child = ot_node_append(node, create_node(w, OT_NODE_NULL));
  return OT_OK;
}

static ot_node *map_child(walk *w, ot_node *map, const char *name, const ot_key *key) {
  ot_node *child = key ? ot_schema_child(key, map) : ot_node_child(map, name);
  if (!child) child = ot_node_put(w->arena, map, name, create_node(w, OT_NODE_NULL));
  return child;
}

static ot_status find_place(walk *w, const ot_schema *schema, ot_node *tree, ot_node **out);

// Walks from the value of `key` at `node` along the rest of the path.
static ot_status walk_value(walk *w, const ot_key *key, ot_node *node, ot_node **out) {
  char segment[SEGMENT_BYTES];
  *out = node;
  if (w->path[w->done] == '\0') return OT_OK;
  if (key->shape != OT_SHAPE_ONE) {
    OT_CHECK(next_segment(w, segment), OT_USAGE, "%s: an empty key (%s)", w->path, w->place);
    const bool named = key->shape == OT_SHAPE_NAMED;
    become(w, node, named ? OT_NODE_MAP : OT_NODE_LIST, "");
    if (named) {
      node = map_child(w, node, segment, NULL);
    } else {
      OT_TRY(list_child(w, node, segment, &node));
    }
    *out = node;
    if (w->path[w->done] == '\0') return OT_OK;
  }
  OT_CHECK(key->type == OT_KEY_OBJECT, OT_USAGE, "%s: %.*s has no keys of its own (%s)", w->path,
           (int)w->done, w->path, w->place);
  return find_place(w, key->object, node, out);
}

// The node at the rest of the path below `tree`, created if needed.
static ot_status find_place(walk *w, const ot_schema *schema, ot_node *tree, ot_node **out) {
  if (tree->kind == OT_NODE_SCALAR) {
    OT_CHECK(schema->shorthand, OT_USAGE, "%s: %.*s is not a map (%s)", w->path, (int)w->done,
             w->path, ot_node_place(w->arena, tree));
  }
  become(w, tree, OT_NODE_MAP, schema->shorthand);
  const char *const prefix = ot_arena_text(w->arena, w->path, w->done);
  char segment[SEGMENT_BYTES];
  OT_CHECK(next_segment(w, segment), OT_USAGE, "an empty key (%s)", w->place);
  const int variant = ot_schema_variant(schema, tree);
  const ot_key *const key = ot_schema_find(schema, variant, segment);
  if (!key) return ot_schema_unknown(schema, variant, prefix, segment, w->place);
  return walk_value(w, key, map_child(w, tree, segment, key), out);
}

ot_status ot_settings_put(ot_settings *settings, const char *path, const ot_node *value) {
  walk w = {.arena = settings->arena, .path = path, .source = value->source};
  w.place = ot_node_place(w.arena, value);
  ot_node *node;
  OT_CHECK(ot_text_length(path) < PATH_BYTES, OT_USAGE, "the key is longer than %d bytes (%s)",
           PATH_BYTES - 1, w.place);
  OT_TRY(find_place(&w, settings->schema, settings->tree, &node));
  ot_node_replace(node, value);
  return OT_OK;
}

ot_status ot_settings_set(ot_settings *settings, const char *path, const char *text,
                          const char *source) {
  ot_arena *const arena = settings->arena;
  ot_node *const value =
      ot_text_equal(text, "null") ? ot_node_create(arena, OT_NODE_NULL) : ot_node_word(arena, text);
  value->source = source;
  return ot_settings_put(settings, path, value);
}
