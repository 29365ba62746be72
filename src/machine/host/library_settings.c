// SPDX-License-Identifier: Apache-2.0
// .preinit_array is too early to set a variable (the C library reads the environment after it), and
// a constructor too late (those of libgomp and OpenBLAS run before those of the program).
#include "host/library_settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "host/available.h"
#include "host/end_signals.h"

enum { LINE_BYTES = 8192 };

// Only OpenBLAS has it.
extern char *openblas_get_corename(void) __attribute__((weak));

// Every OpenMP library supports "passive". In libgomp the count overrides it: 40 to 90 us, which
// bridge the gaps between kernels.
static const struct {
  const char *name, *value;
} waits[] = {{"OMP_WAIT_POLICY", "passive"}, {"GOMP_SPINCOUNT", "1000"}, {"KMP_BLOCKTIME", NULL}};

// Kernels of OpenBLAS, fastest first, and what /proc/cpuinfo says of a CPU that runs them.
static const struct {
  const char *core, *flags[5];
} kernels[] = {{"SkylakeX", {" avx512f ", " avx512dq ", " avx512bw ", " avx512vl ", " fma "}},
               {"Haswell", {" avx2 ", " fma ", " bmi2 ", " f16c ", " movbe "}}};

// Whether any value was missing and has been set.
static bool set_waits(void) {
  for (int i = 0; i < OT_COUNT(waits); i++) {
    if (getenv(waits[i].name)) return false;
  }
  bool set = false;
  for (int i = 0; i < OT_COUNT(waits); i++) {
    if (waits[i].value) set = setenv(waits[i].name, waits[i].value, 0) == 0 || set;
  }
  return set;
}

// The line of the first x86 CPU, with spaces around each flag, in `line` [LINE_BYTES]; empty on
// other CPUs.
static void read_flags(char *line) {
  FILE *const file = fopen("/proc/cpuinfo", "re");
  bool found = false;
  while (file && !found && fgets(line, LINE_BYTES, file)) found = strncmp(line, "flags", 5) == 0;
  if (file) fclose(file);
  if (!found) line[0] = '\0';
  char *const end = strchr(line, '\n');
  if (end) *end = ' ';
}

static bool runs_kernels(const char *line, int i) {
  for (int k = 0; k < OT_COUNT(kernels[i].flags); k++) {
    if (!strstr(line, kernels[i].flags[k])) return false;
  }
  return true;
}

static bool set_kernels(void) {
  if (!openblas_get_corename || getenv("OPENBLAS_CORETYPE")) return false;
  if (strcmp(openblas_get_corename(), "Prescott") != 0) return false;
  char line[LINE_BYTES] = "";
  read_flags(line);
  for (int i = 0; i < OT_COUNT(kernels); i++) {
    if (runs_kernels(line, i)) return setenv("OPENBLAS_CORETYPE", kernels[i].core, 0) == 0;
  }
  return false;
}

// The threads of OpenBLAS, which this program does not use, map their buffers when they start.
// Where the address space is limited they would try that for ever, and be waited for at the end.
static bool set_blas_threads(void) {
  char option;
  if (!openblas_get_corename || getenv("OPENBLAS_NUM_THREADS")) return false;
  if (ot_host_address_limit_bytes(&option) == INT64_MAX) return false;
  return setenv("OPENBLAS_NUM_THREADS", "1", 0) == 0;
}

void ot_libraries_configure(char **words) {
  char path[4096];
  ot_end_signals_keep();
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == sizeof path) return;
  path[length] = '\0';
  const bool waits_set = set_waits();
  const bool kernels_set = set_kernels();
  const bool threads_set = set_blas_threads();
  if (waits_set || kernels_set || threads_set) execv(path, words);
}

// The largest of OpenBLAS 0.3 on x86-64.
int64_t ot_libraries_buffer_bytes(void) { return openblas_get_corename ? (int64_t)128 << 20 : 0; }
