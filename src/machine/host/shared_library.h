// SPDX-License-Identifier: Apache-2.0
// Libraries that a run opens when it needs them, and their functions: cuBLASLt and NCCL of CUDA,
// libcurl. The caller closes a library with dlclose.
#pragma once

// Opens `file` (a name like libnccl.so.2) from the first folder of OT_CUDA_LIBRARIES that has it,
// folders separated by colons, else from where the system looks. Null: dlerror tells why.
void *ot_cuda_library_open(const char *file);

typedef struct ot_symbol {
  const char *name;
  void *place;  // of a pointer to the function
} ot_symbol;

// Fills the places of `symbols` [count] with the functions of `library`. Returns the name of the
// first that it lacks, or null.
const char *ot_symbols_find(void *library, const ot_symbol *symbols, int count);
