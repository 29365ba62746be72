// SPDX-License-Identifier: Apache-2.0
// The content is compared, not only the name: another host may have an older file there, and a
// network file system may show one that is no longer there.
#include "state/folder_access.h"

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

ot_folder_access ot_folder_access_all(const ot_world *world) {
  return (ot_folder_access){.first_without = -1,
                            .num_with = ot_world_size(world),
                            .number_with = ot_world_rank(world),
                            .server = -1};
}

// Rank i without access is served by rank i with it, in turn.
static void assign(const ot_world *world, const int64_t *seen, ot_arena *arena,
                   ot_folder_access *access) {
  const int size = ot_world_size(world), rank = ot_world_rank(world);
  int *const with = ot_arena_array(arena, size, sizeof *with);
  int *const clients = ot_arena_array(arena, size, sizeof *clients);
  *access =
      (ot_folder_access){.first_without = -1, .number_with = -1, .server = -1, .clients = clients};
  for (int i = 0; i < size; i++) {
    if (!seen[i]) continue;
    if (i == rank) access->number_with = access->num_with;
    with[access->num_with++] = i;
  }
  for (int i = 0; i < size; i++) {
    if (seen[i]) continue;
    if (access->num_without == 0) access->first_without = i;
    const int server = with[access->num_without++ % access->num_with];
    if (i == rank) access->server = server;
    if (server == rank) clients[access->num_clients++] = i;
  }
}

ot_status ot_folder_access_find(ot_world *world, const char *path, ot_arena *arena,
                                ot_folder_access *access) {
  char text[OT_WORLD_TEXT] = "";
  *access = ot_folder_access_all(world);
  if (access->num_with == 1) return OT_OK;
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
  int64_t *const seen = ot_arena_array(arena, access->num_with, sizeof *seen);
  OT_TRY(ot_world_allgather(world, leads || sees(space + 1, wanted), seen));
  assign(world, seen, arena, access);
  return OT_OK;
}

static ot_status make_probe(const char *path) {
  unsigned char number[PROBE_BYTES];
  if (getrandom(number, sizeof number, 0) != (ssize_t)sizeof number)
    return ot_disk_fail("draw a random number for", path, errno);
  return ot_disk_write(path, number, sizeof number);
}

ot_status ot_folder_access_probe(ot_world *world, const char *directory, ot_arena *arena,
                                 ot_folder_access *access) {
  const char *path = NULL;
  *access = ot_folder_access_all(world);
  if (access->num_with == 1) return OT_OK;
  ot_status status = OT_OK;
  if (ot_world_is_leader(world)) {
    path = ot_disk_join(arena, directory, probe_name);
    status = make_probe(path);
  }
  OT_TRY(ot_world_agree(world, status));
  status = ot_folder_access_find(world, path, arena, access);
  if (path) (void)ot_disk_remove(path);
  return status;
}
