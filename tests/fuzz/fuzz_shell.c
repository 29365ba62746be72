// SPDX-License-Identifier: Apache-2.0
// Shell scripts, read for the commands that they would start; nothing of them runs.
#include "fuzz/fuzz.h"
#include "software/shell.h"

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  if (size > OT_SHELL_BYTES_MAX) return ot_fail(OT_USAGE, "a script that is too long");
  ot_shell shell;
  const char *const text = ot_arena_text(arena, (const char *)data, (int64_t)size);
  return ot_shell_read("input.sh", text, (int64_t)size, arena, &shell);
}
