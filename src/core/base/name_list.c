// SPDX-License-Identifier: Apache-2.0
// A count and a growing text.
#include "base/name_list.h"

#include "base/text.h"

enum { NAMES_LISTED = 5 };

ot_name_list ot_name_list_create(ot_arena *arena) {
  return (ot_name_list){.text = {.arena = arena}};
}

void ot_name_list_add(ot_name_list *list, const char *name) {
  list->count++;
  if (list->count > NAMES_LISTED) return;
  if (list->count > 1) ot_text_append(&list->text, ", ", 2);
  ot_text_append(&list->text, name, ot_text_length(name));
}

const char *ot_name_list_text(ot_name_list *list) {
  if (list->count > NAMES_LISTED)
    ot_text_appendf(&list->text, " and %d more", list->count - NAMES_LISTED);
  return ot_text_builder_text(&list->text);
}

const char *ot_dims_text(ot_arena *arena, const int64_t *dim, int rank) {
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < rank; i++)
    ot_text_appendf(&text, i > 0 ? ", %lld" : "%lld", (long long)dim[i]);
  return ot_text_builder_text(&text);
}
