// SPDX-License-Identifier: Apache-2.0
// Results of calls that can fail, and the text that explains a failure.
//
// A status is the exit code of the program (interface contract, section 1). The message, an
// optional hint and the chain of failing calls are kept in thread-local text; only cli/ prints
// them. A bug (OT_ASSERT) is not a status: it ends the job.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum ot_status {
  OT_OK = 0,
  OT_FINDINGS = 1,     // an audit found something, no plan fits
  OT_USAGE = 2,        // the command line or the configuration is wrong
  OT_ENVIRONMENT = 3,  // a file, library, device, disk or lock is missing or unsuitable
  OT_RANKS = 4,        // the ranks do not match the plan
  OT_NUMERIC = 5,      // NaN, or the run diverged
  OT_BUG = 70,         // a bug of this program
  OT_STOPPED = 75,     // stopped by a signal after a complete checkpoint
} ot_status;

// Records `format` (see ot_text_format for the conversions) as the message of this thread's failure
// and returns `code`. Replaces any earlier message and hint. Control characters in it become '?'.
ot_status ot_fail(ot_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Adds "what to try" to the message recorded last. Returns `code`, so it can end a function.
ot_status ot_fail_hint(ot_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// The message and hint recorded last on this thread; "" when there are none.
const char *ot_fail_message(void);
const char *ot_fail_hint_text(void);

// Records one caller in the chain of a failure (used by OT_TRY); ot_fail_chain reads "a < b < c". A
// new failure clears it.
void ot_fail_trace(const char *function);
void ot_fail_trace_clear(void);
const char *ot_fail_chain(void);

// Ends the job: prints through the hook (cli/ sets one that writes file, line and rank to stderr
// and aborts), or traps when there is none, as in WebAssembly. Does not return. When memory runs
// out, `file` is null and the failure, OT_ENVIRONMENT, is recorded.
typedef void (*ot_panic_hook)(const char *file, int line, const char *text);
void ot_panic_hook_set(ot_panic_hook hook);
void ot_panic(const char *file, int line, const char *text) __attribute__((noreturn));
void ot_panic_memory(int64_t bytes) __attribute__((noreturn));

#define OT_TRY(call)                         \
  do {                                       \
    const ot_status ot_try_status_ = (call); \
    if (ot_try_status_ != OT_OK) {           \
      ot_fail_trace(__func__);               \
      return ot_try_status_;                 \
    }                                        \
  } while (0)

#define OT_CHECK(condition, code, ...)                     \
  do {                                                     \
    if (!(condition)) return ot_fail((code), __VA_ARGS__); \
  } while (0)

#define OT_ASSERT(condition)                                    \
  do {                                                          \
    if (!(condition)) ot_panic(__FILE__, __LINE__, #condition); \
  } while (0)

#define OT_UNREACHABLE() ot_panic(__FILE__, __LINE__, "unreachable")

// Elements of an array (not of a pointer).
#define OT_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
