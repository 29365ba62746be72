// SPDX-License-Identifier: Apache-2.0
// The abilities of software, as its documentation and source state them: the section `runs` of an
// engine file, which cites them. Lists hold names as users spell them; an empty list limits
// nothing. The search stays inside (software/ability_check.c).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/schema.h"

typedef struct ot_names {
  int64_t num;
  const char *const *name;  // [num]
} ot_names;

// A capability that the described versions lack, and the software that has it.
typedef struct ot_elsewhere {
  const char *what;   // "zb-v", "zero 3", "zero 2 with pp", "cp", "fp8", "deepseek_v3"
  const char *where;  // "Megatron-core 0.12 (engine megatron-bridge)"
} ot_elsewhere;

typedef struct ot_abilities {
  const char *versions;     // of the software, with its name; "": not stated
  ot_names axes;            // of "dp", "tp", "pp", "cp", "ep"
  ot_names pipelines;       // ot_pipeline_names
  ot_names zero;            // "0" to "3"
  ot_names zero_with_pp;    // of these, with pp above 1; empty: all
  ot_names zero_with_tp;    // of these, with tp or cp above 1; empty: all
  ot_names zero_in_groups;  // of these, over a part of dp; empty: all
  ot_names recompute;       // ot_recompute_names
  ot_names modules;         // ot_recompute_module_names; empty: none
  ot_names precisions;      // of GEMMs: "fp32", "bf16", "fp16", "fp8"
  ot_names families;        // HF model_type
  int hosts;                // at most; 0: any number
  int64_t num_elsewhere;
  const ot_elsewhere *elsewhere;  // [num_elsewhere]
} ot_abilities;

extern const ot_schema ot_abilities_schema;

// Whether `names` holds `name`, or limits nothing.
bool ot_names_allow(const ot_names *names, const char *name);

// OT_USAGE for names that nothing is called.
ot_status ot_abilities_check(const ot_abilities *abilities, const char *engine);
