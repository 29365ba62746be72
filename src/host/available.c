// SPDX-License-Identifier: Apache-2.0
// From /proc/meminfo, which counts in KiB.
#include "host/available.h"

#include <stdio.h>

int64_t ot_host_available_bytes(void) {
  char line[256];
  long long kib = -1;
  FILE *const file = fopen("/proc/meminfo", "re");
  if (!file) return INT64_MAX;
  while (kib < 0 && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1) kib = -1;
  (void)fclose(file);
  return kib < 0 ? INT64_MAX : (int64_t)kib * 1024;
}
