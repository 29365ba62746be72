// SPDX-License-Identifier: Apache-2.0
// Libraries are opened as runs open them.
#include "measure/gpu_report.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "device/device.h"
#include "host/shared_library.h"
#include "kernels/kernels.h"

typedef struct gpu_report {
  ot_arena *arena;
  ot_node *map, *warnings;
} gpu_report;

static void put(const gpu_report *r, ot_node *map, const char *key, const char *text) {
  ot_node_put(r->arena, map, key,
              text ? ot_node_text(r->arena, text) : ot_node_create(r->arena, OT_NODE_NULL));
}

static void warn(const gpu_report *r, const char *text) {
  ot_node_append(r->warnings, ot_node_text(r->arena, text));
}

// ---- libraries ----

typedef struct library {
  const char *key, *file, *symbol;
  bool fills;  // the version function takes a place for an int, else it returns a size_t
  const char *needed_for;
} library;

static const library libraries[] = {
    {"cublaslt", "libcublasLt.so.13", "cublasLtGetVersion", false, "every run on a GPU"},
    {"nccl", "libnccl.so.2", "ncclGetVersion", true, "several GPUs"},
    {"cudnn", "libcudnn.so.9", "cudnnGetVersion", false, NULL},
};

static long long version_of(const library *l, void *symbol) {
  size_t (*returns)(void);
  int (*fills)(int *);
  int version = 0;
  if (!l->fills) {
    memcpy(&returns, &symbol, sizeof returns);
    return (long long)returns();
  }
  memcpy(&fills, &symbol, sizeof fills);
  return fills(&version) == 0 ? version : 0;
}

static void put_found(const gpu_report *r, ot_node *map, const library *l, void *opened) {
  void *const symbol = dlsym(opened, l->symbol);
  Dl_info where;
  if (!symbol || dladdr(symbol, &where) == 0) {
    put(r, map, "error", ot_arena_format(r->arena, "%s has no %s", l->file, l->symbol));
    return;
  }
  char *const path = realpath(where.dli_fname, NULL);
  put(r, map, "path", path);
  ot_node_put(r->arena, map, "version", ot_node_integer(r->arena, version_of(l, symbol)));
  free(path);
}

static void report_library(const gpu_report *r, const library *l, bool needed) {
  ot_node *const map = ot_node_put(r->arena, r->map, l->key, ot_node_create(r->arena, OT_NODE_MAP));
  void *const opened = ot_cuda_library_open(l->file);
  if (opened) {
    put_found(r, map, l, opened);
    dlclose(opened);
    return;
  }
  put(r, map, "error", dlerror());
  if (!needed || !l->needed_for) return;
  warn(r, ot_arena_format(r->arena,
                          "%s is not found, which %s needs: install CUDA 13, or pip's nvidia "
                          "packages and set OT_CUDA_LIBRARIES to the folder of the library",
                          l->file, l->needed_for));
}

// ---- GPUs ----

// The first line of the driver's own version file.
static const char *driver_of(const gpu_report *r) {
  char line[512] = "";
  FILE *const file = fopen("/proc/driver/nvidia/version", "re");
  if (!file) return NULL;
  const bool read = fgets(line, sizeof line, file) != NULL;
  fclose(file);
  line[strcspn(line, "\n")] = '\0';
  return read ? ot_arena_format(r->arena, "%s", line) : NULL;
}

static void report_gpu(const gpu_report *r, int ordinal, ot_node *list) {
  ot_node *const map = ot_node_create(r->arena, OT_NODE_MAP);
  ot_device_info info;
  ot_node_append(list, map);
  if (ot_device_query(OT_BACKEND_CUDA, ordinal, &info) != OT_OK) {
    put(r, map, "error", ot_arena_format(r->arena, "%s", ot_fail_message()));
    return;
  }
  put(r, map, "name", ot_arena_format(r->arena, "%s", info.name));
  put(r, map, "capability",
      ot_arena_format(r->arena, "%d.%d", info.capability / 10, info.capability % 10));
  ot_node_put(r->arena, map, "processors", ot_node_integer(r->arena, info.processors));
  ot_node_put(r->arena, map, "total_bytes", ot_node_integer(r->arena, info.total_bytes));
  ot_node_put(r->arena, map, "free_bytes", ot_node_integer(r->arena, info.free_bytes));
  put(r, map, "driver_supports", ot_arena_format(r->arena, "%s", info.driver));
  put(r, map, "runtime", ot_arena_format(r->arena, "%s", info.runtime));
  if (!ot_kernel_fits_device(OT_BACKEND_CUDA)) {
    warn(r, ot_arena_format(r->arena, "this build has no kernels for GPU %d (%s)", ordinal,
                            info.name));
  }
}

// Says why there is none.
static void explain_none(const gpu_report *r) {
  ot_device_info info;
  if (ot_device_query(OT_BACKEND_CUDA, 0, &info) == OT_OK) return;
  put(r, r->map, "error", ot_arena_format(r->arena, "%s", ot_fail_message()));
  if (driver_of(r)) warn(r, ot_arena_format(r->arena, "%s", ot_fail_message()));
}

ot_node *ot_gpu_report(ot_arena *arena, ot_node *warnings) {
  const gpu_report r = {
      .arena = arena, .map = ot_node_create(arena, OT_NODE_MAP), .warnings = warnings};
  const bool built = ot_kernels_cuda != NULL;
  const int count = ot_device_count(OT_BACKEND_CUDA);
  put(&r, r.map, "cuda", built ? "yes" : "not in this build (cmake -DOT_CUDA=ON)");
  put(&r, r.map, "driver", driver_of(&r));
  if (!built) return r.map;
  ot_node *const list = ot_node_put(arena, r.map, "devices", ot_node_create(arena, OT_NODE_LIST));
  for (int i = 0; i < count; i++) report_gpu(&r, i, list);
  if (count == 0) explain_none(&r);
  for (int i = 0; i < OT_COUNT(libraries); i++) {
    report_library(&r, &libraries[i], i == 0 ? count > 0 : count > 1);
  }
  return r.map;
}
