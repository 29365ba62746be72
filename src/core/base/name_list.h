// SPDX-License-Identifier: Apache-2.0
// Collects names for one message: the first few, then the number of others.
#pragma once

#include <stdint.h>

#include "base/text_builder.h"

typedef struct ot_name_list {
  int count;
  ot_text_builder text;
} ot_name_list;

ot_name_list ot_name_list_create(ot_arena *arena);
void ot_name_list_add(ot_name_list *list, const char *name);

// "a, b, c and 4 more"; call it once, at the end.
const char *ot_name_list_text(ot_name_list *list);

// "700, 900"
const char *ot_dims_text(ot_arena *arena, const int64_t *dim, int rank);
