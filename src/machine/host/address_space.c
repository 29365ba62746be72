// SPDX-License-Identifier: Apache-2.0
// Maps it all, and unmaps it.
#include "host/address_space.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "host/available.h"
#include "host/library_settings.h"

enum { BUFFERS_MAX = 128 };  // of OpenBLAS; more threads share them

static const int64_t reserve_bytes = 16 << 20;  // for all that is not counted

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void *map(int64_t bytes) {
  return mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// 0, or the errno of the first mapping that failed.
static int try_all(int64_t bytes, int64_t buffer_bytes, int buffers) {
  void *maps[BUFFERS_MAX + 1];
  int made = 0, error = 0;
  for (; made <= buffers && error == 0; made++) {
    maps[made] = map(made == 0 ? bytes : buffer_bytes);
    if (maps[made] == MAP_FAILED) error = errno;
  }
  for (int i = 0; i < made; i++)
    if (maps[i] != MAP_FAILED) munmap(maps[i], (size_t)(i == 0 ? bytes : buffer_bytes));
  return error;
}

ot_status ot_host_check_address_space(int64_t bytes, int threads) {
  const int64_t buffer_bytes = ot_libraries_buffer_bytes();
  const int most = threads < BUFFERS_MAX ? threads : BUFFERS_MAX;
  const int buffers = buffer_bytes > 0 ? most : 0;
  pthread_mutex_lock(&one_at_a_time);
  const int error = try_all(bytes + reserve_bytes, buffer_bytes, buffers);
  pthread_mutex_unlock(&one_at_a_time);
  if (error == 0) return OT_OK;
  char option = 'v';
  const int64_t limit = ot_host_address_limit_bytes(&option);
  ot_fail(OT_ENVIRONMENT,
          "no address space for %lld MB of the run and %d buffer%s of %lld MB of the BLAS: %s",
          (long long)((bytes + reserve_bytes) >> 20), buffers, buffers == 1 ? "" : "s",
          (long long)(buffer_bytes >> 20), strerror(error));
  if (limit == INT64_MAX)
    return ot_fail_hint(OT_ENVIRONMENT, "vm.overcommit_memory limits what processes may map");
  return ot_fail_hint(OT_ENVIRONMENT, "raise the limit of %lld kB (ulimit -%c unlimited)",
                      (long long)(limit / 1024), option);
}
