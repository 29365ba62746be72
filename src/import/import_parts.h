// SPDX-License-Identifier: Apache-2.0
// Shared by the importers of other software's configurations.
#pragma once

#include "base/schema.h"
#include "import/import.h"
#include "import/megatron_keys.h"

// State of an import: the file and the result so far.
typedef struct ot_import {
  const char *path;  // for messages
  const char *text;  // [bytes], ends in zero
  int64_t bytes;
  const char *script;    // the script around `text`; null: `text` is the whole file
  const char *document;  // the body of the first here-document with an end, on its lines; or null
  const ot_presets *presets;
  ot_arena *arena;
  ot_imported *out;
  int64_t note_capacity, ignored_capacity;
} ot_import;

// Each fills `import->out`. The first function detects the format.
bool ot_megatron_is(const ot_import *import);
ot_status ot_megatron_import(ot_import *import);
// From a map of flags without dashes.
ot_status ot_megatron_of_map(ot_import *import, ot_node *map);
bool ot_nemo_is(const ot_import *import);
ot_status ot_nemo_import(ot_import *import);
// Fills model, model_name and model_keys.
ot_status ot_megatron_model(ot_import *import, const ot_megatron_flags *flags);
// Fills everything else.
ot_status ot_megatron_step(ot_import *import, const ot_megatron_flags *flags);
// Which layers have experts, from moe-layer-freq.
//   out  [layers]
ot_status ot_megatron_expert_layers(const ot_import *import, const ot_megatron_flags *flags,
                                    bool *out);
bool ot_maxtext_is(const ot_import *import);
ot_status ot_maxtext_import(ot_import *import);
bool ot_deepspeed_is(const ot_import *import);
ot_status ot_deepspeed_import(ot_import *import);
// The JSON that a script of Megatron-DeepSpeed names, over what its flags give.
ot_status ot_deepspeed_of_script(ot_import *import, const ot_megatron_flags *flags);
bool ot_torchtitan_is(const ot_import *import);
ot_status ot_torchtitan_import(ot_import *import);
bool ot_nanotron_is(const ot_import *import);
ot_status ot_nanotron_import(ot_import *import);

// Fills model, model_name and model_keys with those of a preset.
ot_status ot_import_preset(ot_import *import, const char *preset);

// Adds a sentence to the notes; conversions as ot_text_format.
void ot_import_note(ot_import *import, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Adds to the ignored keys, as "SECTION.KEY", the keys of `map` that are inert in `schema`, and
// recursively those of its objects.
void ot_import_ignored(ot_import *import, const ot_schema *schema, const ot_node *map,
                       const char *section);

// True when a line of the text starts with `word`, after blanks.
bool ot_import_has_line(const ot_import *import, const char *word);

// Rows of a vocabulary padded to a multiple of `multiple` (>= 1).
int64_t ot_import_padded(int64_t vocabulary, int64_t multiple);
