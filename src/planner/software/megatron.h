// SPDX-License-Identifier: Apache-2.0
// Flags of Megatron-LM and Megatron-DeepSpeed as a job: those of a shell script, a file of flags,
// or a map. Pure; what a script names by its path (a DeepSpeed JSON) is not read here.
#pragma once

#include "software/imported.h"
#include "software/megatron_keys.h"

#define OT_MEGATRON_FORMAT "Megatron-LM flags"

// Whether a text has flags of Megatron-LM.
bool ot_megatron_has_flags(const char *text);

// "--some_flag" [length] as a key: "some-flag".
const char *ot_megatron_key(ot_arena *arena, const char *text, int64_t length);

// The flags of the command in import->text that starts the program, as a map without dashes; fills
// the devices that its launcher starts.
ot_status ot_megatron_script_read(ot_import *import, ot_node **map);

// Fills import->out from such a map.
ot_status ot_megatron_job(ot_import *import, ot_node *map, ot_megatron_flags *flags);

// A whole script [bytes], which ends in zero, called `name`. OT_USAGE for what it is not, and for
// flags of Megatron-DeepSpeed, whose JSON it names.
ot_status ot_megatron_script_import(const char *name, const char *text, ot_arena *arena,
                                    ot_imported *out);

// Parts of ot_megatron_job: model, model_name and model_keys; which layers have experts, from
// moe-layer-freq, in out [layers]; everything else.
ot_status ot_megatron_model(ot_import *import, const ot_megatron_flags *flags);
ot_status ot_megatron_expert_layers(const ot_import *import, const ot_megatron_flags *flags,
                                    bool *out);
ot_status ot_megatron_step(ot_import *import, const ot_megatron_flags *flags);
