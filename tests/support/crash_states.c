// SPDX-License-Identifier: Apache-2.0
// A file is a number (an inode), a name is an entry (directory, text, inode). The record is
// translated once, with all calls in effect; a state replays those calls that are kept.
#include "support/crash_states.h"

#include <limits.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "files/disk.h"

enum { NAME_BYTES = 128, BLOCK = 4096, ROOT = 0, NONE = -1 };

typedef struct call {
  const faults_event *event;
  int index;   // of the event in the record
  int inode;   // the file that is created, written or synced; NONE for a removal
  int parent;  // directory of `name`; NONE if the call changes no name
  char name[NAME_BYTES];
  int to_parent;  // FAULTS_RENAME
  char to[NAME_BYTES];
  int durable;  // number of calls after which a sync covers this one, at least; INT_MAX: never
} call;

typedef struct entry {
  int parent, inode;
  char name[NAME_BYTES];
} entry;

// The names of one moment.
typedef struct name_table {
  int count, capacity;
  entry *entry;
} name_table;

struct crash_disk {
  int num_calls, num_inodes;
  call *call;  // [num_calls]
};

static entry *find(const name_table *names, int parent, const char *name) {
  for (int i = 0; i < names->count; i++) {
    entry *const e = &names->entry[i];
    if (e->parent == parent && strcmp(e->name, name) == 0) return e;
  }
  return NULL;
}

static void set_name(name_table *names, int parent, const char *name, int inode) {
  entry *e = find(names, parent, name);
  if (e == NULL) {
    if (names->count == names->capacity) {
      names->capacity = names->capacity == 0 ? 64 : 2 * names->capacity;
      names->entry = realloc(names->entry, (size_t)names->capacity * sizeof *names->entry);
    }
    e = &names->entry[names->count++];
    e->parent = parent;
    snprintf(e->name, sizeof e->name, "%s", name);
  }
  e->inode = inode;
}

// The inode that had the name, NONE if there was none.
static int remove_name(name_table *names, int parent, const char *name) {
  entry *const e = find(names, parent, name);
  if (e == NULL) return NONE;
  const int inode = e->inode;
  *e = names->entry[--names->count];
  return inode;
}

// ---- translation of the record ----

// The directory and last part of `path`, which is relative to the root and not empty.
static int parent_of(const name_table *names, const char *path, char name[NAME_BYTES]) {
  int parent = ROOT;
  for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
    snprintf(name, NAME_BYTES, "%.*s", (int)(slash - path), path);
    const entry *const e = find(names, parent, name);
    if (e == NULL) fail_msg("a call in an unknown directory: %s", path);
    parent = e->inode;
  }
  snprintf(name, NAME_BYTES, "%s", path);
  return parent;
}

// `path` beneath `root`, "" for the root itself; null: it is elsewhere.
static const char *beneath(const char *root, const char *path) {
  const size_t length = strlen(root);
  if (strncmp(path, root, length) != 0) return NULL;
  if (path[length] == '\0') return path + length;
  return path[length] == '/' ? path + length + 1 : NULL;
}

static int inode_of(const name_table *names, const char *path) {
  if (*path == '\0') return ROOT;
  char name[NAME_BYTES];
  const int parent = parent_of(names, path, name);
  const entry *const e = find(names, parent, name);
  if (e == NULL) fail_msg("a call on an unknown file: %s", path);
  return e->inode;
}

static bool changes_name(faults_kind kind) {
  return kind == FAULTS_CREATE || kind == FAULTS_MAKE || kind == FAULTS_RENAME ||
         kind == FAULTS_REMOVE;
}

static void sync_calls(crash_disk *disk, const call *sync) {
  for (int i = 0; i < disk->num_calls; i++) {
    call *const c = &disk->call[i];
    if (c->index >= sync->event->covered || c->durable != INT_MAX) continue;
    const int of = changes_name(c->event->kind) ? c->parent : c->inode;
    if (of == sync->inode && c->event->kind != FAULTS_SYNC) c->durable = disk->num_calls + 1;
  }
}

static void rename_entry(name_table *names, const call *c) {
  set_name(names, c->to_parent, c->to, remove_name(names, c->parent, c->name));
}

static void add_call(crash_disk *disk, name_table *names, call c, const char *path,
                     const char *to) {
  if (changes_name(c.event->kind)) {
    c.parent = parent_of(names, path, c.name);
  } else {
    c.inode = inode_of(names, path);
  }
  if (c.event->kind == FAULTS_CREATE || c.event->kind == FAULTS_MAKE) {
    c.inode = ++disk->num_inodes;
    set_name(names, c.parent, c.name, c.inode);
  }
  if (c.event->kind == FAULTS_REMOVE) remove_name(names, c.parent, c.name);
  if (c.event->kind == FAULTS_RENAME) {
    c.to_parent = parent_of(names, to, c.to);
    if (c.to_parent != c.parent || (c.event->flags & RENAME_EXCHANGE) != 0)
      fail_msg("a rename to another directory, or an exchange: %s", path);
    c.inode = find(names, c.parent, c.name)->inode;
    rename_entry(names, &c);
  }
  if (c.event->kind == FAULTS_SYNC) sync_calls(disk, &c);
  disk->call[disk->num_calls++] = c;
}

crash_disk *crash_disk_create(const char *root, const faults_event *events, int count) {
  crash_disk *const disk = calloc(1, sizeof *disk);
  disk->call = calloc((size_t)count + 1, sizeof *disk->call);
  name_table names = {0};
  for (int i = 0; i < count; i++) {
    const char *const path = beneath(root, events[i].path);
    if (path == NULL || strstr(path, " (deleted)") != NULL) continue;
    const char *const to = events[i].kind == FAULTS_RENAME ? beneath(root, events[i].to) : "";
    if (to == NULL) fail_msg("a rename out of the directory: %s", events[i].path);
    const call c = {
        .event = &events[i], .index = i, .inode = NONE, .parent = NONE, .durable = INT_MAX};
    add_call(disk, &names, c, path, to);
  }
  free(names.entry);
  return disk;
}

void crash_disk_destroy(crash_disk *disk) {
  free(disk->call);
  free(disk);
}

int crash_disk_calls(const crash_disk *disk) { return disk->num_calls; }

int crash_disk_calls_among(const crash_disk *disk, int events) {
  int calls = 0;
  while (calls < disk->num_calls && disk->call[calls].index < events) calls++;
  return calls;
}

// ---- states ----

typedef struct file_bytes {
  long bytes;
  char *data;
} file_bytes;

static uint64_t draw(uint64_t *seed) {  // SplitMix64
  uint64_t z = *seed += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static bool is_kept(crash_loss loss, bool is_name, uint64_t *seed) {
  if (loss == CRASH_LOSES_SOME) return draw(seed) % 2 == 0;
  return loss == (is_name ? CRASH_LOSES_DATA : CRASH_LOSES_NAMES);
}

static void resize(file_bytes *file, long bytes) {
  file->data = realloc(file->data, (size_t)bytes + 1);
  if (bytes > file->bytes) memset(file->data + file->bytes, 0, (size_t)(bytes - file->bytes));
  file->bytes = bytes;
}

static void put_block(file_bytes *file, const faults_event *event, long from, long bytes) {
  const long end = event->offset + from + bytes;
  if (end > file->bytes) resize(file, end);
  memcpy(file->data + event->offset + from, (const char *)event->data + from, (size_t)bytes);
}

static void put(file_bytes *file, const call *c, bool durable, crash_loss loss, uint64_t *seed) {
  const faults_event *const event = c->event;
  for (long from = 0, bytes; event->kind == FAULTS_WRITE && from < event->bytes; from += bytes) {
    bytes = BLOCK - (event->offset + from) % BLOCK;
    if (bytes > event->bytes - from) bytes = event->bytes - from;
    if (durable || is_kept(loss, false, seed)) put_block(file, event, from, bytes);
  }
  if (event->kind == FAULTS_WRITE || (!durable && !is_kept(loss, false, seed))) return;
  if (event->kind == FAULTS_CUT) resize(file, event->bytes);
  const long end = event->offset + event->bytes;
  if (event->kind == FAULTS_EXTEND && end > file->bytes) resize(file, end);
}

static void change_name(name_table *names, const call *c) {
  if (c->event->kind == FAULTS_REMOVE) {
    remove_name(names, c->parent, c->name);
  } else if (c->event->kind == FAULTS_RENAME) {
    remove_name(names, c->parent, c->name);
    set_name(names, c->to_parent, c->to, c->inode);
  } else {
    set_name(names, c->parent, c->name, c->inode);
  }
}

static bool is_directory(const crash_disk *disk, int inode) {
  for (int i = 0; i < disk->num_calls; i++)
    if (disk->call[i].event->kind == FAULTS_MAKE && disk->call[i].inode == inode) return true;
  return false;
}

static void write_directory(const crash_disk *disk, const name_table *names,
                            const file_bytes *contents, int directory, const char *to) {
  assert_int_equal(ot_disk_create_directory(to), OT_OK);
  for (int i = 0; i < names->count; i++) {
    const entry *const e = &names->entry[i];
    if (e->parent != directory) continue;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", to, e->name);
    if (is_directory(disk, e->inode)) {
      write_directory(disk, names, contents, e->inode, path);
      continue;
    }
    FILE *const file = fopen(path, "w");
    if (file == NULL) fail_msg("cannot write %s", path);
    const size_t bytes = (size_t)contents[e->inode].bytes;
    if (bytes > 0) assert_int_equal(fwrite(contents[e->inode].data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
  }
}

void crash_disk_write(const crash_disk *disk, int calls, crash_loss loss, uint64_t seed,
                      const char *to) {
  name_table names = {0};
  file_bytes *const contents = calloc((size_t)disk->num_inodes + 1, sizeof *contents);
  for (int i = 0; i < calls; i++) {
    const call *const c = &disk->call[i];
    const bool durable = c->durable <= calls;
    if (c->event->kind == FAULTS_SYNC) continue;
    if (!changes_name(c->event->kind)) {
      put(&contents[c->inode], c, durable, loss, &seed);
    } else if (durable || is_kept(loss, true, &seed)) {
      change_name(&names, c);
    }
  }
  write_directory(disk, &names, contents, ROOT, to);
  for (int i = 0; i <= disk->num_inodes; i++) free(contents[i].data);
  free(contents);
  free(names.entry);
}
