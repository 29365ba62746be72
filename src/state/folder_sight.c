// SPDX-License-Identifier: Apache-2.0
// The content is compared, not only the name: another host may have an older file there, and a
// network file system may show one that is no longer there.
#include "state/folder_sight.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/text.h"
#include "checkpoint/manifest.h"
#include "files/content_hash.h"
#include "files/disk.h"
#include "host/heap.h"

static const char probe_name[] = ".sight";
static const char nothing[] = "-";
enum { PROBE_BYTES = 16 };

// The hash of the file at `path`; "-": it cannot be read.
static void hash_file(const char *path, char hex[OT_CONTENT_HASH_BYTES]) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  char *text = NULL;
  int64_t bytes = 0;
  ot_text_format(hex, OT_CONTENT_HASH_BYTES, "%s", nothing);
  if (ot_disk_read_own(&arena, path, OT_MANIFEST_BYTES_MAX, &text, &bytes) == OT_OK)
    ot_content_hash_memory(text, bytes, hex);
  ot_heap_release(&heap);
}

static bool sees(const char *path, const char *wanted) {
  char found[OT_CONTENT_HASH_BYTES];
  int tries = 0;
  do {
    hash_file(path, found);
    if (ot_text_equal(found, wanted)) return true;
  } while (ot_disk_wait_late(path, &tries));
  return false;
}

ot_folder_sight ot_folder_sight_all(const ot_world *world) {
  return (ot_folder_sight){.first_blind = -1,
                           .num_seers = ot_world_size(world),
                           .seer = ot_world_rank(world),
                           .server = -1};
}

// Rank i of the blind is served by seer i, in turn.
static void assign(const ot_world *world, const int64_t *seen, ot_arena *arena,
                   ot_folder_sight *sight) {
  const int size = ot_world_size(world), rank = ot_world_rank(world);
  int *const seers = ot_arena_array(arena, size, sizeof *seers);
  int *const wards = ot_arena_array(arena, size, sizeof *wards);
  *sight = (ot_folder_sight){.first_blind = -1, .seer = -1, .server = -1, .wards = wards};
  for (int i = 0; i < size; i++) {
    if (!seen[i]) continue;
    if (i == rank) sight->seer = sight->num_seers;
    seers[sight->num_seers++] = i;
  }
  for (int i = 0; i < size; i++) {
    if (seen[i]) continue;
    if (sight->num_blind == 0) sight->first_blind = i;
    const int server = seers[sight->num_blind++ % sight->num_seers];
    if (i == rank) sight->server = server;
    if (server == rank) wards[sight->num_wards++] = i;
  }
}

ot_status ot_folder_sight_find(ot_world *world, const char *path, ot_arena *arena,
                               ot_folder_sight *sight) {
  char text[OT_WORLD_TEXT] = "";
  *sight = ot_folder_sight_all(world);
  if (sight->num_seers == 1) return OT_OK;
  const bool leads = ot_world_is_leader(world);
  char wanted[OT_CONTENT_HASH_BYTES] = "";
  if (leads) {
    hash_file(path, wanted);
    ot_text_format(text, sizeof text, "%s %s", wanted, path);
  }
  OT_TRY(ot_world_broadcast(world, text));
  const char *const space = strchr(text, ' ');
  if (!space || text[0] == nothing[0]) return OT_OK;
  ot_text_format(wanted, sizeof wanted, "%.*s", (int)(space - text), text);
  int64_t *const seen = ot_arena_array(arena, sight->num_seers, sizeof *seen);
  OT_TRY(ot_world_allgather(world, leads || sees(space + 1, wanted), seen));
  assign(world, seen, arena, sight);
  return OT_OK;
}

static ot_status make_probe(const char *path) {
  unsigned char number[PROBE_BYTES];
  if (getrandom(number, sizeof number, 0) != (ssize_t)sizeof number)
    return ot_disk_fail("draw a random number for", path, errno);
  return ot_disk_write(path, number, sizeof number);
}

ot_status ot_folder_sight_probe(ot_world *world, const char *directory, ot_arena *arena,
                                ot_folder_sight *sight) {
  const char *path = NULL;
  *sight = ot_folder_sight_all(world);
  if (sight->num_seers == 1) return OT_OK;
  ot_status status = OT_OK;
  if (ot_world_is_leader(world)) {
    path = ot_disk_join(arena, directory, probe_name);
    status = make_probe(path);
  }
  OT_TRY(ot_world_agree(world, status));
  status = ot_folder_sight_find(world, path, arena, sight);
  if (path) (void)ot_disk_remove(path);
  return status;
}
