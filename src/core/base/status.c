// SPDX-License-Identifier: Apache-2.0
// Thread-local failure text. Fixed storage, so that reporting a failure cannot fail. Callers of a
// failure, and the end of the job: status_trace.c.
#include "base/status.h"

#include <stdarg.h>
#include <string.h>

#include "base/text.h"

enum { MESSAGE_BYTES = 2048 };

static _Thread_local char message[MESSAGE_BYTES];
static _Thread_local char hint[MESSAGE_BYTES];

ot_status ot_fail(ot_status code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  // Formatted separately: an argument may be the message that is being replaced.
  char text[MESSAGE_BYTES];
  ot_text_format_message(text, sizeof text, format, arguments);
  va_end(arguments);
  ot_text_make_printable(text);
  memcpy(message, text, sizeof text);
  hint[0] = '\0';
  ot_fail_trace_clear();
  return code;
}

ot_status ot_fail_hint(ot_status code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  ot_text_format_message(hint, sizeof hint, format, arguments);
  va_end(arguments);
  ot_text_make_printable(hint);
  return code;
}

const char *ot_fail_message(void) { return message; }

const char *ot_fail_hint_text(void) { return hint; }
