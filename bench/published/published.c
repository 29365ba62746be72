// SPDX-License-Identifier: Apache-2.0
// Published, measured runs against the planner: prices every row of files of published runs and
// says how far it is off.
//   bench/published [--json] [--rows] [--worst N] [--constants FILE] [--clusters DIR]
//   [FILE.json...]
// Without a file: the small set beside the tests. docs/published.md: the form of the files, what is
// fitted on what, and the results.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/heap.h"
#include "published_report.h"
#include "train/tree_file.h"

enum { MAX_FILES = 256 };

typedef struct settings {
  bool json;
  ot_published_view view;
  const char *constants, *clusters;
  int num_files;
  const char *files[MAX_FILES];
} settings;

// Takes the word after argv[*i], the value of an option.
static ot_status value_of(int argc, char **argv, int *i, const char **out) {
  OT_CHECK(*i + 1 < argc, OT_USAGE, "published: %s needs a value", argv[*i]);
  *out = argv[++*i];
  return OT_OK;
}

static ot_status read_option(int argc, char **argv, int *i, settings *s) {
  const char *const word = argv[*i];
  const char *text = NULL;
  if (strcmp(word, "--json") == 0) {
    s->json = true;
  } else if (strcmp(word, "--rows") == 0) {
    s->view.rows = true;
  } else if (strcmp(word, "--worst") == 0) {
    OT_TRY(value_of(argc, argv, i, &text));
    s->view.worst = atoi(text);
  } else if (strcmp(word, "--constants") == 0) {
    OT_TRY(value_of(argc, argv, i, &s->constants));
  } else if (strcmp(word, "--clusters") == 0) {
    OT_TRY(value_of(argc, argv, i, &s->clusters));
  } else {
    return ot_fail(OT_USAGE,
                   "published: unknown option %s (there are --json, --rows, --worst N, "
                   "--constants FILE, --clusters DIR)",
                   word);
  }
  return OT_OK;
}

static ot_status read_settings(int argc, char **argv, settings *s) {
  *s = (settings){.clusters = OT_SOURCE_DIR "/presets/clusters"};
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] == '-') {
      OT_TRY(read_option(argc, argv, &i, s));
      continue;
    }
    OT_CHECK(s->num_files < MAX_FILES, OT_USAGE, "published: more than %d files", MAX_FILES);
    s->files[s->num_files++] = argv[i];
  }
  if (s->num_files == 0)
    s->files[s->num_files++] = OT_SOURCE_DIR "/tests/fixtures/published_small.json";
  return OT_OK;
}

static ot_status run(const settings *s, ot_arena *arena) {
  ot_published_rows rows = {0};
  for (int i = 0; i < s->num_files; i++) {
    OT_TRY(ot_published_rows_read(s->files[i], arena, &rows));
  }
  ot_published_setup setup = {.clusters = s->clusters, .arena = arena};
  ot_node *constants = NULL;
  if (s->constants) OT_TRY(ot_tree_load(s->constants, arena, &constants));
  setup.constants = constants;
  ot_published_prices prices;
  OT_TRY(ot_published_price_all(&setup, &rows, arena, &prices));
  if (s->json) {
    puts(ot_published_json(&prices, arena));
    return OT_OK;
  }
  ot_text_builder text = {.arena = arena};
  ot_published_print(&prices, &s->view, &text);
  fputs(ot_text_builder_text(&text), stdout);
  return OT_OK;
}

int main(int argc, char **argv) {
  settings s;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status = read_settings(argc, argv, &s);
  if (status == OT_OK) status = run(&s, &arena);
  if (status != OT_OK) fprintf(stderr, "error: %s\n", ot_fail_message());
  ot_heap_release(&heap);
  return (int)status;
}
