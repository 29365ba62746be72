// SPDX-License-Identifier: Apache-2.0
// Settings from and to trees: parses by the table, then fills in dependent defaults.
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "describe/pipeline_rules.h"
#include "describe/run_keys.h"

enum { SEQUENCE_LENGTH = 4096, WARMUP_STEPS = 100, PATH_BYTES = 256 };

// Values with dependent defaults, and the key that they follow.
static const struct {
  const char *path;
  const char *source;
} derived[] = {
    {"data.sequence_length", "follows the model"},
    {"parallel.accumulate", "follows parallel.zero"},
    {"learning_rate.warmup_steps", "follows steps"},
    {"learning_rate.min", "follows optimizer.lr"},
    {"precision.params", "follows precision.compute"},
    {"precision.gradients", "follows precision.compute"},
    {"precision.master", "follows precision.compute"},
    {"precision.moments", "follows precision.compute"},
    {"precision.reduce", "follows precision.compute"},
};

// "auto" was read as -1, regardless of the enumeration's underlying type.
static bool is_automatic(int value) { return value == -1; }

static void derive_precision(ot_run_precision *p) {
  const ot_dtype wide = ot_run_compute(p);
  if (is_automatic((int)p->params)) p->params = p->compute == OT_F8 ? OT_BF16 : p->compute;
  if (is_automatic((int)p->gradients)) p->gradients = wide;
  if (is_automatic((int)p->master)) p->master = wide;
  if (is_automatic((int)p->moments)) p->moments = wide;
  if (is_automatic((int)p->reduce)) p->reduce = wide;
}

// A tenth in short decimal form: 3e-5 of 3e-4, not 2.9999999999999997e-05.
static double tenth(double value) {
  char text[64];
  double rounded = value / 10;
  ot_number_print(text, sizeof text, rounded, 15);
  OT_ASSERT(ot_number_parse(text, false, &rounded));
  return rounded;
}

static void derive(ot_run *run) {
  if (run->data.sequence_length == 0) {
    const int64_t most = run->model.max_positions;
    run->data.sequence_length = most < SEQUENCE_LENGTH ? most : SEQUENCE_LENGTH;
  }
  if (is_automatic((int)run->parallel.accumulate)) {
    const bool whole = run->parallel.zero < 2;
    run->parallel.accumulate = whole ? OT_ACCUMULATE_WHOLE : OT_ACCUMULATE_SHARDED;
  }
  if (run->learning_rate.warmup_steps < 0) {
    const bool is_short = run->steps > 0 && run->steps < 10 * WARMUP_STEPS;
    run->learning_rate.warmup_steps = is_short ? run->steps / 10 : WARMUP_STEPS;
  }
  if (run->learning_rate.min < 0) run->learning_rate.min = tenth(run->optimizer.lr);
  derive_precision(&run->precision);
}

// ---- Places ----

static bool was_given(const ot_node *tree, const char *path) {
  const ot_node *const node = ot_node_find(tree, path);
  if (!node || node->kind == OT_NODE_NULL) return false;
  return !node->text || !ot_text_equal(node->text, "auto");
}

// Rotary parameters given in the new spelling are written in the old one.
static void place_rope(const ot_node *given, ot_node *model) {
  const ot_node *const now = ot_node_child(given, "rope_parameters");
  if (!now) return;
  static const char *const old[] = {"rope_theta", "rope_local_base_freq", "rope_scaling"};
  for (int i = 0; i < OT_COUNT(old); i++) {
    ot_node *const node = ot_node_child(model, old[i]);
    if (node && !ot_node_child(given, old[i])) ot_node_copy_place(node, now);
  }
}

static void place_all(ot_node *settings, const ot_node *tree, const ot_run *run, ot_arena *arena) {
  const ot_node *const given = ot_node_child(tree, "model");
  ot_node *const model = ot_node_child(settings, "model");
  const char *const family = ot_arena_format(arena, "default of %s", run->model.model_type);
  ot_schema_place(&ot_model_schema, model, given, family);
  place_rope(given, model);
  ot_schema_place(&ot_run_schema, settings, tree, "default");
  for (int i = 0; i < OT_COUNT(derived); i++) {
    if (was_given(tree, derived[i].path)) continue;
    ot_node *const node = ot_node_find(settings, derived[i].path);
    ot_node_set_source(node, derived[i].source);
  }
}

// ---- Read and write ----

// A question of the planner halves the stages (answer/question_keys.c); a run is not changed.
static ot_status refuse_dualpipe(const ot_node *tree, ot_arena *arena) {
  const ot_node *const node = ot_node_find(tree, "parallel.pipeline");
  const char *const name = ot_pipeline_asked_names[OT_PIPELINES];
  if (!node || node->kind != OT_NODE_SCALAR || !ot_text_equal(node->text, name)) return OT_OK;
  ot_fail(OT_USAGE, "parallel.pipeline: %s is not a schedule of runs (%s)", name,
          ot_node_place(arena, node));
  return ot_fail_hint(OT_USAGE,
                      "%s on P stages equals %s on P/2 stages with twice the dp: halve pp and set "
                      "pipeline: %s",
                      name, ot_pipeline_names[OT_PIPELINE_DUALPIPE_V],
                      ot_pipeline_names[OT_PIPELINE_DUALPIPE_V]);
}

ot_status ot_run_read(ot_node *tree, ot_arena *arena, ot_run *out, ot_node **settings) {
  ot_node *const model = ot_node_child(tree, "model");
  if (!model) {
    ot_fail(OT_USAGE, "model is required (%s)", ot_node_place(arena, tree));
    return ot_fail_hint(OT_USAGE, "model: llama3-8b, a HF config.json, or HF keys");
  }
  OT_CHECK(model->kind == OT_NODE_MAP, OT_USAGE, "model: not a map of HF keys (%s)",
           ot_node_place(arena, model));
  OT_TRY(ot_model_prepare(model, arena, "model"));
  OT_TRY(refuse_dualpipe(tree, arena));
  ot_run_keys keys;
  OT_TRY(ot_schema_read(&ot_run_schema, tree, arena, &keys));
  *out = keys.run;
  OT_TRY(ot_model_from_keys(&keys.model, model, arena, &out->model));
  derive(out);
  OT_TRY(ot_run_place_failure(ot_run_check(out), tree, arena));
  *settings = ot_run_write(out, arena);
  place_all(*settings, tree, out, arena);
  return OT_OK;
}

ot_status ot_run_defaults(const ot_model *model, ot_dtype compute, ot_arena *arena, ot_run *out) {
  ot_schema others = ot_run_schema;  // all keys but the first, the model
  others.keys++;
  others.num_keys--;
  ot_run_keys keys;
  OT_TRY(ot_schema_read(&others, NULL, arena, &keys));
  *out = keys.run;
  out->model = *model;
  out->precision.compute = compute;
  derive(out);
  return OT_OK;
}

ot_node *ot_run_write(const ot_run *run, ot_arena *arena) {
  // The model's keys come from the model itself: the table uses an empty set in their place.
  static const ot_model_keys no_keys;
  ot_run_keys keys = {.model = no_keys, .run = *run};
  ot_node *const settings = ot_schema_write(&ot_run_schema, 0, &keys, arena);
  ot_node_replace(ot_node_child(settings, "model"), ot_model_write(&run->model, arena));
  return settings;
}

uint64_t ot_run_hash(const ot_run *run, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(ot_run_write(run, arena), 0, &text);
  return ot_hash_text(OT_HASH_START, ot_text_builder_text(&text));
}

// ---- Compare ----

typedef struct comparison {
  char path[PATH_BYTES];
  ot_text_builder *out;
  ot_text_builder given;  // changes by --set
  int count;
  bool ranks;  // any difference counts
} comparison;

// Settings that a resumed run may change.
static bool is_free(const char *path) {
  return ot_choice_matches(
      "parallel|checkpoint|audit|evaluate|cluster|steps|output|log|device|threads|on_spike|"
      "batch.micro_batch_size|data.tokenizer_check",
      path);
}

// True for settings given on the command line, and for those that follow from another value: only
// the change of that value is reported.
static bool may_change(const ot_node *node) {
  return node->source && (ot_text_starts_with(node->source, "--set") ||
                          ot_text_starts_with(node->source, "follows"));
}

static const char *text_of(const ot_node *node, ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  double number = 0;
  if (!node) return "absent";
  if (node->kind == OT_NODE_SCALAR && ot_number_parse(node->text, false, &number)) {
    char shortest[32];
    ot_number_print_shortest(shortest, sizeof shortest, number);
    return ot_arena_format(arena, "%s", shortest);
  }
  ot_node_print_yaml(node, 0, &text);
  text.text[text.length - 1] = '\0';  // its newline
  return text.text;
}

// Numbers are compared as numbers: a JSON writer may spell 0.1 with 17 digits.
static bool same_scalar(const ot_node *a, const ot_node *b) {
  if (ot_text_equal(a->text, b->text)) return true;
  double x = 0, y = 0;
  return ot_number_parse(a->text, false, &x) && ot_number_parse(b->text, false, &y) && x == y;
}

static bool same_value(const ot_node *a, const ot_node *b) {
  if (!a || !b || a->kind != b->kind) return false;
  if (a->kind == OT_NODE_SCALAR) return same_scalar(a, b);
  const ot_node *x = a->first;
  const ot_node *y = b->first;
  for (; x && y; x = x->next, y = y->next) {
    const bool same_key = !x->key || !y->key || ot_text_equal(x->key, y->key);
    if (!same_key || !same_value(x, y)) return false;
  }
  return !x && !y;
}

static void compare_leaf(comparison *c, const ot_node *old, const ot_node *now) {
  const char *const before = text_of(old, c->out->arena);
  const char *const after = text_of(now, c->out->arena);
  if (same_value(old, now)) return;
  if (c->ranks) {
    ot_text_appendf(c->out, "%s: %.200s on rank 0, %.200s here\n", c->path, before, after);
    c->count++;
    return;
  }
  const bool allowed = now && may_change(now);
  if (allowed && !ot_text_starts_with(now->source, "--set")) return;
  ot_text_appendf(allowed ? &c->given : c->out, "%s: %.200s -> %.200s%s%s%s\n", c->path, before,
                  after, now ? " (" : "", now ? ot_node_place(c->out->arena, now) : "",
                  now ? ")" : "");
  if (!allowed) c->count++;
}

static void compare_maps(comparison *c, const ot_node *old, const ot_node *now, int64_t length) {
  for (const ot_node *child = now->first; child; child = child->next) {
    const ot_node *const other = ot_node_child(old, child->key);
    ot_text_format(c->path + length, PATH_BYTES - length, length > 0 ? ".%s" : "%s", child->key);
    if (c->ranks || !is_free(c->path)) {
      const bool maps = other && other->kind == OT_NODE_MAP && child->kind == OT_NODE_MAP;
      if (maps) {
        compare_maps(c, other, child, ot_text_length(c->path));
      } else {
        compare_leaf(c, other, child);
      }
    }
    c->path[length] = '\0';
  }
}

int ot_run_compare(const ot_node *old_settings, const ot_node *new_settings, ot_text_builder *out) {
  comparison c = {.out = out, .given = {.arena = out->arena}};
  compare_maps(&c, old_settings, new_settings, 0);
  if (c.count > 0 && c.given.length > 0)
    ot_text_appendf(out, "in addition to the changes by --set:\n%s",
                    ot_text_builder_text(&c.given));
  return c.count;
}

int ot_run_compare_ranks(const ot_node *first, const ot_node *own, ot_text_builder *out) {
  comparison c = {.out = out, .given = {.arena = out->arena}, .ranks = true};
  compare_maps(&c, first, own, 0);
  return c.count;
}
