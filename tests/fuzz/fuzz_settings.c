// SPDX-License-Identifier: Apache-2.0
// Settings on the command line: each line is one --set. Numbers in them are also read alone: what
// is printed of a number reads back as the same.
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "files/config_file.h"
#include "fuzz/fuzz.h"

enum { SETS_MAX = 16, NUMBER_BYTES = 64 };

static void require_same_number(const char *text) {
  double value, again;
  int64_t size;
  char printed[NUMBER_BYTES];
  (void)ot_number_parse_size(text, &size);
  if (!ot_number_parse(text, false, &value)) return;
  ot_number_print_shortest(printed, sizeof printed, value);
  fuzz_require(ot_number_parse(printed, false, &again) && memcmp(&value, &again, sizeof value) == 0,
               "a number that is printed reads back as the same");
}

ot_status fuzz_one(const uint8_t *data, size_t size, ot_arena *arena) {
  static const char *const directories[] = {OT_SOURCE_DIR "/presets"};
  const char *sets[SETS_MAX];
  ot_config_request request = {.sets = sets,
                               .presets = {.directories = directories, .num_directories = 1}};
  char *at = ot_arena_text(arena, (const char *)data, (int64_t)size);
  while (at && request.num_sets < SETS_MAX) {
    char *const end = strchr(at, '\n');
    if (end) *end = '\0';
    const char *const equals = strchr(at, '=');
    if (equals) require_same_number(equals + 1);
    sets[request.num_sets++] = at;
    at = end ? end + 1 : NULL;
  }
  ot_config config;
  return ot_config_load(&request, arena, &config);
}
