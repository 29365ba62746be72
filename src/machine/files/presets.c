// SPDX-License-Identifier: Apache-2.0
// Presets are files in folders.
#include <dirent.h>
#include <string.h>

#include "base/sort.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "files/config_file.h"
#include "files/disk.h"

static const struct {
  const char *folder;
  const char *ending;
} kinds[] = {
    [OT_PRESET_MODEL] = {"models", ".json"},
    [OT_PRESET_CLUSTER] = {"clusters", ".yaml"},
    [OT_PRESET_ENGINE] = {"engines", ".yaml"},
};

// A preset's name is one component of a path.
static bool is_name(const char *name) {
  return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL;
}

const char *ot_presets_find(const ot_presets *presets, ot_preset_kind kind, const char *name,
                            ot_arena *arena) {
  if (!is_name(name)) return NULL;
  for (int i = 0; i < presets->num_directories; i++) {
    const char *const path = ot_arena_format(arena, "%s/%s/%s%s", presets->directories[i],
                                             kinds[kind].folder, name, kinds[kind].ending);
    if (ot_disk_is_file(path)) return path;
  }
  return NULL;
}

typedef struct name_list {
  const char **names;
  int64_t count, capacity;
} name_list;

static void add_name(name_list *list, const char *file, const char *ending, ot_arena *arena) {
  if (file[0] == '.' || !ot_text_ends_with(file, ending)) return;
  const char *const name =
      ot_arena_text(arena, file, ot_text_length(file) - ot_text_length(ending));
  for (int64_t i = 0; i < list->count; i++) {
    if (ot_text_equal(list->names[i], name)) return;
  }
  list->names = ot_arena_grow(arena, list->names, list->count, &list->capacity, sizeof(char *));
  list->names[list->count++] = name;
}

// Sorts by family and size: digits compare as numbers, so that 8b precedes 70b.
static int compare_names(const void *a, const void *b, const void *context) {
  (void)context;
  const char *const x = *(const char *const *)a;
  const char *const y = *(const char *const *)b;
  const int natural = strverscmp(x, y);
  return natural != 0 ? natural : strcmp(x, y);
}

ot_preset_names ot_presets_list(const ot_presets *presets, ot_preset_kind kind, ot_arena *arena) {
  name_list list = {0};
  for (int i = 0; i < presets->num_directories; i++) {
    DIR *const directory =
        opendir(ot_arena_format(arena, "%s/%s", presets->directories[i], kinds[kind].folder));
    if (!directory) continue;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
      add_name(&list, entry->d_name, kinds[kind].ending, arena);
    }
    closedir(directory);
  }
  const ot_ordering by_name = {.compare = compare_names};
  if (list.count > 1) ot_sort(list.names, list.count, sizeof(char *), by_name, arena);
  return (ot_preset_names){.name = list.names, .count = list.count};
}

// The leading letters of a name: "llama" of "llama2-7b".
static const char *family_of(const char *name, ot_arena *arena) {
  return ot_arena_text(arena, name, (int64_t)strcspn(name, "0123456789-."));
}

bool ot_presets_suggest(const ot_presets *presets, ot_preset_kind kind, const char *name,
                        ot_arena *arena) {
  const ot_preset_names all = ot_presets_list(presets, kind, arena);
  const char *nearest = NULL;
  int best = 4;
  for (int64_t i = 0; i < all.count; i++) ot_text_nearest(name, all.name[i], &nearest, &best);
  if (nearest) {
    ot_fail_hint(OT_USAGE, "did you mean the preset %s?", nearest);
    return true;
  }
  best = 2;
  for (int64_t i = 0; i < all.count; i++)
    ot_text_nearest(name, family_of(all.name[i], arena), &nearest, &best);
  if (!nearest) return false;
  ot_text_builder names = {.arena = arena};
  for (int64_t i = 0; i < all.count; i++) {
    if (!ot_text_equal(family_of(all.name[i], arena), nearest)) continue;
    ot_text_appendf(&names, "%s%s", names.length > 0 ? ", " : "", all.name[i]);
  }
  ot_fail_hint(OT_USAGE, "did you mean one of %s?", ot_text_builder_text(&names));
  return true;
}
