// SPDX-License-Identifier: Apache-2.0
// Sets are found by their paths, or, if the record's path is not a path of the run any more, by
// their position: a set that was moved keeps both position and content.
#include "data/data_record.h"

#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "files/json_file.h"

enum { LISTED = 4 };  // sets that a note names

// ---- print ----

static void print_source(ot_json_writer *json, const ot_sampler_source *source, int64_t drawn) {
  ot_json_object(json, NULL);
  ot_json_text(json, "path", source->path);
  ot_json_integer(json, "tokens", source->tokens);
  ot_json_text(json, "xxh3_128", source->hash);
  if (drawn >= 0) ot_json_integer(json, "windows_read", drawn);
  ot_json_end(json);
}

const char *ot_data_record_print(const ot_data_loader *loader, int64_t samples, ot_arena *arena) {
  const ot_run *const run = ot_data_loader_run(loader);
  const int64_t count = ot_data_loader_num_sources(loader);
  int64_t *const drawn = ot_arena_array(arena, count, sizeof *drawn);
  ot_data_loader_count_drawn(loader, samples, drawn);
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_object(&json, NULL);
  ot_json_integer(&json, "order", OT_DATA_ORDER);
  ot_json_integer(&json, "seed", run->seed);
  ot_json_integer(&json, "sequence_length", run->data.sequence_length);
  char hash[OT_CONTENT_HASH_BYTES];
  const ot_tokenizer *const tokenizer = ot_data_loader_tokenizer(loader);
  if (tokenizer) ot_tokenizer_hash(tokenizer, hash);
  ot_json_text(&json, "tokenizer_xxh3_128", tokenizer ? hash : NULL);
  ot_json_array(&json, "train");
  for (int64_t i = 0; i < count; i++) {
    const ot_sampler_source source = ot_data_loader_source(loader, i);
    print_source(&json, &source, drawn[i]);
  }
  ot_json_end(&json);
  ot_json_array(&json, "validation");
  for (int64_t i = 0; i < run->data.num_validation; i++) {
    const ot_sampler_source source = ot_data_loader_validation_source(loader, i);
    print_source(&json, &source, -1);
  }
  ot_json_end(&json);
  ot_json_end(&json);
  return json.text;
}

// ---- compare ----

typedef struct comparison {
  const ot_data_loader *loader;
  const ot_data_record_state *state;
  const json_t *root;
  bool other_order;  // the permutations of windows are not those of the record
  int64_t *drawn;    // [sources] windows before the next sample, as the run counts them
  ot_text_builder changes;
  int64_t num_changes;
} comparison;

// One set of the record.
typedef struct entry {
  const char *path, *hash;
  int64_t index, tokens, windows_read;
} entry;

static ot_status read_entry(const comparison *c, const json_t *list, int64_t index, entry *e) {
  const json_t *const object = json_array_get(list, (size_t)index);
  *e = (entry){.index = index};
  OT_TRY(ot_json_member_text(c->state->path, object, "path", &e->path));
  OT_TRY(ot_json_member_text(c->state->path, object, "xxh3_128", &e->hash));
  OT_TRY(ot_json_member_count(c->state->path, object, "tokens", &e->tokens));
  if (!json_object_get(object, "windows_read")) return OT_OK;
  return ot_json_member_count(c->state->path, object, "windows_read", &e->windows_read);
}

static int64_t count_sources(const comparison *c, bool train) {
  return train ? ot_data_loader_num_sources(c->loader)
               : ot_data_loader_run(c->loader)->data.num_validation;
}

static ot_sampler_source source_at(const comparison *c, bool train, int64_t i) {
  return train ? ot_data_loader_source(c->loader, i)
               : ot_data_loader_validation_source(c->loader, i);
}

static bool has_path(const comparison *c, bool train, const char *path) {
  for (int64_t i = 0; i < count_sources(c, train); i++) {
    if (ot_text_equal(source_at(c, train, i).path, path)) return true;
  }
  return false;
}

// The record's set that is source `i` now; e->path is null if there is none.
static ot_status find_entry(const comparison *c, bool train, int64_t i, entry *e) {
  const json_t *const list = json_object_get(c->root, train ? "train" : "validation");
  const char *const path = source_at(c, train, i).path;
  const int64_t count = (int64_t)json_array_size(list);
  // Most sets are where they were.
  for (int64_t k = 0; k < count; k++) {
    OT_TRY(read_entry(c, list, (i + k) % count, e));
    if (ot_text_equal(e->path, path)) return OT_OK;
  }
  if (i < count) {
    OT_TRY(read_entry(c, list, i, e));
    if (!has_path(c, train, e->path)) return OT_OK;
  }
  *e = (entry){.index = -1};
  return OT_OK;
}

static void add_change(comparison *c, const char *change) {
  if (c->num_changes++ >= LISTED) return;
  ot_text_appendf(&c->changes, "%s%s", c->num_changes > 1 ? ", " : "", change);
}

static ot_status refuse(const comparison *c, const ot_sampler_source *source, const entry *e,
                        const char *key) {
  ot_fail(OT_ENVIRONMENT,
          "%s changed since %s: its content has hash %s and %lld tokens, then hash %s and %lld "
          "tokens (%s)",
          source->bin_path, c->state->path, source->hash, (long long)source->tokens, e->hash,
          (long long)e->tokens, key);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "restore the files of this set, or give --set %s=... to go on with other "
                      "data on purpose",
                      key);
}

// A source whose windows are the same: where it goes on, and where it would.
static void compare_position(comparison *c, const ot_sampler_source *source, const entry *e,
                             int64_t drawn) {
  const int64_t apart = drawn - e->windows_read;
  if (apart == 0) return;
  add_change(c, ot_arena_format(c->changes.arena,
                                "%s goes on at window %lld, of which %lld were read: %lld %s",
                                source->path, (long long)drawn, (long long)e->windows_read,
                                (long long)(apart > 0 ? apart : -apart),
                                apart > 0 ? "left out" : "read again"));
}

static ot_status compare_source(comparison *c, bool train, int64_t i) {
  const ot_sampler_source source = source_at(c, train, i);
  ot_arena *const arena = c->changes.arena;
  entry e = {0};
  OT_TRY(find_entry(c, train, i, &e));
  const char *const path = source.path;
  if (!e.path) {
    const bool late = train && c->drawn[i] > 0;
    if (late)
      add_change(c, ot_arena_format(arena, "%s is new and begins at window %lld: %lld left out",
                                    path, (long long)c->drawn[i], (long long)c->drawn[i]));
    return OT_OK;
  }
  if (!ot_text_equal(e.hash, source.hash)) {
    const bool given = train ? c->state->train_given : c->state->validation_given;
    if (!given) return refuse(c, &source, &e, train ? "data.train" : "data.validation");
    add_change(
        c, train ? ot_arena_format(arena, "%s has another content, of which window %lld is next",
                                   path, (long long)c->drawn[i])
                 : ot_arena_format(arena, "%s has another content", path));
    return OT_OK;
  }
  if (!train) return OT_OK;
  if (c->other_order || e.index != i) {
    if (e.windows_read > 0)
      add_change(c, ot_arena_format(arena,
                                    "%s is read in another order, in which windows of its epoch "
                                    "are read again and left out",
                                    path));
    return OT_OK;
  }
  compare_position(c, &source, &e, c->drawn[i]);
  return OT_OK;
}

static ot_status compare_tokenizer(comparison *c) {
  const ot_tokenizer *const tokenizer = ot_data_loader_tokenizer(c->loader);
  const char *const path = ot_data_loader_run(c->loader)->data.tokenizer;
  const char *const recorded = json_string_value(json_object_get(c->root, "tokenizer_xxh3_128"));
  char hash[OT_CONTENT_HASH_BYTES];
  if (!tokenizer || !recorded) return OT_OK;
  ot_tokenizer_hash(tokenizer, hash);
  if (ot_text_equal(hash, recorded)) return OT_OK;
  if (c->state->tokenizer_given) {
    add_change(c, ot_arena_format(c->changes.arena, "%s is another tokenizer", path));
    return OT_OK;
  }
  ot_fail(OT_ENVIRONMENT, "%s changed since %s: it has hash %s, then %s (data.tokenizer)", path,
          c->state->path, hash, recorded);
  return ot_fail_hint(OT_ENVIRONMENT,
                      "restore it (the checkpoint has a copy), or give --set data.tokenizer=... to "
                      "go on with another one on purpose");
}

static ot_status compare(comparison *c, const char **note) {
  const ot_run *const run = ot_data_loader_run(c->loader);
  int64_t order = 0, seed = 0, length = 0;
  OT_TRY(ot_json_member_count(c->state->path, c->root, "order", &order));
  OT_TRY(ot_json_member_count(c->state->path, c->root, "seed", &seed));
  OT_TRY(ot_json_member_count(c->state->path, c->root, "sequence_length", &length));
  c->other_order =
      order != OT_DATA_ORDER || seed != run->seed || length != run->data.sequence_length;
  c->drawn = ot_arena_array(c->changes.arena, count_sources(c, true), sizeof *c->drawn);
  ot_data_loader_count_drawn(c->loader, c->state->next_sample, c->drawn);
  OT_TRY(compare_tokenizer(c));
  for (int train = 1; train >= 0; train--) {
    for (int64_t i = 0; i < count_sources(c, train); i++) OT_TRY(compare_source(c, train, i));
  }
  if (c->num_changes == 0) return OT_OK;
  const int64_t more = c->num_changes - LISTED;
  *note = ot_arena_format(
      c->changes.arena,
      "note: the data are not read as in %s: %s%s; data.mixtures changes the weights of sets from "
      "a step on, and continues each set where it is",
      c->state->path, ot_text_builder_text(&c->changes),
      more > 0 ? ot_arena_format(c->changes.arena, ", and %lld more sets", (long long)more) : "");
  return OT_OK;
}

ot_status ot_data_record_check(const ot_data_loader *loader, const ot_data_record_state *state,
                               ot_arena *arena, const char **note) {
  *note = NULL;
  if (!state->record) {
    *note = ot_arena_format(arena,
                            "note: %s does not record the content of its token files: they are "
                            "not compared with those of now%s",
                            state->path,
                            ot_data_loader_num_sources(loader) > 1
                                ? "; sets are mixed in another order than by the version that "
                                  "saved it, which may read a few windows again or leave them out"
                                : "");
    return OT_OK;
  }
  json_t *root = NULL;
  OT_TRY(ot_json_parse(state->path, state->record, ot_text_length(state->record), &root));
  comparison c = {.loader = loader, .state = state, .root = root, .changes = {.arena = arena}};
  const ot_status status = compare(&c, note);
  json_decref(root);
  return status;
}
