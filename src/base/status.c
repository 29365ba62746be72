// SPDX-License-Identifier: Apache-2.0
// Thread-local failure text. Fixed storage, so that reporting a failure cannot fail.
#include "base/status.h"

#include <stdarg.h>
#include <string.h>

#include "base/text.h"

enum { MESSAGE_BYTES = 2048, CHAIN_BYTES = 512 };

static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local char hint[MESSAGE_BYTES];
static _Thread_local char chain[CHAIN_BYTES];
static ot_panic_hook panic_hook;

ot_status ot_fail(ot_status code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  // Formatted separately: an argument may be the message that is being replaced.
  char text[MESSAGE_BYTES];
  ot_text_format_list(text, sizeof text, format, arguments);
  va_end(arguments);
  ot_text_make_printable(text);
  memcpy(message, text, sizeof text);
  hint[0] = '\0';
  chain[0] = '\0';
  return code;
}

ot_status ot_fail_hint(ot_status code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_list(hint, sizeof hint, format, arguments);
  va_end(arguments);
  ot_text_make_printable(hint);
  return code;
}

const char *ot_fail_message(void) { return message; }

const char *ot_fail_hint_text(void) { return hint; }

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
  ot_panic(NULL, 0, message);
}
