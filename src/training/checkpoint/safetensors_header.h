// SPDX-License-Identifier: Apache-2.0
// The JSON header of one safetensors file, from and to text. All file errors are detected here, in
// memory, so the fuzz test drives this code.
#pragma once

#include "checkpoint/safetensors.h"

// A checked header. Names are in the arena it was built in.
typedef struct ot_safetensors_header {
  int num_tensors;
  ot_safetensors_tensor
      *tensors;  // [num_tensors] by name; offset counts from the start of the file
} ot_safetensors_header;

// The bytes of the header of a file of `file_bytes` that begins with `start` [file_bytes, at most
// 8], its length included; at most 8 if no header of that length fits, which building refuses.
int64_t ot_safetensors_header_bytes(const unsigned char *start, int64_t file_bytes);

// Parses the header of a file of `file_bytes` bytes, which begins with `data`
// [ot_safetensors_header_bytes]. `file` names it in messages.
ot_status ot_safetensors_header_build(ot_arena *arena, const char *file, const void *data,
                                      int64_t file_bytes, ot_safetensors_header *header);

// The text of a header with its length prefix, for `tensors` [num_tensors], whose offsets it sets:
// sorted by type, last of the enumeration first, then by name, as the format's own writer does, so
// that equal tensors give equal files.
typedef struct ot_safetensors_header_text {
  char *bytes;  // 8 of length, then the JSON padded with spaces to a multiple of 8
  int64_t num_bytes;
  int64_t file_bytes;  // header and tensors
} ot_safetensors_header_text;

// `order` [num_tensors] receives indices into `tensors` in the order of the file.
void ot_safetensors_header_print(ot_arena *arena, ot_safetensors_tensor *tensors, int num_tensors,
                                 int *order, ot_safetensors_header_text *text);

// Fails on a name that is empty, longer than 512 bytes or contains control characters.
ot_status ot_safetensors_name_check(const char *file, const char *name);
