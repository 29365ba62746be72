// SPDX-License-Identifier: Apache-2.0
// Directories are compared by the names of their files first, then file by file, in one order on
// all ranks.
#include "state/same_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/heap.h"
#include "runtime/same_file.h"

ot_status ot_same_data_check(ot_world *world, const ot_data_loader *loader) {
  for (int64_t i = 0; i < ot_data_loader_num_files(loader); i++) {
    const ot_data_file file = ot_data_loader_file(loader, i);
    OT_TRY(ot_world_check_file(world, file.path, file.hash));
  }
  return OT_OK;
}

// ---- weights ----

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_weights(const char *name) {
  if (name[0] == '.') return false;
  return ot_text_ends_with(name, ".safetensors") || ot_text_equal(name, "config.json") ||
         ot_text_ends_with(name, ".index.json");
}

// The paths of the files of `directory` that determine its weights, in the order of names.
static ot_status list_weights(const char *directory, ot_arena *arena, ot_disk_names *list) {
  ot_disk_names all;
  OT_TRY(ot_disk_list(arena, directory, &all));
  list->name = ot_arena_array(arena, all.count, sizeof *list->name);
  for (int64_t i = 0; i < all.count; i++) {
    if (is_weights(all.name[i]))
      list->name[list->count++] = ot_disk_join(arena, directory, all.name[i]);
  }
  if (list->count > 0) qsort(list->name, (size_t)list->count, sizeof *list->name, compare_names);
  return OT_OK;
}

static ot_status list_files(const char *path, ot_arena *arena, ot_disk_names *list) {
  char *const manifest = ot_disk_join(arena, path, "manifest.json");
  const bool directory = ot_disk_is_directory(path);
  if (directory && !ot_disk_is_file(manifest)) return list_weights(path, arena, list);
  list->name = ot_arena_array(arena, 1, sizeof *list->name);
  list->name[list->count++] =
      directory ? manifest : ot_arena_text(arena, path, ot_text_length(path));
  return OT_OK;
}

static ot_status check_weights(ot_world *world, const char *path, ot_arena *arena) {
  ot_disk_names list = {0};
  uint64_t hash = OT_HASH_START;
  OT_TRY(ot_world_agree(world, list_files(path, arena, &list)));
  for (int64_t i = 0; i < list.count; i++) hash = ot_hash_text(hash, list.name[i]);
  OT_TRY(ot_world_check_file(world, path, hash));
  for (int64_t i = 0; i < list.count; i++) OT_TRY(ot_same_file_check(world, list.name[i], true));
  return OT_OK;
}

ot_status ot_same_weights_check(ot_world *world, const char *path) {
  if (ot_world_size(world) == 1) return OT_OK;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = check_weights(world, path, &arena);
  ot_heap_release(&heap);
  return status;
}
