// SPDX-License-Identifier: Apache-2.0
// .preinit_array is too early to set a variable (the C library reads the environment after it), and
// a constructor too late (libgomp's runs before those of the program).
#include "cli/openmp_wait.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/status.h"

// Every OpenMP library supports "passive". In libgomp the count overrides it: 40 to 90 us, which
// bridge the gaps between kernels.
static const struct {
  const char *name, *value;
} waits[] = {{"OMP_WAIT_POLICY", "passive"}, {"GOMP_SPINCOUNT", "1000"}, {"KMP_BLOCKTIME", NULL}};

void ot_openmp_set_passive(char **words) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == sizeof path) return;
  path[length] = '\0';
  for (int i = 0; i < OT_COUNT(waits); i++) {
    if (getenv(waits[i].name)) return;
  }
  for (int i = 0; i < OT_COUNT(waits); i++) {
    if (waits[i].value && setenv(waits[i].name, waits[i].value, 0) != 0) return;
  }
  execv(path, words);
}
