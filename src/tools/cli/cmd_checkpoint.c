// SPDX-License-Identifier: Apache-2.0
// `orthant checkpoint list|verify|diff|prune`: the checkpoints of a run.
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/json_writer.h"
#include "base/quantity.h"
#include "base/text.h"
#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_list.h"
#include "cli/verbs.h"
#include "files/disk.h"
#include "files/tree_file.h"
#include "record/run_directory.h"

typedef struct command {
  const ot_options *options;
  ot_arena *arena;
  ot_json_writer json;
  bool as_json;
} command;

// A checkpoint of those that the user names.
typedef struct entry {
  const char *path;
  ot_manifest manifest;
  const char *damage;  // null: none
  int64_t bytes;       // of its files, by the manifest; -1: unknown
  double time_s;       // of the manifest, since 1970; NaN: unknown
} entry;

typedef struct entry_list {
  entry *entry;  // [count]
  int64_t count, capacity;
} entry_list;

// ---- which checkpoints ----

static ot_status add_entry(command *c, const char *path, ot_checkpoint_hashes hashes,
                           entry_list *list) {
  entry e = {.path = path, .bytes = -1, .time_s = NAN};
  struct stat info;
  OT_TRY(ot_checkpoint_inspect(c->arena, path, hashes, &e.manifest, &e.damage));
  for (int i = 0; i < e.manifest.num_files; i++)
    e.bytes = (i == 0 ? 0 : e.bytes) + e.manifest.files[i].bytes;
  if (stat(ot_disk_join(c->arena, path, "manifest.json"), &info) == 0)
    e.time_s = (double)info.st_mtim.tv_sec;
  list->entry =
      ot_arena_grow(c->arena, list->entry, list->count, &list->capacity, sizeof *list->entry);
  list->entry[list->count++] = e;
  return OT_OK;
}

// The checkpoints of a run, newest first, or the one that `path` is.
static ot_status add_named(command *c, const char *path, ot_checkpoint_hashes hashes,
                           entry_list *list) {
  const char *const of_run = ot_disk_join(c->arena, path, "checkpoints");
  const char *const directory = ot_disk_is_directory(of_run) ? of_run : path;
  ot_checkpoint_steps steps = {0};
  if (ot_disk_is_directory(directory)) OT_TRY(ot_checkpoint_list(c->arena, directory, &steps));
  for (int64_t i = 0; i < steps.count; i++)
    OT_TRY(add_entry(c, ot_checkpoint_path(c->arena, directory, steps.step[i]), hashes, list));
  if (steps.count > 0 || directory == of_run) return OT_OK;
  if (ot_disk_is_directory(path) && ot_checkpoint_is_native(c->arena, path))
    return add_entry(c, path, hashes, list);
  ot_fail(OT_USAGE, "%s is neither a run directory nor a checkpoint", path);
  return ot_fail_hint(OT_USAGE, "give the `output` of a run, or one of its checkpoints/step-N");
}

static ot_status find_entries(command *c, ot_checkpoint_hashes hashes, entry_list *list) {
  for (int i = 1; i < ot_options_num_arguments(c->options); i++)
    OT_TRY(add_named(c, ot_options_argument(c->options, i), hashes, list));
  return OT_OK;
}

// ---- list and verify ----

static const char *mesh_text(ot_arena *arena, const ot_manifest_mesh *m) {
  const struct {
    const char *name;
    int degree;
  } axes[] = {{"pp", m->pp},
              {"vpp", m->vpp},
              {"dp_replicate", m->dp_replicate},
              {"dp_shard", m->dp_shard},
              {"cp", m->cp},
              {"ep", m->ep},
              {"tp", m->tp}};
  ot_text_builder text = {.arena = arena};
  ot_text_appendf(&text, "%d rank%s", m->ranks, ot_text_plural(m->ranks, "s"));
  for (int i = 0; i < OT_COUNT(axes); i++)
    if (axes[i].degree > 1) ot_text_appendf(&text, " %s%d", axes[i].name, axes[i].degree);
  return ot_text_builder_text(&text);
}

static void write_entry(command *c, const entry *e, bool verified) {
  ot_json_writer *const w = &c->json;
  const bool known = e->bytes >= 0;
  ot_json_object(w, NULL);
  ot_json_text(w, "path", e->path);
  ot_json_text(w, "state", e->damage ? "damaged" : verified ? "verified" : "complete");
  ot_json_text(w, "damage", e->damage);
  if (known) {
    ot_json_integer(w, "step", e->manifest.step);
    ot_json_integer(w, "bytes", e->bytes);
    ot_json_integer(w, "files", e->manifest.num_files);
    ot_json_integer(w, "tokens", e->manifest.tokens);
    ot_manifest_write_mesh(w, &e->manifest.mesh);
  }
  ot_json_real(w, "time", e->time_s);
  ot_json_end(w);
}

static void print_entry(command *c, const entry *e, bool verified) {
  char when[32] = "-";
  if (isfinite(e->time_s)) {
    const time_t seconds = (time_t)e->time_s;
    struct tm date;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", gmtime_r(&seconds, &date));
  }
  if (e->damage) {
    printf("%s  damaged: %s\n", e->path, e->damage);
    return;
  }
  printf("%s  step %lld  %s  %s  %s  %s\n", e->path, (long long)e->manifest.step,
         ot_figure_bytes(c->arena, (double)e->bytes), mesh_text(c->arena, &e->manifest.mesh), when,
         verified ? "verified" : "complete");
}

static int64_t show(command *c, const entry_list *list, bool verified) {
  int64_t damaged = 0;
  if (c->as_json) ot_json_array(&c->json, "checkpoints");
  for (int64_t i = 0; i < list->count; i++) {
    damaged += list->entry[i].damage != NULL;
    if (c->as_json)
      write_entry(c, &list->entry[i], verified);
    else
      print_entry(c, &list->entry[i], verified);
  }
  if (c->as_json) ot_json_end(&c->json);
  if (!c->as_json && list->count == 0) puts("no checkpoints");
  return damaged;
}

// Sizes against the manifest, and the hashes of the small files.
static ot_status list_all(command *c) {
  entry_list list = {0};
  OT_TRY(find_entries(c, OT_CHECKPOINT_HASH_TEXTS, &list));
  show(c, &list, false);
  return OT_OK;
}

static ot_status verify(command *c) {
  entry_list list = {0};
  OT_TRY(find_entries(c, OT_CHECKPOINT_HASH_ALL, &list));
  const int64_t damaged = show(c, &list, true);
  OT_CHECK(damaged == 0, OT_FINDINGS, "%lld of %lld checkpoints %s damaged", (long long)damaged,
           (long long)list.count, damaged == 1 ? "is" : "are");
  return OT_OK;
}

// ---- diff ----

typedef struct key_difference {
  const char *key, *a, *b;  // values as JSON; null: absent
} key_difference;

typedef struct key_list {
  key_difference *key;  // [count]
  int64_t count, capacity;
} key_list;

static const char *value_text(command *c, const ot_node *node) {
  if (!node) return NULL;
  ot_json_writer w = ot_json_begin(c->arena, 0);
  ot_node_write_json(node, NULL, &w);
  return w.text;
}

static void compare_nodes(command *c, const char *path, const ot_node *a, const ot_node *b,
                          key_list *list);

// Keys of `a`, and those of `b` that `a` lacks. Settings are at most OT_TREE_DEPTH_MAX deep.
static void compare_maps(command *c, const char *path, const ot_node *a, const ot_node *b,
                         key_list *list) {
  const char *const dot = path[0] ? "." : "";
  for (const ot_node *at = a->first; at; at = at->next)
    compare_nodes(c, ot_arena_format(c->arena, "%s%s%s", path, dot, at->key), at,
                  ot_node_child(b, at->key), list);
  for (const ot_node *at = b->first; at; at = at->next)
    if (!ot_node_child(a, at->key))
      compare_nodes(c, ot_arena_format(c->arena, "%s%s%s", path, dot, at->key), NULL, at, list);
}

static void compare_nodes(command *c, const char *path, const ot_node *a, const ot_node *b,
                          key_list *list) {
  if (a && b && a->kind == OT_NODE_MAP && b->kind == OT_NODE_MAP) {
    compare_maps(c, path, a, b, list);
    return;
  }
  const char *const of_a = value_text(c, a), *const of_b = value_text(c, b);
  if (of_a && of_b && ot_text_equal(of_a, of_b)) return;
  list->key = ot_arena_grow(c->arena, list->key, list->count, &list->capacity, sizeof *list->key);
  list->key[list->count++] = (key_difference){path, of_a, of_b};
}

static ot_status compare_configs(command *c, const ot_checkpoint *a, const ot_checkpoint *b,
                                 key_list *list) {
  const ot_checkpoint *const both[] = {a, b};
  ot_node *trees[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    const ot_manifest *const manifest = ot_checkpoint_manifest(both[i]);
    const ot_tree_origin origin = {.name = ot_checkpoint_directory(both[i])};
    if (!manifest || !manifest->config) return OT_OK;
    OT_TRY(ot_tree_parse_json(&origin, manifest->config, ot_text_length(manifest->config), c->arena,
                              &trees[i]));
  }
  compare_nodes(c, "", trees[0], trees[1], list);
  return OT_OK;
}

static void write_difference(command *c, const key_list *keys, const ot_checkpoint_difference *d) {
  ot_json_writer *const w = &c->json;
  ot_json_boolean(w, "equal", d->num_tensors == 0);
  ot_json_array(w, "config");
  for (int64_t i = 0; i < keys->count; i++) {
    ot_json_object(w, NULL);
    ot_json_text(w, "key", keys->key[i].key);
    ot_json_raw(w, "a", keys->key[i].a ? keys->key[i].a : "null");
    ot_json_raw(w, "b", keys->key[i].b ? keys->key[i].b : "null");
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_json_array(w, "groups");
  for (int64_t i = 0; i < d->num_groups; i++) {
    ot_json_object(w, NULL);
    ot_json_text(w, "group", d->groups[i].name);
    ot_json_integer(w, "tensors", d->groups[i].tensors);
    ot_json_integer(w, "equal", d->groups[i].equal);
    ot_json_real(w, "max_absolute", d->groups[i].absolute);
    ot_json_real(w, "max_relative", d->groups[i].relative);
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_json_array(w, "tensors");
  for (int64_t i = 0; i < d->num_tensors; i++) {
    const ot_tensor_difference *const t = &d->tensors[i];
    ot_json_object(w, NULL);
    ot_json_text(w, "tensor", t->name);
    ot_json_text(w, "what", t->what);
    if (t->compared) {
      ot_json_integer(w, "elements", t->elements);
      ot_json_integer(w, "different", t->different);
      ot_json_real(w, "max_absolute", t->absolute);
      ot_json_real(w, "max_relative", t->relative);
    }
    ot_json_end(w);
  }
  ot_json_end(w);
}

static void print_tensor(const ot_tensor_difference *t) {
  if (t->compared)
    printf("  %s: %s, %lld of %lld, largest %.3g absolute, %.3g relative\n", t->name, t->what,
           (long long)t->different, (long long)t->elements, t->absolute, t->relative);
  else
    printf("  %s: %s\n", t->name, t->what);
}

static void print_difference(const key_list *keys, const ot_checkpoint_difference *d) {
  enum { MOST = 20 };
  if (keys->count > 0) puts("settings");
  for (int64_t i = 0; i < keys->count; i++)
    printf("  %s: %s -> %s\n", keys->key[i].key, keys->key[i].a ? keys->key[i].a : "(absent)",
           keys->key[i].b ? keys->key[i].b : "(absent)");
  for (int64_t i = 0; i < d->num_groups; i++) {
    const ot_difference_group *const g = &d->groups[i];
    printf("%s: %lld of %lld tensors have the same bits", g->name, (long long)g->equal,
           (long long)g->tensors);
    if (g->equal < g->tensors)
      printf(", largest difference %.3g absolute, %.3g relative", g->absolute, g->relative);
    puts("");
  }
  for (int64_t i = 0; i < d->num_tensors && i < MOST; i++) print_tensor(&d->tensors[i]);
  if (d->num_tensors > MOST)
    printf("  and %lld more (--json lists all)\n", (long long)(d->num_tensors - MOST));
}

static ot_status compare_open(command *c, ot_checkpoint *a, ot_checkpoint *b) {
  key_list keys = {0};
  ot_checkpoint_difference difference;
  OT_TRY(compare_configs(c, a, b, &keys));
  OT_TRY(ot_checkpoint_compare(a, b, c->arena, &difference));
  if (c->as_json)
    write_difference(c, &keys, &difference);
  else
    print_difference(&keys, &difference);
  return OT_OK;
}

// A run stands for its newest checkpoint.
static ot_status open_one(command *c, int argument, ot_checkpoint **out) {
  static const ot_checkpoint_search search = {.hashes = OT_CHECKPOINT_HASH_TEXTS};
  ot_checkpoint_found found;
  OT_TRY(ot_checkpoint_find(c->arena, ot_options_argument(c->options, argument), &search, &found));
  if (found.note) fprintf(stderr, "note: %s\n", found.note);
  return ot_checkpoint_create(found.path, out);
}

static ot_status diff(command *c) {
  ot_checkpoint *a = NULL, *b = NULL;
  OT_CHECK(ot_options_num_arguments(c->options) == 3, OT_USAGE,
           "diff compares two checkpoints, %d given", ot_options_num_arguments(c->options) - 1);
  ot_status status = open_one(c, 1, &a);
  if (status == OT_OK) status = open_one(c, 2, &b);
  if (status == OT_OK) status = compare_open(c, a, b);
  ot_checkpoint_destroy(&a);
  ot_checkpoint_destroy(&b);
  return status;
}

// ---- prune ----

enum { KEPT_VERIFIED = 2 };

// The checkpoints to remove: those older than the `keep` newest complete ones, and older than the
// two newest whose every byte is right. Damaged ones that are newer stay for a look.
static ot_status choose(command *c, const char *directory, int64_t keep, entry_list *list) {
  ot_checkpoint_steps steps;
  int64_t complete = 0, verified = 0;
  OT_TRY(ot_checkpoint_list(c->arena, directory, &steps));
  for (int64_t i = 0; i < steps.count; i++) {
    const bool surplus = complete >= keep && verified >= KEPT_VERIFIED;
    const bool reads = !surplus && verified < KEPT_VERIFIED;
    OT_TRY(add_entry(c, ot_checkpoint_path(c->arena, directory, steps.step[i]),
                     reads ? OT_CHECKPOINT_HASH_ALL : OT_CHECKPOINT_HASH_NONE, list));
    entry *const e = &list->entry[list->count - 1];
    e->manifest.step = steps.step[i];
    if (surplus) continue;
    list->count--;
    complete += !e->damage;
    verified += reads && !e->damage;
  }
  return OT_OK;
}

static void report_pruned(command *c, const entry_list *list, bool dry) {
  int64_t bytes = 0;
  ot_json_writer *const w = &c->json;
  if (c->as_json) ot_json_array(w, "removed");
  for (int64_t i = 0; i < list->count; i++) {
    const entry *const e = &list->entry[i];
    bytes += e->bytes > 0 ? e->bytes : 0;
    if (c->as_json)
      ot_json_integer(w, NULL, e->manifest.step);
    else
      printf("%s %s (%s)\n", dry ? "would remove" : "removed", e->path,
             e->bytes >= 0 ? ot_figure_bytes(c->arena, (double)e->bytes) : "damaged");
  }
  if (c->as_json) {
    ot_json_end(w);
    ot_json_integer(w, "bytes", bytes);
    ot_json_boolean(w, "dry_run", dry);
    return;
  }
  printf("%lld checkpoint%s, %s %s\n", (long long)list->count, ot_text_plural(list->count, "s"),
         ot_figure_bytes(c->arena, (double)bytes), dry ? "would be freed" : "freed");
}

static ot_status remove_entries(command *c, const char *run, const char *directory,
                                const entry_list *list) {
  ot_run_directory *held = NULL;
  // A running run prunes its own: two at once could both rename one.
  OT_TRY(ot_run_directory_create(run, &held));
  ot_status status = OT_OK;
  for (int64_t i = 0; i < list->count && status == OT_OK; i++)
    status = ot_checkpoint_remove(c->arena, directory, list->entry[i].manifest.step);
  ot_run_directory_destroy(&held);
  return status;
}

static ot_status prune(command *c) {
  const char *const run = ot_options_argument(c->options, 1);
  const char *const directory = ot_disk_join(c->arena, run, "checkpoints");
  const bool dry = ot_options_flag(c->options, "dry-run");
  entry_list list = {0};
  OT_CHECK(ot_options_num_arguments(c->options) == 2, OT_USAGE, "prune takes one run, %d given",
           ot_options_num_arguments(c->options) - 1);
  OT_CHECK(ot_options_given(c->options, "keep"), OT_USAGE, "prune needs --keep N");
  OT_CHECK(ot_disk_is_directory(directory), OT_USAGE, "%s is not a run directory", run);
  OT_TRY(choose(c, directory, ot_options_integer(c->options, "keep"), &list));
  if (!dry && list.count > 0) OT_TRY(remove_entries(c, run, directory, &list));
  report_pruned(c, &list, dry);
  return OT_OK;
}

// ---- the verb ----

static const struct {
  const char *name;
  ot_status (*run)(command *c);
} actions[] = {{"list", list_all}, {"verify", verify}, {"diff", diff}, {"prune", prune}};

static ot_status checkpoint(const ot_options *options) {
  command c = {
      .options = options, .arena = ot_options_arena(options), .as_json = ot_options_json(options)};
  const char *const name = ot_options_argument(options, 0);
  c.json = ot_json_begin(c.arena, 2);
  for (int i = 0; i < OT_COUNT(actions); i++) {
    if (!ot_text_equal(actions[i].name, name)) continue;
    if (c.as_json) ot_json_object(&c.json, NULL);
    const ot_status status = actions[i].run(&c);
    if (c.as_json && (status == OT_OK || status == OT_FINDINGS)) {
      ot_json_end(&c.json);
      puts(c.json.text);
    }
    return status;
  }
  ot_fail(OT_USAGE, "unknown action \"%s\"; allowed: list, verify, diff, prune", name);
  return ot_fail_hint(OT_USAGE, "orthant checkpoint list RUN");
}

static const ot_option rows[] = {
    {"keep", OT_OPTION_INTEGER, "N", NULL, 1, 1 << 30,
     .help = "prune: number of newest complete checkpoints to keep"},
    {"dry-run", OT_OPTION_FLAG, .help = "prune: only say what would be removed"},
};

const ot_verb ot_verb_checkpoint = {
    .name = "checkpoint",
    .summary = "list, verify, compare and prune the checkpoints of a run",
    .arguments = "list|verify|diff|prune RUN|DIR...",
    .min_arguments = 2,
    .max_arguments = -1,
    .details =
        "A RUN directory stands for its checkpoints (diff: its newest), a DIR is one of them.\n"
        "list shows step, bytes, mesh and time; it compares sizes, and the hashes of small files.\n"
        "verify reads every byte and compares every hash; damage is named by file, bytes and\n"
        "tensors, and gives exit 1. diff A B lists settings that differ, and how weights, moments\n"
        "and master weights differ. prune RUN --keep N removes older checkpoints, never the two\n"
        "newest whose every byte is right, and not while a process holds the run.",
    .examples =
        "  orthant checkpoint list runs/demo\n"
        "  orthant checkpoint verify runs/demo/checkpoints/step-00000100\n"
        "  orthant checkpoint diff runs/a runs/b --json\n"
        "  orthant checkpoint prune runs/demo --keep 3 --dry-run",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = checkpoint,
};
