// SPDX-License-Identifier: Apache-2.0
// Reads libraries, /proc, hwloc and the limits. The BLAS is queried through dlsym, because the
// implementation of the CBLAS interface is chosen when the program starts.
#include "measure/machine_report.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <hwloc.h>
#include <jansson.h>
#include <libfyaml.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/status.h"
#include "base/text.h"
#include "host/available.h"
#include "measure/gpu_report.h"
#include "measure/left_segments.h"

enum { LINE_BYTES = 8192 };

static const int64_t gibibyte = (int64_t)1 << 30;

typedef struct report {
  ot_arena *arena;
  ot_node *root;
  ot_node *warnings;
} report;

static ot_node *section(report *r, const char *name) {
  return ot_node_put(r->arena, r->root, name, ot_node_create(r->arena, OT_NODE_MAP));
}

static void put_text(report *r, ot_node *map, const char *key, const char *text) {
  ot_node_put(r->arena, map, key,
              text ? ot_node_text(r->arena, text) : ot_node_create(r->arena, OT_NODE_NULL));
}

// A negative number stands for "unknown" or "no limit": null.
static void put_whole(report *r, ot_node *map, const char *key, int64_t value) {
  ot_node_put(
      r->arena, map, key,
      value >= 0 ? ot_node_integer(r->arena, value) : ot_node_create(r->arena, OT_NODE_NULL));
}

static void warn(report *r, const char *text) {
  ot_node_append(r->warnings, ot_node_text(r->arena, text));
}

// ---- Program and libraries ----

static void report_program(report *r) {
  ot_node *const map = section(r, "orthant");
  put_text(r, map, "version", OT_VERSION);
  put_text(r, map, "compiler", __VERSION__);
  put_text(r, map, "libc", ot_arena_format(r->arena, "glibc %s", gnu_get_libc_version()));
  struct utsname system;
  if (uname(&system) == 0) {
    put_text(r, map, "system",
             ot_arena_format(r->arena, "%s %s %s", system.sysname, system.release, system.machine));
  }
}

static void report_libraries(report *r) {
  ot_node *const map = section(r, "libraries");
  char pcre2[64] = "";
  pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
  const unsigned hwloc = hwloc_get_api_version();
  const unsigned xxhash = XXH_versionNumber();
  put_text(r, map, "jansson", jansson_version_str());
  put_text(r, map, "libfyaml", fy_library_version());
  put_text(r, map, "pcre2", pcre2);
  put_text(r, map, "utf8proc", utf8proc_version());
  put_text(r, map, "unicode", utf8proc_unicode_version());
  put_text(r, map, "xxhash",
           ot_arena_format(r->arena, "%u.%u.%u", xxhash / 10000, xxhash / 100 % 100, xxhash % 100));
  put_text(r, map, "zstd", ZSTD_versionString());
  put_text(r, map, "zlib", zlibVersion());
  put_text(r, map, "hwloc_api", ot_arena_format(r->arena, "%u.%u", hwloc >> 16, hwloc >> 8 & 255));
}

typedef char *(*text_function)(void);

// The result of a function of the loaded BLAS, or null if that BLAS lacks it. A function
// pointer does not fit an object pointer in C, but POSIX promises that dlsym's result does.
static const char *query_blas(const char *name) {
  void *const symbol = dlsym(RTLD_DEFAULT, name);
  text_function function;
  if (!symbol) return NULL;
  memcpy(&function, &symbol, sizeof function);
  return function();
}

static void report_blas(report *r) {
  ot_node *const map = section(r, "blas");
  void *const product = dlsym(RTLD_DEFAULT, "cblas_sgemm");
  Dl_info where;
  const bool found = product && dladdr(product, &where) != 0;
  char *const real = found ? realpath(where.dli_fname, NULL) : NULL;
  put_text(r, map, "library", real);
  free(real);
  put_text(r, map, "configuration", query_blas("openblas_get_config"));
  put_text(r, map, "core", query_blas("openblas_get_corename"));
}

// ---- Files of the system ----

// The first line of a small file without its end, in `line` [LINE_BYTES]; false when there is none.
static bool read_line(const char *path, char *line) {
  FILE *const file = fopen(path, "re");
  if (!file) return false;
  const bool read = fgets(line, LINE_BYTES, file) != NULL;
  fclose(file);
  if (read) line[strcspn(line, "\n")] = '\0';
  return read;
}

// The value of the first "key : value" line of a file, in `line` [LINE_BYTES]; null when absent.
static char *find_line(const char *path, const char *key, char *line) {
  FILE *const file = fopen(path, "re");
  if (!file) return NULL;
  char *value = NULL;
  const size_t length = strlen(key);
  while (!value && fgets(line, LINE_BYTES, file)) {
    if (strncmp(line, key, length) != 0 || !strchr(" \t:", line[length])) continue;
    value = strchr(line, ':');
    if (value) value += 1 + strspn(value + 1, " \t");
  }
  fclose(file);
  if (value) value[strcspn(value, "\n")] = '\0';
  return value;
}

// Bytes from a line of /proc/meminfo, which counts in KiB; -1 when absent.
static int64_t memory_line(const char *key) {
  char line[LINE_BYTES];
  const char *const value = find_line("/proc/meminfo", key, line);
  return value ? strtoll(value, NULL, 10) * 1024 : -1;
}

// ---- Processor ----

// The instruction sets that kernels care about.
static void put_flags(report *r, ot_node *map) {
  static const char *const wanted[] = {"sse4_2",      "avx",         "avx2",     "fma",
                                       "f16c",        "avx512f",     "avx512bw", "avx512vl",
                                       "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_tile",
                                       "asimd",       "sve",         "bf16"};
  char line[LINE_BYTES];
  char *flags = find_line("/proc/cpuinfo", "flags", line);
  if (!flags) flags = find_line("/proc/cpuinfo", "Features", line);
  ot_node *const list = ot_node_put(r->arena, map, "flags", ot_node_create(r->arena, OT_NODE_LIST));
  char *rest = flags;
  for (const char *word; flags && (word = strtok_r(rest, " ", &rest)) != NULL;) {
    for (int i = 0; i < OT_COUNT(wanted); i++) {
      if (strcmp(word, wanted[i]) == 0) ot_node_append(list, ot_node_text(r->arena, word));
    }
  }
}

static int64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  return cache && cache->attr ? (int64_t)cache->attr->cache.size : 0;
}

static void put_topology(report *r, ot_node *map, hwloc_topology_t topology) {
  put_whole(r, map, "packages", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
  put_whole(r, map, "numa_nodes", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE));
  put_whole(r, map, "cores", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE));
  put_whole(r, map, "hardware_threads", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU));
  put_whole(r, map, "l1_bytes", cache_bytes(topology, HWLOC_OBJ_L1CACHE));
  put_whole(r, map, "l2_bytes", cache_bytes(topology, HWLOC_OBJ_L2CACHE));
  put_whole(r, map, "l3_bytes", cache_bytes(topology, HWLOC_OBJ_L3CACHE));
}

static void report_processor(report *r) {
  ot_node *const map = section(r, "processor");
  char line[LINE_BYTES];
  put_text(r, map, "model", find_line("/proc/cpuinfo", "model name", line));
  put_flags(r, map);
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) == 0) {
    if (hwloc_topology_load(topology) == 0) put_topology(r, map, topology);
    hwloc_topology_destroy(topology);
  }
  cpu_set_t usable;
  const bool known = sched_getaffinity(0, sizeof usable, &usable) == 0;
  put_whole(r, map, "usable_threads", known ? CPU_COUNT(&usable) : -1);
  const bool limited = read_line("/sys/fs/cgroup/cpu.max", line) && strncmp(line, "max", 3) != 0;
  put_text(r, map, "group_limit", limited ? line : NULL);
  if (limited) warn(r, "the control group limits processor time: threads may be throttled");
}

// ---- Memory, limits, disk ----

static void report_memory(report *r) {
  ot_node *const map = section(r, "memory");
  char line[LINE_BYTES];
  const int64_t available = ot_host_available_bytes();
  put_whole(r, map, "total_bytes", memory_line("MemTotal"));
  put_whole(r, map, "available_bytes", available < INT64_MAX ? available : -1);
  put_whole(r, map, "swap_bytes", memory_line("SwapTotal"));
  const int64_t group = ot_host_group_limit_bytes();
  put_whole(r, map, "group_limit_bytes", group < INT64_MAX ? group : -1);
  put_whole(r, map, "huge_page_bytes", memory_line("Hugepagesize"));
  const bool huge = read_line("/sys/kernel/mm/transparent_hugepage/enabled", line);
  put_text(r, map, "transparent_huge_pages", huge ? line : NULL);
  if (available < gibibyte) warn(r, "less than 1 GiB of memory is available");
}

static void put_limit(report *r, ot_node *map, const char *key, int resource) {
  struct rlimit limit;
  const bool known = getrlimit(resource, &limit) == 0;
  if (known && limit.rlim_cur != RLIM_INFINITY) {
    put_whole(r, map, key, (int64_t)limit.rlim_cur);
  } else {
    put_text(r, map, key, known ? "unlimited" : NULL);
  }
}

static void report_limits(report *r) {
  ot_node *const map = section(r, "limits");
  put_limit(r, map, "open_files", RLIMIT_NOFILE);
  put_limit(r, map, "locked_bytes", RLIMIT_MEMLOCK);
  put_limit(r, map, "address_space_bytes", RLIMIT_AS);
  put_limit(r, map, "stack_bytes", RLIMIT_STACK);
  put_limit(r, map, "file_bytes", RLIMIT_FSIZE);
  put_limit(r, map, "processes", RLIMIT_NPROC);
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 256) {
    warn(r, "fewer than 256 open files are allowed (ulimit -n)");
  }
  char option;
  const int64_t space = ot_host_address_limit_bytes(&option);
  if (space < INT64_MAX)
    warn(r, ot_arena_format(r->arena, "address space or data are limited to %lld kB (ulimit -%c)",
                            (long long)(space / 1024), option));
}

static void report_disk(report *r) {
  ot_node *const map = section(r, "disk");
  char directory[4096];
  struct statfs info;
  put_text(r, map, "directory", getcwd(directory, sizeof directory));
  if (statfs(".", &info) != 0) return;
  const int64_t free_bytes = (int64_t)info.f_bavail * (int64_t)info.f_bsize;
  put_whole(r, map, "free_bytes", free_bytes);
  put_text(r, map, "type", ot_arena_format(r->arena, "0x%lx", (unsigned long)info.f_type));
  if (free_bytes < gibibyte) warn(r, "less than 1 GiB is free on the disk of this directory");
}

// Variables that change speed or reproducibility.
static void report_environment(report *r) {
  static const char *const names[] = {
      "OMP_WAIT_POLICY",      "GOMP_SPINCOUNT",    "KMP_BLOCKTIME",        "OMP_NUM_THREADS",
      "OMP_PROC_BIND",        "OMP_PLACES",        "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE",
      "GOTO_NUM_THREADS",     "MKL_NUM_THREADS",   "BLIS_NUM_THREADS",     "GLIBC_TUNABLES",
      "LD_PRELOAD",           "OT_CUDA_LIBRARIES", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID",
      "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
  ot_node *const map = section(r, "environment");
  for (int i = 0; i < OT_COUNT(names); i++) {
    const char *const value = getenv(names[i]);
    if (value) put_text(r, map, names[i], value);
  }
}

static void report_segments(report *r) {
  const ot_left_segments left = ot_left_segments_find();
  ot_node *const map = section(r, "shared_memory");
  put_whole(r, map, "left_segments", left.count);
  put_whole(r, map, "left_bytes", left.bytes);
  if (left.count == 0) return;
  warn(r, ot_arena_format(r->arena,
                          "%lld shared-memory segment%s of killed Open MPI jobs hold %.1f MB; when "
                          "no Open MPI job of yours runs: rm -f /dev/shm/vader_segment.* "
                          "/dev/shm/sm_segment.*",
                          (long long)left.count, left.count == 1 ? "" : "s",
                          (double)left.bytes / 1e6));
}

ot_node *ot_machine_report(ot_arena *arena) {
  report r = {.arena = arena,
              .root = ot_node_create(arena, OT_NODE_MAP),
              .warnings = ot_node_create(arena, OT_NODE_LIST)};
  report_program(&r);
  report_libraries(&r);
  report_blas(&r);
  report_processor(&r);
  ot_node_put(arena, r.root, "gpu", ot_gpu_report(arena, r.warnings));
  report_memory(&r);
  report_limits(&r);
  report_disk(&r);
  report_segments(&r);
  report_environment(&r);
  ot_node_put(arena, r.root, "warnings", r.warnings);
  return r.root;
}
