// SPDX-License-Identifier: Apache-2.0
// Shared by the importers of other software's configurations.
#pragma once

#include "software/import.h"
#include "software/megatron.h"

// Each fills `import->out`. The first function detects the format.
bool ot_megatron_is(const ot_import *import);
ot_status ot_megatron_import(ot_import *import);
// From a map of flags without dashes.
ot_status ot_megatron_of_map(ot_import *import, ot_node *map);
bool ot_nemo_is(const ot_import *import);
ot_status ot_nemo_import(ot_import *import);
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

// The whole text as YAML.
ot_status ot_import_parse_yaml(ot_import *import, ot_node **tree);

// The path of the file `name` in the folder of the imported one, in its arena.
const char *ot_import_beside(const ot_import *import, const char *name);

// Fills model, model_name and model_keys with those of a preset.
ot_status ot_import_preset(ot_import *import, const char *preset);

// True when a line of the text starts with `word`, after blanks.
bool ot_import_has_line(const ot_import *import, const char *word);
