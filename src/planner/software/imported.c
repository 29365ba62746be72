// SPDX-License-Identifier: Apache-2.0
// Notes and ignored keys of an import, and its fit to a number of devices.
#include "software/imported.h"

#include <stdarg.h>

#include "base/text.h"

enum { NOTE_BYTES = 512 };

void ot_import_note(ot_import *import, const char *format, ...) {
  char text[NOTE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  const int64_t length = ot_text_format_list(text, sizeof text, format, arguments);
  va_end(arguments);
  ot_imported *const out = import->out;
  const char **const notes = ot_arena_grow(import->arena, (void *)(uintptr_t)out->notes,
                                           out->num_notes, &import->note_capacity, sizeof *notes);
  notes[out->num_notes++] = ot_arena_text(import->arena, text, length);
  out->notes = notes;
}

static void add_ignored(ot_import *import, const char *section, const char *key) {
  ot_imported *const out = import->out;
  const char **const ignored =
      ot_arena_grow(import->arena, (void *)(uintptr_t)out->ignored, out->num_ignored,
                    &import->ignored_capacity, sizeof *ignored);
  ignored[out->num_ignored++] =
      ot_arena_format(import->arena, "%s%s%s", section, section[0] != '\0' ? "." : "", key);
  out->ignored = ignored;
}

void ot_import_ignored(ot_import *import, const ot_schema *schema, const ot_node *map,
                       const char *section) {
  for (const ot_node *child = map->first; child; child = child->next) {
    const ot_key *const key = ot_schema_find(schema, 0, child->key);
    if (!key) {
      add_ignored(import, section, child->key);
    } else if (key->type == OT_KEY_OBJECT && child->kind == OT_NODE_MAP) {
      ot_import_ignored(import, key->object, child, key->name);
    }
  }
}

int64_t ot_import_padded(int64_t vocabulary, int64_t multiple) {
  return (vocabulary + multiple - 1) / multiple * multiple;
}

ot_status ot_import_end(ot_import *import) {
  ot_imported *const out = import->out;
  const int64_t ranks = (int64_t)out->tp * out->pp * out->cp * out->dp;
  if (out->devices == 0 && ranks <= 1 << 20) out->devices = (int)ranks;
  return out->has_model ? ot_model_check(&out->model) : OT_OK;
}

ot_status ot_imported_fit(ot_imported *imported, int devices) {
  const int model_ranks = imported->tp * imported->pp * imported->cp;
  if (devices == 0) devices = imported->devices;
  if (devices == 0 && imported->dp > 0) devices = model_ranks * imported->dp;
  if (devices == 0) {
    ot_fail(OT_USAGE, "%s: the number of devices is not given", imported->format);
    return ot_fail_hint(OT_USAGE, "give --gpus N");
  }
  OT_CHECK(devices % model_ranks == 0, OT_USAGE,
           "%s: tp %d x pp %d x cp %d = %d does not divide %d devices", imported->format,
           imported->tp, imported->pp, imported->cp, model_ranks, devices);
  const int dp = devices / model_ranks;
  if (imported->shard_ranks > 0) imported->dp_replicate = dp / imported->shard_ranks;
  OT_CHECK(imported->dp == 0 || imported->dp == dp, OT_USAGE,
           "%s: tp %d x pp %d x cp %d x dp %d are %d devices, not %d", imported->format,
           imported->tp, imported->pp, imported->cp, imported->dp, model_ranks * imported->dp,
           devices);
  OT_CHECK(imported->dp_replicate > 0 && dp % imported->dp_replicate == 0, OT_USAGE,
           "%s: %d replicas of the weights do not divide dp %d", imported->format,
           imported->dp_replicate, dp);
  imported->dp = dp;
  imported->devices = devices;
  if (imported->global_batch_size == 0)
    imported->global_batch_size = imported->local_batch_size * dp;
  return OT_OK;
}
