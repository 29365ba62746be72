// SPDX-License-Identifier: Apache-2.0
// Texts given to the importers as files; what is read lives in the arena of arena_fixture.h. A
// group of tests sets up with make_file and tears down with remove_file.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/import_file.h"
#include "support/arena_fixture.h"

static char file[] = "/tmp/test_import_XXXXXX";
static const char *const directories[] = {OT_SOURCE_DIR "/presets"};
static const ot_presets presets = {.directories = directories, .num_directories = 1};

static inline int make_file(void **state) {
  (void)state;
  const int descriptor = mkstemp(file);
  return descriptor < 0 || close(descriptor);
}

static inline int remove_file(void **state) {
  (void)state;
  return unlink(file);
}

// Reads `text` as if it were a file.
static inline ot_status read_text(const char *text, ot_imported *out) {
  FILE *const stream = fopen(file, "w");
  assert_non_null(stream);
  fputs(text, stream);
  fclose(stream);
  return ot_import_read(file, &presets, &arena, out);
}

// The same; fails the test where it is refused.
static inline ot_imported import_text(const char *text) {
  ot_imported imported;
  if (read_text(text, &imported) != OT_OK) fail_msg("%s", ot_fail_message());
  return imported;
}

// `text` must be refused with the message `format`, in which %s is the path of the file, and with
// `hint` unless that is null.
static inline void expect_refusal(const char *text, const char *format, const char *hint) {
  char message[512];
  ot_imported imported;
  snprintf(message, sizeof message, format, file);
  assert_int_equal(read_text(text, &imported), OT_USAGE);
  assert_string_equal(ot_fail_message(), message);
  if (hint) assert_string_equal(ot_fail_hint_text(), hint);
}

// The first note that contains `part`, or "".
static inline const char *note_with(const ot_imported *imported, const char *part) {
  for (int i = 0; i < imported->num_notes; i++) {
    if (ot_text_find(imported->notes[i], part)) return imported->notes[i];
  }
  return "";
}
