// SPDX-License-Identifier: Apache-2.0
// Gives every file of the directories on the command line to a target. A file called valid-* must
// be accepted, one called refused-* must not; others may be either. None may crash or take more
// than a minute.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/disk.h"
#include "fuzz/fuzz.h"
#include "host/heap.h"

enum { SECONDS_MAX = 60, INPUT_BYTES_MAX = 1 << 26 };

// False if the target judges the file otherwise than its name.
static bool replay(const char *directory, const char *name) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  char *text = NULL;
  int64_t bytes = 0;
  const char *const path = ot_disk_join(&arena, directory, name);
  if (ot_disk_read(&arena, path, INPUT_BYTES_MAX, &text, &bytes) != OT_OK) {
    fprintf(stderr, "%s\n", ot_fail_message());
    return false;
  }
  // An exact copy, so that a sanitizer sees a read beyond the end.
  uint8_t *const exact = malloc(bytes > 0 ? (size_t)bytes : 1);
  fuzz_require(exact != NULL, "there is memory");
  memcpy(exact, text, (size_t)bytes);
  fprintf(stderr, "%s\n", path);  // last line before a crash
  alarm(SECONDS_MAX);
  const ot_status status = fuzz_input(exact, (size_t)bytes);
  alarm(0);
  free(exact);
  ot_heap_release(&heap);
  const bool wrong = (strncmp(name, "valid-", 6) == 0 && status != OT_OK) ||
                     (strncmp(name, "refused-", 8) == 0 && status == OT_OK);
  if (wrong) fprintf(stderr, "  status %d: %s\n", (int)status, ot_fail_message());
  return !wrong;
}

static int replay_all(const char *directory, int *wrong) {
  int count = 0;
  DIR *const entries = opendir(directory);
  if (!entries) return 0;
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    count++;
    *wrong += !replay(directory, entry->d_name);
  }
  closedir(entries);
  return count;
}

int main(int argc, char **argv) {
  int count = 0, wrong = 0;
  for (int i = 1; i < argc; i++) count += replay_all(argv[i], &wrong);
  (void)fuzz_input((const uint8_t *)"", 0);
  fprintf(stderr, "%d inputs, %d judged otherwise than their names\n", count, wrong);
  return count == 0 || wrong > 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t capacity) {
  (void)data;
  return size < capacity ? size : capacity;  // nothing is mutated here
}
