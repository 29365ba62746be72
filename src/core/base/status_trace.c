// SPDX-License-Identifier: Apache-2.0
// The chain of failing calls, and the end of a job with a bug. The web page shows neither: it has
// its own (web/host.c), and so no names of functions and texts of assertions.
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

enum { CHAIN_BYTES = 512 };

static _Thread_local char chain[CHAIN_BYTES];
static ot_panic_hook panic_hook;

void ot_fail_trace_clear(void) { chain[0] = '\0'; }

void ot_fail_trace(const char *function) {
  const int64_t used = ot_text_length(chain);
  ot_text_format(chain + used, CHAIN_BYTES - used, used > 0 ? " < %s" : "%s", function);
}

const char *ot_fail_chain(void) { return chain; }

void ot_panic_hook_set(ot_panic_hook hook) { panic_hook = hook; }

_Noreturn void ot_panic(const char *file, int line, const char *text) {
  if (panic_hook) panic_hook(file, line, text);
  __builtin_trap();
}

_Noreturn void ot_panic_memory(int64_t bytes) {
  (void)ot_fail(OT_ENVIRONMENT, "out of memory: %lld more bytes are needed", (long long)bytes);
  ot_panic(NULL, 0, ot_fail_message());
}
