// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_name.h"

#include "base/text.h"
#include "files/disk.h"

static const char prefix[] = "step-";
enum { PREFIX_LENGTH = sizeof prefix - 1, STEP_DIGITS = 8, STEP_DIGITS_MAX = 18 };

char *ot_checkpoint_path(ot_arena *arena, const char *directory, int64_t step) {
  char name[64];
  ot_text_format(name, sizeof name, "%lld", (long long)step);
  const int64_t length = ot_text_length(name);
  const int missing = length < STEP_DIGITS ? (int)(STEP_DIGITS - length) : 0;
  return ot_disk_join(arena, directory,
                      ot_arena_format(arena, "%s%.*s%s", prefix, missing, "00000000", name));
}

int64_t ot_checkpoint_step_of_name(const char *name) {
  if (!ot_text_starts_with(name, prefix)) return -1;
  int64_t step = 0;
  int digits = 0;
  for (const char *c = name + PREFIX_LENGTH; *c != '\0'; c++, digits++) {
    if (*c < '0' || *c > '9' || digits == STEP_DIGITS_MAX) return -1;
    step = 10 * step + (*c - '0');
  }
  const bool plain = digits == STEP_DIGITS || (digits > STEP_DIGITS && name[PREFIX_LENGTH] != '0');
  return plain ? step : -1;
}
