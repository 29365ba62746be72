// SPDX-License-Identifier: Apache-2.0
// The C library takes the limit as the size of a thread's stack.
#include "host/stacks.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

enum { LEAST_BYTES = 1 << 20, WANTED_BYTES = 1 << 23, THREAD_BYTES = 1 << 21 };

// The stack of the process grows up to the limit of the moment.
static bool has_room(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= LEAST_BYTES) return true;
  limit.rlim_cur = limit.rlim_max < WANTED_BYTES ? limit.rlim_max : WANTED_BYTES;
  return limit.rlim_cur >= LEAST_BYTES && setrlimit(RLIMIT_STACK, &limit) == 0;
}

static void set_stack(pthread_attr_t *attributes, size_t least) {
  size_t bytes = 0;
  if (pthread_attr_getstacksize(attributes, &bytes) != 0 || bytes >= least) return;
  pthread_attr_setstacksize(attributes, least);
}

void *ot_host_call_on_stack(void *(*call)(void *context), void *context) {
  pthread_attr_t attributes;
  pthread_t thread;
  void *result;
  const bool room = has_room();
  if (pthread_getattr_default_np(&attributes) != 0) return call(context);
  set_stack(&attributes, THREAD_BYTES);
  pthread_setattr_default_np(&attributes);
  if (!room) set_stack(&attributes, WANTED_BYTES);
  const bool made = !room && pthread_create(&thread, &attributes, call, context) == 0;
  pthread_attr_destroy(&attributes);
  if (!made) return call(context);
  pthread_join(thread, &result);
  return result;
}
