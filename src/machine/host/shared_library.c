// SPDX-License-Identifier: Apache-2.0
// Folders come first, because a system may have libraries of another CUDA as well. A function
// pointer does not fit an object pointer in C, but POSIX promises that dlsym's result does.
#include "host/shared_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { PATH_BYTES = 4096 };

void *ot_cuda_library_open(const char *file) {
  const char *folder = getenv("OT_CUDA_LIBRARIES");
  while (folder && *folder != '\0') {
    const size_t length = strcspn(folder, ":");
    char path[PATH_BYTES];
    ot_text_format(path, sizeof path, "%.*s/%s", (int)length, folder, file);
    void *const found = length > 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (found) return found;
    folder += length + (folder[length] == ':');
  }
  return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

const char *ot_symbols_find(void *library, const ot_symbol *symbols, int count) {
  for (int i = 0; i < count; i++) {
    void *const found = dlsym(library, symbols[i].name);
    if (!found) return symbols[i].name;
    memcpy(symbols[i].place, &found, sizeof found);
  }
  return NULL;
}
