// SPDX-License-Identifier: Apache-2.0
// The limits that all readers keep, for one input. Memory is counted by the hooks of sanitizers,
// which see every allocation and nothing of their own.
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "describe/cluster_keys.h"
#include "describe/run_keys.h"
#include "files/disk.h"
#include "fuzz/fuzz.h"
#include "host/heap.h"
#include "software/engine_keys.h"

enum { PATH_BYTES = 256, FILES_MAX = 8 };

typedef void (*malloc_hook)(const volatile void *memory, size_t bytes);
typedef void (*free_hook)(const volatile void *memory);
int __sanitizer_install_malloc_and_free_hooks(malloc_hook on_malloc, free_hook on_free)
    __attribute__((weak));
size_t __sanitizer_get_allocated_size(const volatile void *memory) __attribute__((weak));

static _Atomic int64_t bytes_used, bytes_peak;
static char directory[PATH_BYTES];

void fuzz_require(int condition, const char *rule) {
  if (condition) return;
  fprintf(stderr, "fuzz: this does not hold: %s\n", rule);
  abort();
}

static void panic(const char *file, int line, const char *text) {
  fprintf(stderr, "%s:%d: bug: %s\n", file, line, text);
  abort();
}

// ---- memory ----

static void count_malloc(const volatile void *memory, size_t bytes) {
  (void)memory;
  const int64_t used = atomic_fetch_add(&bytes_used, (int64_t)bytes) + (int64_t)bytes;
  if (used > bytes_peak) bytes_peak = used;
}

static void count_free(const volatile void *memory) {
  if (memory) atomic_fetch_sub(&bytes_used, (int64_t)__sanitizer_get_allocated_size(memory));
}

static void count_memory(void) {
  static bool counted;
  if (!counted && __sanitizer_install_malloc_and_free_hooks)
    __sanitizer_install_malloc_and_free_hooks(count_malloc, count_free);
  counted = true;
}

// ---- files ----

static void remove_directory(void) { (void)ot_disk_remove(directory); }

const char *fuzz_directory(void) {
  if (directory[0] != '\0') return directory;
  const char *const parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  ot_text_format(directory, sizeof directory, "%s/orthant-fuzz-XXXXXX", parent);
  fuzz_require(mkdtemp(directory) != NULL, "a directory can be made");
  atexit(remove_directory);
  return directory;
}

static const char *path_of(const char *name) {
  static char paths[FILES_MAX][PATH_BYTES];
  char path[PATH_BYTES];
  ot_text_format(path, sizeof path, "%s/%s", fuzz_directory(), name);
  for (int i = 0; i < FILES_MAX; i++) {
    if (paths[i][0] == '\0') memcpy(paths[i], path, sizeof path);
    if (strcmp(paths[i], path) == 0) return paths[i];
  }
  fuzz_require(0, "a target has at most eight files");
  return NULL;
}

const char *fuzz_file(const char *name, const void *data, size_t size) {
  const char *const path = path_of(name);
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  fuzz_require(file >= 0 && write(file, data, size) == (ssize_t)size, "a file can be written");
  close(file);
  return path;
}

void fuzz_remove(const char *name) { unlink(path_of(name)); }

// ---- trees ----

// A tree that a table accepts, printed and read again, is the same.
static ot_status read_model(ot_node *tree, ot_arena *arena) {
  ot_model model, again;
  OT_TRY(ot_model_read(tree, arena, &model));
  const ot_status status = ot_model_read(ot_model_write(&model, arena), arena, &again);
  fuzz_require(status == OT_OK && ot_model_hash(&model) == ot_model_hash(&again),
               "a model that is accepted is the same when it is written and read again");
  return OT_OK;
}

ot_status fuzz_tables(ot_node *tree, ot_arena *arena) {
  ot_run run;
  ot_cluster cluster;
  ot_engine engine;
  ot_node *settings;
  if (tree->kind != OT_NODE_MAP) return ot_fail(OT_USAGE, "not a map");
  const bool accepted = ot_cluster_read(tree, arena, &cluster) == OT_OK ||
                        ot_engine_read(tree, arena, &engine) == OT_OK ||
                        read_model(tree, arena) == OT_OK;
  return accepted ? OT_OK : ot_run_read(tree, arena, &run, &settings);
}

// ---- one input ----

ot_status fuzz_input(const uint8_t *data, size_t size) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_panic_hook_set(panic);
  count_memory();
  const int64_t before = bytes_used;
  bytes_peak = before;
  ot_fail(OT_OK, "%s", "");
  const ot_status status = fuzz_one(data, size, &arena);
  const int64_t peak = bytes_peak - before;
  ot_heap_release(&heap);
  if (status != OT_OK) {
    fuzz_require(status == OT_USAGE || status == OT_ENVIRONMENT, "a refusal has its exit code");
    fuzz_require(ot_fail_message()[0] != '\0', "a refusal has a message");
    for (const char *c = ot_fail_message(); *c != '\0'; c++)
      fuzz_require((unsigned char)*c >= ' ' || *c == '\n' || *c == '\t', "messages are printable");
  }
  if (peak > FUZZ_MEMORY_FACTOR * (int64_t)size + FUZZ_MEMORY_BYTES) {
    fprintf(stderr, "fuzz: %lld bytes for an input of %zu\n", (long long)peak, size);
    fuzz_require(0, "memory is at most 4 x input + 64 MiB");
  }
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  (void)fuzz_input(data, size);
  return 0;
}
