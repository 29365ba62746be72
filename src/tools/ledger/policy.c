// SPDX-License-Identifier: Apache-2.0
// Two tables of keys. The maps of settings (`set`) are those of a run, and taken out before.
#include "ledger/policy.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/number.h"
#include "base/schema.h"
#include "base/text.h"
#include "describe/run_keys.h"
#include "files/disk.h"
#include "files/tree_file.h"

static const char *const units[] = {"nats", "bits_per_byte", NULL};
static const char *const slopes[] = {"budgets", "ladder", NULL};
static const char *const candidates[] = {"each", "lond", NULL};
static const char *const audits[] = {"all", "causality", "none", NULL};
static const char *const pairings[] = {"exact", "seeds", NULL};
const char *const ot_ledger_class_names[] = {"quality", "speed", "neutral", NULL};

#define POLICY(member) offsetof(ot_ledger_policy, member)
#define CHANGE(member) offsetof(change_keys, member)

typedef struct change_keys {
  ot_ledger_change change;
  int pairing;
} change_keys;

// clang-format off
static const ot_key metric_keys[] = {
    {"data", OT_KEY_PATH, POLICY(metric.data) - POLICY(metric), "",
     .help = "validation tokens, held out; none: those of the base"},
    {"tokens", OT_KEY_INTEGER, POLICY(metric.tokens) - POLICY(metric), "0", 0, OT_NO_MAXIMUM,
     .unit = "tokens", .help = "of it; 0: all"},
    {"name", OT_KEY_CHOICE, POLICY(metric.unit) - POLICY(metric), "nats", .choices = units,
     .help = "of a token, or of a byte of text where tokenizers differ"},
};
static const ot_schema metric = {"metric", metric_keys, OT_COUNT(metric_keys),
                                 .size = sizeof(((ot_ledger_policy *)0)->metric)};

static const ot_key planned_keys[] = {
    {"cluster", OT_KEY_TEXT, offsetof(ot_ledger_planned, cluster), .help = "preset or file"},
    {"gpus", OT_KEY_INT, offsetof(ot_ledger_planned, gpus), "0", 0, 1 << 24,
     .help = "devices; 0: the cluster's"},
    {"scale", OT_KEY_PATH, offsetof(ot_ledger_planned, scale), .help = "RUN.yaml of that size"},
};
static const ot_schema planned = {"planned", planned_keys, OT_COUNT(planned_keys),
                                  .size = sizeof(ot_ledger_planned)};

static const ot_key scale_keys[] = {
    {"name", OT_KEY_TEXT, offsetof(ot_ledger_scale, name), .help = "name"},
    {"tokens", OT_KEY_INTEGER, offsetof(ot_ledger_scale, tokens), NULL, 1, OT_NO_MAXIMUM,
     .unit = "tokens", .help = "of a full run"},
};
static const ot_schema scale = {"scale", scale_keys, OT_COUNT(scale_keys),
                                .size = sizeof(ot_ledger_scale)};

static const ot_key seed_keys[] = {
    {"base", OT_KEY_INTEGER, POLICY(seeds.base) - POLICY(seeds), "1000", 0, OT_NO_MAXIMUM,
     .help = "of the first pair"},
    {"count", OT_KEY_INT, POLICY(seeds.count) - POLICY(seeds), "16", 2, OT_LEDGER_SEEDS,
     .help = "pairs at most"},
};
static const ot_schema seeds = {"seeds", seed_keys, OT_COUNT(seed_keys),
                                .size = sizeof(((ot_ledger_policy *)0)->seeds)};

static const ot_key slope_keys[] = {
    {"from", OT_KEY_CHOICE, POLICY(slope.from) - POLICY(slope), "budgets", .choices = slopes,
     .help = "budgets: other budgets of each scale; ladder: the scales"},
    {"factors", OT_KEY_REAL, POLICY(slope.factors) - POLICY(slope), "0.7 1.4", 0, 100,
     .above_minimum = true, .shape = OT_SHAPE_LIST,
     .count_offset = POLICY(slope.num_factors) - POLICY(slope), .help = "of the budget of a scale"},
    {"seeds", OT_KEY_INT, POLICY(slope.seeds) - POLICY(slope), "4", 2, OT_LEDGER_SEEDS,
     .help = "of the first, that run them"},
};
static const ot_schema slope = {"slope", slope_keys, OT_COUNT(slope_keys),
                                .size = sizeof(((ot_ledger_policy *)0)->slope)};

static const ot_key look_keys[] = {
    {"pairs", OT_KEY_INT, POLICY(look_keys.pairs) - POLICY(look_keys), "4 8 16",
     2, OT_LEDGER_SEEDS, .shape = OT_SHAPE_LIST,
     .count_offset = POLICY(look_keys.num_pairs) - POLICY(look_keys), .help = "at each look"},
    {"one_sided", OT_KEY_REAL, POLICY(look_keys.one_sided) - POLICY(look_keys), "0.025", 0, 0.5,
     .above_minimum = true, .below_maximum = true, .help = "error of all looks together"},
    {"levels", OT_KEY_REAL, POLICY(look_keys.levels) - POLICY(look_keys), "", 0, 0.5,
     .above_minimum = true, .shape = OT_SHAPE_LIST,
     .count_offset = POLICY(look_keys.num_levels) - POLICY(look_keys),
     .help = "one-sided p of each look; none: known ones, or equal shares"},
};
static const ot_schema looks = {"looks", look_keys, OT_COUNT(look_keys),
                                .size = sizeof(((ot_ledger_policy *)0)->look_keys)};

static const ot_key margin_keys[] = {
    {"practical", OT_KEY_REAL, offsetof(ot_ledger_margins, practical), "1.01", 1, 10,
     .help = "multiplier worth having"},
    {"harmful", OT_KEY_REAL, offsetof(ot_ledger_margins, harmful), "0.99", 0, 1,
     .above_minimum = true, .help = "multiplier that counts as worse"},
    {"neutral", OT_KEY_REAL, offsetof(ot_ledger_margins, neutral), "0.005", 0, 1,
     .above_minimum = true, .help = "of ln m, for changes that claim to be neutral"},
    {"too_good", OT_KEY_REAL, offsetof(ot_ledger_margins, too_good), "1.3", 1, OT_NO_MAXIMUM,
     .help = "a larger multiplier waits for audits"},
};
static const ot_schema margins = {"margins", margin_keys, OT_COUNT(margin_keys),
                                  .size = sizeof(ot_ledger_margins)};

static const ot_key tuning_keys[] = {
    {"keys", OT_KEY_TEXT, POLICY(tuning.keys) - POLICY(tuning), "", .shape = OT_SHAPE_LIST,
     .count_offset = POLICY(tuning.num_keys) - POLICY(tuning), .help = "numbers of the run"},
    {"factors", OT_KEY_REAL, POLICY(tuning.factors) - POLICY(tuning), "0.7 1 1.4", 0, 100,
     .above_minimum = true, .shape = OT_SHAPE_LIST,
     .count_offset = POLICY(tuning.num_factors) - POLICY(tuning), .help = "tried in both arms"},
};
static const ot_schema tuning = {"tuning", tuning_keys, OT_COUNT(tuning_keys),
                                 .size = sizeof(((ot_ledger_policy *)0)->tuning)};

static const ot_key policy_keys[] = {
    {"base", OT_KEY_PATH, POLICY(base), .help = "RUN.yaml of the baseline"},
    {"metric", OT_KEY_OBJECT, POLICY(metric), .object = &metric, .help = "what is compared"},
    {"ladder", OT_KEY_OBJECT, POLICY(scales), .shape = OT_SHAPE_LIST,
     .count_offset = POLICY(num_scales), .object = &scale, .help = "scales, smallest first"},
    {"seeds", OT_KEY_OBJECT, POLICY(seeds), .object = &seeds, .help = "the same for every change"},
    {"slope", OT_KEY_OBJECT, POLICY(slope), .object = &slope, .help = "of loss against compute"},
    {"looks", OT_KEY_OBJECT, POLICY(look_keys), .object = &looks, .help = "planned analyses"},
    {"margins", OT_KEY_OBJECT, POLICY(margins), .object = &margins, .help = "multipliers"},
    {"candidates", OT_KEY_CHOICE, POLICY(candidates), "each", .choices = candidates,
     .help = "each: at the levels of the looks; lond: false discoveries of all together"},
    {"tuning", OT_KEY_OBJECT, POLICY(tuning), .object = &tuning,
     .help = "at the first scale, of both arms"},
    {"target", OT_KEY_REAL, POLICY(target), "0", 0, OT_NO_MAXIMUM, .unit = "FLOPs",
     .help = "compute that multipliers are extrapolated to; 0: none"},
    {"audit", OT_KEY_CHOICE, POLICY(audit), "all", .choices = audits,
     .help = "of a changed run before its first pair"},
    {"ranks", OT_KEY_INT, POLICY(ranks), "1", 1, 1 << 20, .help = "of each run"},
    {"threads", OT_KEY_INT, POLICY(threads), "1", 1, 4096, .help = "per rank"},
};
static const ot_schema policy_schema = {"policy", policy_keys, OT_COUNT(policy_keys),
                                        .size = sizeof(ot_ledger_policy)};

static const ot_key change_table[] = {
    {"class", OT_KEY_CHOICE, CHANGE(change.class), "quality", .choices = ot_ledger_class_names,
     .help = "what it claims"},
    {"hypothesis", OT_KEY_REAL, CHANGE(change.hypothesis), "0", 0, 100,
     .help = "expected multiplier, written before the first run; 0: none"},
    {"program", OT_KEY_PATH, CHANGE(change.program), "", .help = "orthant of another commit"},
    {"commit", OT_KEY_TEXT, CHANGE(change.commit), "", .help = "of it"},
    {"pairing", OT_KEY_CHOICE, CHANGE(pairing), "exact", .choices = pairings,
     .help = "exact: the same tokens; seeds: other data by design"},
    {"budget", OT_KEY_REAL, CHANGE(change.budget), "1", 0, 100, .above_minimum = true,
     .help = "trains on this many times a scale's tokens, all counted: a smaller model, longer"},
    {"forged_budget", OT_KEY_REAL, CHANGE(change.forged), "", 0, 100, .above_minimum = true,
     .shape = OT_SHAPE_LIST, .count_offset = CHANGE(change.num_forged),
     .help = "tests of a ledger: uncounted budget, by scale"},
    {"note", OT_KEY_TEXT, CHANGE(change.note), "", .help = "why"},
};
static const ot_schema change_schema = {"change", change_table, OT_COUNT(change_table),
                                        .size = sizeof(change_keys)};
// clang-format on

// ---- settings ----

typedef struct set_list {
  ot_arena *arena;
  const char *directory;
  ot_ledger_sets *sets;
  int64_t text_capacity, written_capacity;
} set_list;

static bool is_path(const ot_key *key, const char *word) {
  if (key && key->type == OT_KEY_OBJECT && key->object->shorthand)
    key = ot_schema_find(key->object, 0, key->object->shorthand);
  if (!key || key->type != OT_KEY_PATH || word[0] == '/' || word[0] == '\0') return false;
  for (int i = 0; key->choices && key->choices[i]; i++)
    if (ot_choice_matches(key->choices[i], word)) return false;
  return true;
}

bool ot_ledger_is_path(const char *key, const char *word) {
  return is_path(ot_schema_find_path(&ot_run_schema, key), word);
}

// A copy of the value with absolute paths.
static ot_node *resolve(const set_list *l, const ot_key *key, const ot_node *node) {
  ot_node *const copy = ot_node_create(l->arena, node->kind);
  *copy = *node;
  copy->first = copy->last = copy->next = NULL;
  if (node->kind == OT_NODE_SCALAR && is_path(key, node->text))
    copy->text = ot_disk_join(l->arena, l->directory, node->text);
  for (const ot_node *child = node->first; child; child = child->next)
    ot_node_append(copy, resolve(l, key, child));
  return copy;
}

static const char *assignment(ot_arena *arena, const char *path, const ot_node *value) {
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_node_write_json(value, NULL, &json);
  return ot_arena_format(arena, "%s=%s", path, json.text);
}

static void add_set(set_list *l, const char *path, const ot_node *value) {
  ot_ledger_sets *const s = l->sets;
  const ot_key *const key = ot_schema_find_path(&ot_run_schema, path);
  s->text = ot_arena_grow(l->arena, s->text, s->count, &l->text_capacity, sizeof *s->text);
  s->written =
      ot_arena_grow(l->arena, s->written, s->count, &l->written_capacity, sizeof *s->written);
  s->text[s->count] = assignment(l->arena, path, resolve(l, key, value));
  s->written[s->count++] = assignment(l->arena, path, value);
}

// A map as paths and values; a key that only a model has is one of the model.
static void flatten(set_list *l, const char *prefix, const ot_node *map) {
  for (const ot_node *child = map->first; child; child = child->next) {
    const char *path = ot_arena_format(l->arena, "%s%s", prefix, child->key);
    if (prefix[0] == '\0' && !ot_schema_find_path(&ot_run_schema, path))
      path = ot_arena_format(l->arena, "model.%s", child->key);
    if (child->kind == OT_NODE_MAP)
      flatten(l, ot_arena_format(l->arena, "%s.", path), child);
    else
      add_set(l, path, child);
  }
}

static bool is_same(ot_arena *arena, const ot_node *a, const ot_node *b) {
  return ot_text_equal(assignment(arena, "", a), assignment(arena, "", b));
}

// Lists the values of `to` that differ from `from`, which may be null; then those that only `from`
// has, with the values of `defaults`.
static void flatten_changes(set_list *l, const char *path, const ot_node *from, const ot_node *to,
                            const ot_node *defaults) {
  if (to && to->kind == OT_NODE_MAP && (!from || from->kind == OT_NODE_MAP)) {
    const char *const prefix = path[0] ? ot_arena_format(l->arena, "%s.", path) : "";
    for (const ot_node *at = to->first; at; at = at->next)
      flatten_changes(l, ot_arena_format(l->arena, "%s%s", prefix, at->key),
                      from ? ot_node_child(from, at->key) : NULL, at, defaults);
    for (const ot_node *at = from ? from->first : NULL; at; at = at->next)
      if (!ot_node_child(to, at->key))
        flatten_changes(l, ot_arena_format(l->arena, "%s%s", prefix, at->key), at, NULL, defaults);
    return;
  }
  if (from && to && is_same(l->arena, from, to)) return;
  const ot_node *const value = to ? to : ot_node_find(defaults, path);
  if (value) add_set(l, path, value);
}

ot_status ot_ledger_sets_between(const char *from, const char *to, const ot_presets *presets,
                                 ot_arena *arena, ot_ledger_sets *out) {
  const ot_config_request request = {.path = to, .presets = *presets};
  ot_node *before, *after;
  ot_config config;
  OT_TRY(ot_config_load(&request, arena, &config));
  OT_TRY(ot_tree_load(from, arena, &before));
  OT_TRY(ot_tree_load(to, arena, &after));
  set_list list = {.arena = arena, .directory = after->directory, .sets = out};
  *out = (ot_ledger_sets){0};
  flatten_changes(&list, "", before, after, config.settings);
  return OT_OK;
}

// Takes `set` out of `map`.
static ot_status read_sets(ot_node *map, const char *directory, ot_arena *arena,
                           ot_ledger_sets *sets) {
  ot_node *const node = ot_node_child(map, "set");
  set_list list = {.arena = arena, .directory = directory, .sets = sets};
  *sets = (ot_ledger_sets){0};
  if (!node) return OT_OK;
  OT_CHECK(node->kind == OT_NODE_MAP, OT_USAGE, "set is a map of keys of a run (%s)",
           ot_node_place(arena, node));
  flatten(&list, "", node);
  ot_node_remove(map, node);
  return OT_OK;
}

// ---- the policy ----

static ot_status check_looks(ot_ledger_policy *p) {
  OT_CHECK(p->look_keys.num_pairs >= 1 && p->look_keys.num_pairs <= OT_LEDGER_LOOKS, OT_USAGE,
           "looks.pairs: 1 to %d looks, not %lld (%s)", OT_LEDGER_LOOKS,
           (long long)p->look_keys.num_pairs, p->path);
  p->looks = (ot_looks){.count = (int)p->look_keys.num_pairs, .one_sided = p->look_keys.one_sided};
  for (int i = 0; i < p->looks.count; i++) {
    p->looks.pairs[i] = p->look_keys.pairs[i];
    OT_CHECK(i == 0 || p->looks.pairs[i] > p->looks.pairs[i - 1], OT_USAGE,
             "looks.pairs: %d after %d; each look has more pairs than the one before (%s)",
             p->looks.pairs[i], p->looks.pairs[i - 1], p->path);
  }
  const int most = p->looks.pairs[p->looks.count - 1];
  OT_CHECK(most <= p->seeds.count, OT_USAGE,
           "looks.pairs: %d pairs need as many seeds; seeds.count is %d (%s)", most, p->seeds.count,
           p->path);
  const int64_t levels = p->look_keys.num_levels;
  OT_CHECK(levels == 0 || levels == p->looks.count, OT_USAGE,
           "looks.levels: one for each of %d looks, or none (%s)", p->looks.count, p->path);
  ot_looks_set_levels(&p->looks);
  for (int64_t i = 0; i < levels; i++) p->looks.level[i] = p->look_keys.levels[i];
  return OT_OK;
}

static ot_status check(ot_ledger_policy *p) {
  OT_CHECK(p->num_scales >= 1 && p->num_scales <= OT_LEDGER_SCALES, OT_USAGE,
           "ladder: 1 to %d scales, not %lld (%s)", OT_LEDGER_SCALES, (long long)p->num_scales,
           p->path);
  OT_CHECK(p->slope.num_factors >= 1 && p->slope.num_factors <= OT_LEDGER_BUDGETS, OT_USAGE,
           "slope.factors: 1 to %d, not %lld (%s)", OT_LEDGER_BUDGETS,
           (long long)p->slope.num_factors, p->path);
  OT_CHECK(p->slope.from == 0 || p->num_scales > 1, OT_USAGE,
           "slope.from: ladder needs two scales or more (%s)", p->path);
  for (int64_t i = 0; i < p->num_scales; i++) {
    OT_CHECK(ot_ledger_check_name(p->scales[i].name) == OT_OK, OT_USAGE, "ladder: %s (%s)",
             ot_fail_message(), p->path);
  }
  OT_CHECK(p->base[0] != '\0', OT_USAGE, "base: the RUN.yaml of the baseline is missing (%s)",
           p->path);
  for (int64_t i = 0; i < p->tuning.num_keys; i++)
    OT_CHECK(ot_schema_find_path(&ot_run_schema, p->tuning.keys[i]) != NULL, OT_USAGE,
             "tuning.keys: a run has no key %s (%s)", p->tuning.keys[i], p->path);
  return check_looks(p);
}

// `compute` lists the denominators; only the planned one has settings.
static ot_status read_compute(ot_node *tree, ot_arena *arena, ot_ledger_planned *out) {
  ot_node *const list = ot_node_child(tree, "compute");
  *out = (ot_ledger_planned){.cluster = "", .scale = ""};
  if (!list) return OT_OK;
  for (const ot_node *at = list->first; at; at = at->next) {
    const ot_node *const map = ot_node_child(at, "planned");
    if (at->kind == OT_NODE_MAP && map) {
      OT_TRY(ot_schema_read(&planned, map, arena, out));
      continue;
    }
    const bool known = at->kind == OT_NODE_SCALAR && (ot_text_equal(at->text, "model_flops") ||
                                                      ot_text_equal(at->text, "seconds"));
    OT_CHECK(known, OT_USAGE, "compute lists model_flops, seconds and planned: {...} (%s)",
             ot_node_place(arena, at));
  }
  ot_node_remove(tree, list);
  return OT_OK;
}

ot_status ot_ledger_policy_load(const char *directory, ot_arena *arena, ot_ledger_policy *out) {
  const char *const path = ot_disk_join(arena, directory, "policy.yaml");
  ot_ledger_sets sets[OT_LEDGER_SCALES];
  ot_ledger_planned target;
  ot_node *tree;
  if (!ot_disk_is_file(path)) {
    ot_fail(OT_ENVIRONMENT, "there is no ledger: %s does not exist", path);
    return ot_fail_hint(OT_ENVIRONMENT, "`orthant ledger init BASE.yaml` begins one");
  }
  OT_TRY(ot_tree_load(path, arena, &tree));
  OT_CHECK(tree->kind == OT_NODE_MAP, OT_USAGE, "a policy is a map of keys (%s)", path);
  const ot_node *const ladder = ot_node_child(tree, "ladder");
  int count = 0;
  for (ot_node *at = ladder ? ladder->first : NULL; at && count < OT_LEDGER_SCALES; at = at->next)
    OT_TRY(read_sets(at, tree->directory, arena, &sets[count++]));
  OT_TRY(read_compute(tree, arena, &target));
  OT_TRY(ot_schema_read(&policy_schema, tree, arena, out));
  for (int i = 0; i < count; i++) out->scales[i].sets = sets[i];
  out->planned = target;
  out->path = path;
  out->directory = directory;
  return check(out);
}

// ---- a change ----

ot_status ot_ledger_check_name(const char *name) {
  bool fits = name[0] != '\0' && name[0] != '.' && name[0] != '-' && ot_text_length(name) <= 60;
  for (const char *at = name; fits && *at; at++)
    fits = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9') ||
           strchr("-_.", *at);
  OT_CHECK(fits, OT_USAGE,
           "\"%s\" is no name: up to 60 letters, digits, '-', '_' and '.', not '.' or '-' first",
           name);
  OT_CHECK(!ot_text_equal(name, "base"), OT_USAGE, "\"base\" is the baseline; name the change");
  return OT_OK;
}

// Whether a plain word of YAML is a number or a truth value of JSON.
static bool is_json(const char *word) {
  double value;
  if (ot_text_equal(word, "true") || ot_text_equal(word, "false")) return true;
  const char *const digits = word + (word[0] == '-');
  const bool leads = digits[0] >= '1' && digits[0] <= '9';
  const bool zero = digits[0] == '0' && !(digits[1] >= '0' && digits[1] <= '9');
  return (leads || zero) && !ot_text_ends_with(word, ".") && ot_number_parse(word, false, &value);
}

// Words become texts, so that the tree can be written as JSON.
static void quote_words(ot_node *node) {
  if (node->kind == OT_NODE_SCALAR && !is_json(node->text)) node->quoted = true;
  for (ot_node *child = node->first; child; child = child->next) quote_words(child);
}

ot_status ot_ledger_change_load(const char *directory, const char *name, ot_arena *arena,
                                ot_ledger_change *out) {
  OT_TRY(ot_ledger_check_name(name));
  const char *const file = ot_arena_format(arena, "changes/%s.yaml", name);
  const char *const path = ot_disk_join(arena, directory, file);
  change_keys keys;
  ot_ledger_sets sets;
  ot_node *tree, *whole;
  if (!ot_disk_is_file(path)) {
    ot_fail(OT_USAGE, "there is no change %s (%s)", name, path);
    return ot_fail_hint(OT_USAGE, "`orthant ledger add %s --set KEY=VALUE` writes it", name);
  }
  OT_TRY(ot_tree_load(path, arena, &whole));
  OT_TRY(ot_tree_load(path, arena, &tree));
  OT_CHECK(tree->kind == OT_NODE_MAP, OT_USAGE, "a change is a map of keys (%s)", path);
  OT_TRY(read_sets(tree, tree->directory, arena, &sets));
  OT_TRY(ot_schema_read(&change_schema, tree, arena, &keys));
  *out = keys.change;
  out->name = name;
  out->sets = sets;
  out->seeds_only = keys.pairing == 1;
  quote_words(whole);
  out->tree = whole;
  OT_CHECK(sets.count > 0 || out->num_forged > 0 || out->budget != 1 || out->program[0] != '\0',
           OT_USAGE, "the change changes nothing: it needs `set`, `budget` or `program` (%s)",
           path);
  return OT_OK;
}

double ot_ledger_forged(const ot_ledger_change *const *changes, int count, int at) {
  double factor = 1;
  for (int i = 0; i < count; i++) {
    const int64_t n = changes[i]->num_forged;
    if (n > 0) factor = fmax(factor, changes[i]->forged[at < n ? at : n - 1]);
  }
  return factor;
}
