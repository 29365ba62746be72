// SPDX-License-Identifier: Apache-2.0
#include "host/small_thread.h"

#include <signal.h>

enum { STACK_BYTES = 1 << 18 };

bool ot_host_start_small_thread(void *(*run)(void *context), void *context, pthread_t *thread) {
  pthread_attr_t attributes;
  sigset_t all, before;
  if (pthread_attr_init(&attributes) != 0) return false;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  const bool started = pthread_create(thread, &attributes, run, context) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return started;
}
